"""Polls as an exporter tells of them from outside: how late they are, how many there were."""

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from benchmarks.client import get

_PUNCTUAL = 1.0
"""Seconds."""


class _Target(msgspec.Struct, frozen=True):
    next_poll: datetime | None
    last_poll: datetime | None
    poll_duration_seconds: float | None


class _Targets(msgspec.Struct, frozen=True):
    targets: list[_Target]


def lateness(port: int, interval: float) -> list[float]:
    """Seconds by which each target's newest poll started after its time."""
    body = get(port, "/api/v1/targets").body
    return list(_lateness(msgspec.json.decode(body, type=_Targets), datetime.now(UTC), interval))


def _lateness(found: _Targets, now: datetime, interval: float) -> Iterator[float]:
    for target in found.targets:
        if target.next_poll is None or target.last_poll is None or target.poll_duration_seconds is None:
            yield interval
            continue
        overdue = (now - target.next_poll).total_seconds()  # not even handed to a thread
        ended = (target.last_poll - target.next_poll).total_seconds() + interval
        started = ended - target.poll_duration_seconds
        if overdue > 0:
            yield overdue
        elif started > -interval / 2:
            yield max(started, 0)
        else:  # the newest one has not ended: it began now at the latest, if it takes as long as the last
            yield max(overdue + interval - target.poll_duration_seconds, 0)


def punctual(late: list[float], skipped: int = 0) -> float:
    """The share of polls that started within a second of their time, in percent."""
    return 100 * sum(each <= _PUNCTUAL for each in late) / (len(late) + skipped)


def total(port: int, name: str) -> float:
    """The sum of all series of one metric."""
    lines = get(port, f"/metrics?name[]={name}").body.splitlines()
    return sum(float(line.rpartition(b" ")[2]) for line in lines if line.startswith(name.encode()))
