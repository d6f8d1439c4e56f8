"""Figures as tables for terminals and Markdown alike, and goals with how far they were missed."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

MISSING = "not installed"


class Goal(NamedTuple):
    """What was measured and what it should be, both in `unit`."""

    what: str
    measured: float
    bound: Literal["at least", "at most"]
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool:
        if self.bound == "at least":
            return self.measured >= self.limit
        return self.measured <= self.limit

    @property
    def verdict(self) -> str:
        if self.met:
            return "met"
        worse = self.limit / self.measured if self.bound == "at least" else self.measured / self.limit
        return f"MISSED, {worse:.2f} times off"


class Report(NamedTuple):
    """What one section has to say."""

    tables: list[str]
    goals: list[Goal]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = "|".join(["", "-" * (widths[0] + 2), *["-" * (width + 1) + ":" for width in widths[1:]], ""])
    first, *rest = [_line(cells, widths) for cells in (head, *rows)]
    return "\n".join([first, rule, *rest])


def goals(found: Sequence[Goal]) -> str:
    rows = [
        (
            each.what,
            _figure(each.measured, each.unit),
            f"{each.bound} {each.limit:g}{each.unit}",
            each.verdict,
        )
        for each in found
    ]
    return table(("goal", "measured", "limit", "verdict"), rows)


def milliseconds(seconds: float) -> str:
    return _figure(seconds * 1000, " ms")


def times(ratio: float) -> str:
    return _figure(ratio, "x")


def _figure(value: float, unit: str) -> str:
    """Three digits that mean something."""
    return f"{value:,.0f}{unit}" if abs(value) >= 100 else f"{value:.3g}{unit}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return f"| {' | '.join([first[0].ljust(first[1]), *[cell.rjust(width) for cell, width in rest]])} |"
