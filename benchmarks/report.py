"""Measures beside their goals, as one table for terminals and Markdown alike."""

from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    measure: str
    ours: str
    peer: str
    ratio: float
    goal: str = ""
    reached: bool | None = None


def durations(measure: str, ours: float, peer: float) -> Row:
    """In seconds, without a goal."""
    return Row(measure, _ms(ours), _ms(peer), peer / ours)


def faster(measure: str, ours: float, peer: float, times: float) -> Row:
    """Durations in seconds; the goal is to be so many times faster."""
    row = durations(measure, ours, peer)
    return row._replace(goal=f"at least {times:,}x", reached=row.ratio >= times)


def sizes(measure: str, ours: float, peer: float) -> Row:
    """In bytes, without a goal."""
    return Row(measure, _bytes(ours), _bytes(peer), peer / ours)


def smaller(measure: str, ours: float, peer: float, limit: int) -> Row:
    """Bytes; the goal is a limit to ours."""
    return sizes(measure, ours, peer)._replace(goal=f"at most {limit} bytes", reached=ours <= limit)


def table(rows: Sequence[Row]) -> str:
    head = ("measure", "exporter", "prometheus_client", "ratio", "goal", "reached")
    cells = [head, *[_cells(row) for row in rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [_line(row, widths) for row in cells]
    rule = "|".join(["", "-" * (widths[0] + 2), *["-" * (width + 1) + ":" for width in widths[1:4]]])
    rest = "|".join("-" * (width + 2) for width in widths[4:])
    return "\n".join([lines[0], f"{rule}|{rest}|", *lines[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    reached = {None: "", True: "yes", False: "NO"}[row.reached]
    return (row.measure, row.ours, row.peer, f"{row.ratio:,.1f}", row.goal, reached)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Text to the left, figures to the right."""
    padded = [
        cell.rjust(width) if 1 <= column <= 3 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"


def _ms(seconds: float) -> str:
    millis = seconds * 1000
    return f"{millis:,.0f} ms" if millis >= 100 else f"{millis:.3g} ms"


def _bytes(count: float) -> str:
    return f"{count:,.0f} bytes"
