"""What a run has found: figures, and promises kept or broken."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Promise(NamedTuple):
    """Something that must hold, and what shows that it does not."""

    text: str
    kept: bool
    found: str


class Report(NamedTuple):
    figures: list[tuple[str, str]]
    promises: list[Promise]

    @property
    def broken(self) -> list[Promise]:
        return [each for each in self.promises if not each.kept]

    def __str__(self) -> str:
        judged = [(each.text, f"{'kept' if each.kept else 'BROKEN'}: {each.found}") for each in self.promises]
        return f"{_table('figure', self.figures)}\n\n{_table('promise', judged)}"


def by_kind(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common() if count) or "none"


def mib(size: float) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _table(head: str, rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in (*rows, (head, "")))
    lines = [(head, "value"), ("-" * width, "-----"), *rows]
    return "\n".join(f"| {name.ljust(width)} | {value} |" for name, value in lines)
