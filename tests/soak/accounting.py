"""Polls counted three ways: by the exporter's counters, by the schedule, and by its scheduler's log."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.soak.process import MARK, ids, seconds

Ids = tuple[str, str, str]

_STARTED = re.compile(r'logger=apscheduler\.executors\.(\w+) msg="Running job')
_OVERLAPPED = "maximum number of running instances reached"
_BUG = re.compile(r"msg=\"?bug|Traceback|level=critical")


class Polls(NamedTuple):
    """Of one workspace, or of all; `failed` and `skipped` by reason."""

    ran: int
    failed: Counter[str]
    skipped: Counter[str]

    @property
    def succeeded(self) -> int:
        return self.ran - self.failed.total()

    @property
    def attempted(self) -> int:
        return self.ran + self.skipped.total()

    @property
    def started(self) -> int:
        """Those that came as far as a thread; the others were still running when they were due."""
        return self.attempted - self.skipped["overlap"]

    def since(self, before: "Polls") -> "Polls":
        return Polls(self.ran - before.ran, self.failed - before.failed, self.skipped - before.skipped)


class Log(NamedTuple):
    """What the log says: polls started by workspace, polls skipped by the scheduler, and what must not be."""

    started: Counter[str]
    overlapped: int
    lines: int
    leaks: int
    bugs: list[str]


def samples(page: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


def polls(page: Iterable[Sample], workspace: str | None = None) -> Polls:
    """What the counters on a page say."""
    ran, failed, skipped = 0, Counter[str](), Counter[str]()
    for sample in page:
        if workspace is not None and sample.labels.get("workspace") != workspace:
            continue
        if sample.name == "baseten_exporter_polls_total":
            ran += int(sample.value)
        elif sample.name == "baseten_exporter_poll_failures_total":
            failed[sample.labels["reason"]] += int(sample.value)
        elif sample.name == "baseten_exporter_polls_skipped_total":
            skipped[sample.labels["reason"]] += int(sample.value)
    return Polls(ran, failed, skipped)


def due(first: Mapping[Ids, float], told: Iterable[Mapping[str, Any]], interval: float) -> int:
    """How many polls the schedule has had since `first`, the first of each target on it.

    The last one of each is known to have run: it is the one on whose time the target was last polled.
    """
    last = {ids(each): seconds(each["last_poll"]) for each in told}
    return sum(int((last[target] - begin) // interval) + 1 for target, begin in first.items())


def read(log: Path) -> Log:
    started, overlapped, lines, leaks, bugs = Counter[str](), 0, 0, 0, []
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            lines += 1
            leaks += MARK in line
            if match := _STARTED.search(line):
                started[match[1]] += 1
            overlapped += _OVERLAPPED in line
            if _BUG.search(line):
                bugs.append(line.strip()[:300])
    return Log(started, overlapped, lines, leaks, bugs)
