"""What one run has shown, as it was seen."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from prometheus_client.samples import Sample

from tests.soak.accounting import Log, Polls, polls
from tests.soak.conductor import Record
from tests.soak.process import Setting, Usage


@dataclass(frozen=True)
class Plan:
    """How long and how large; `flat` is by how much memory may differ between two thirds of the run.

    Durations in seconds.
    """

    seconds: float
    targets: int = 500
    seed: int = 1
    interval: float = 5.0
    timeout: float = 2.0
    listing: float = 10.0
    concurrency: int = 16
    flat: float = 0.05

    @property
    def setting(self) -> Setting:
        return Setting(self.interval, self.timeout, 3 * self.interval, self.listing, self.concurrency)


class Rest(NamedTuple):
    """The exporter while nothing is polled: its page, what the JSON route says, what it holds."""

    page: list[Sample]
    told: list[dict[str, Any]]
    usage: Usage


class Values(NamedTuple):
    """The page against the truth."""

    compared: int
    wrong: list[str]


@dataclass(frozen=True)
class Findings:
    """`named` are the polls of that workspace since the schedule began, `due` what the schedule had."""

    plan: Plan
    seconds: float
    start: Rest
    end: Rest
    named: Polls
    due: int
    log: Log
    values: Values
    usages: tuple[Usage, ...]
    scraped: Mapping[str, Any]
    faults: Mapping[str, Counter[str]]
    record: Record
    status: int

    @property
    def polls(self) -> Polls:
        """All, from the process's first breath to the last rest."""
        return polls(self.end.page)

    @property
    def resident(self) -> tuple[float, float, float]:
        """Mean memory of each third of the chaos, in bytes."""
        size = len(self.usages) // 3
        first, middle, last = (
            fmean(each.resident for each in self.usages[nth * size : (nth + 1) * size]) for nth in range(3)
        )
        return first, middle, last
