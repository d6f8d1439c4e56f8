"""The latest snapshot per target, swapped whole, and the rules of staleness.

The polling side writes, the serving side reads; they meet here and nowhere else. Every method is
safe to call from any thread.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from exporter import exposition
from exporter.model import Family, Labels, Piece, Sample, Snapshot, Target

_NEVER = float("inf")

# What the exporter says about every target, beside the target's own series.
HEALTH = MappingProxyType(
    {
        "baseten_exporter_target_up": "Whether the last poll of the target succeeded (1) or failed (0).",
        "baseten_exporter_target_last_success_timestamp_seconds": "Time of the last successful poll.",
        "baseten_exporter_target_newest_sample_timestamp_seconds": "Time of the newest value ever polled.",
        "baseten_exporter_target_series": "Series of the target now on the page, these ones not counted.",
    }
)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one target. Times are seconds since the epoch; None means never."""

    target: Target
    snapshot: Snapshot | None = None
    up: bool | None = None
    reason: str = ""
    reasons: frozenset[str] = frozenset()  # all since the last success
    error: str = ""
    last_poll: float | None = None
    last_success: float | None = None
    newest_sample: float | None = None
    duration: float | None = None
    pieces: Mapping[str, Piece] = field(default_factory=dict)

    def rendered(self) -> "Entry":
        """The entry with its share of the page: the snapshot's lines and the target's health."""
        data = self.snapshot.pieces if self.snapshot else {}
        return replace(self, pieces={**data, **_health(self)})


class Store:
    """`clock` gives seconds since the epoch; `version` changes whenever the page would."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._stale_after = 0.0
        self._entries: dict[tuple[str, ...], Entry] = {}
        self._descriptions: Mapping[str, Mapping[str, Piece]] = {}
        self._version = 0
        self._next_expiry = _NEVER

    def retarget(self, targets: Iterable[Target], stale_after: float) -> None:
        """Take a new set of targets: those still there keep what they have, the rest is gone at once."""
        with self._lock:
            old = self._entries
            self._entries = {
                target.key: replace(old.get(target.key, Entry(target)), target=target) for target in targets
            }
            self._stale_after = stale_after
            self._version += 1
            self._sweep(self._clock())

    def succeed(self, target: Target, snapshot: Snapshot, duration: float) -> bool:
        """Swap in a good poll's result; return whether the target's state changed."""
        now = self._clock()
        with self._lock:
            old = self._entries.get(target.key)
            if old is None or old.target != target:
                return False
            newest = _latest(old.newest_sample, snapshot.newest)
            good = Entry(target, snapshot, up=True, last_poll=now, last_success=now, newest_sample=newest)
            self._put(replace(good, duration=duration))
            self._next_expiry = min(self._next_expiry, now + self._stale_after)
            return old.up is not True

    def fail(self, target: Target, reason: str, error: str, duration: float, *, gone: bool = False) -> bool:
        """Note a failed poll; return whether that is news: a reason not seen since the last success.

        `gone` drops the target's series at once.
        """
        now = self._clock()
        with self._lock:
            old = self._entries.get(target.key)
            if old is None or old.target != target:
                return False
            entry = replace(old, up=False, reason=reason, error=error, last_poll=now, duration=duration)
            kept = None if gone else old.snapshot
            self._put(replace(entry, snapshot=kept, reasons=old.reasons | {reason}))
            return reason not in old.reasons

    def describe(self, descriptions: Mapping[str, Mapping[str, Piece]]) -> None:
        """Take what the listings say of each workspace, in place of what they said before."""
        with self._lock:
            if descriptions != self._descriptions:
                self._descriptions = descriptions
                self._version += 1

    def pieces(self) -> tuple[int, list[Mapping[str, Piece]]]:
        """The version and all that stands on its page, stale series already gone."""
        with self._lock:
            self._expire()
            shares = [entry.pieces for entry in self._entries.values()]
            return self._version, [*shares, *self._descriptions.values()]

    def view(self) -> tuple[int, list[Entry]]:
        """The version and the entries that belong together, stale series already gone."""
        with self._lock:
            self._expire()
            return self._version, list(self._entries.values())

    @property
    def version(self) -> int:
        """Cheap to ask: changes whenever `pieces` would answer differently."""
        with self._lock:
            self._expire()
            return self._version

    def ready(self) -> bool:
        """Whether every target had its first poll, good or bad."""
        with self._lock:
            return all(entry.last_poll is not None for entry in self._entries.values())

    def _put(self, entry: Entry) -> None:
        old = self._entries[entry.target.key]
        new = entry.rendered()
        self._entries[entry.target.key] = new
        if new.pieces != old.pieces:
            self._version += 1

    def _expire(self) -> None:
        now = self._clock()
        if now >= self._next_expiry:
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        """Drop the series of targets whose last good poll is too old, and note when to look again."""
        self._next_expiry = _NEVER
        for entry in list(self._entries.values()):
            if entry.snapshot is None or entry.last_success is None:
                continue
            expiry = entry.last_success + self._stale_after
            if now >= expiry:
                self._put(replace(entry, snapshot=None))
            else:
                self._next_expiry = min(self._next_expiry, expiry)


def _latest(old: float | None, new: float | None) -> float | None:
    return max((time for time in (old, new) if time is not None), default=None)


def _health(entry: Entry) -> dict[str, Piece]:
    target = entry.target
    labels: Labels = (("workspace", target.workspace), ("kind", target.kind), *target.ids)
    values = (
        None if entry.up is None else float(entry.up),
        entry.last_success,
        entry.newest_sample,
        float(entry.snapshot.series if entry.snapshot else 0),
    )
    families = [
        Family(name, text, (Sample((), value),))
        for (name, text), value in zip(HEALTH.items(), values, strict=True)
        if value is not None
    ]
    return exposition.pieces(families, labels)
