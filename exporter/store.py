"""The latest snapshot per target, swapped whole, and the rules of staleness.

The polling side writes, the serving side reads; they meet here and nowhere else. Every method is
safe to call from any thread.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from exporter import exposition
from exporter.exposition import Share
from exporter.model import Family, Labels, Piece, Sample, Snapshot, Target

_NEVER = float("inf")

Owner = tuple[str, ...]
"""Whose pieces they are: a target, by its key, or a workspace, by its name."""

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


class _Family:
    """Everybody's lines of one metric family, and its help texts with the number of owners who have each."""

    def __init__(self) -> None:
        self.lines: dict[Owner, bytes] = {}
        self.helps: Counter[str] = Counter()


class _Index:
    """All that is on the page by metric family: kept so at every poll, since a page needs it that way.

    It holds the lines by themselves, so that a page touches none of the objects around them.
    """

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def replace(self, owner: Owner, old: Mapping[str, Piece], new: Mapping[str, Piece]) -> None:
        for name, piece in new.items():
            family = self._families.get(name) or self._families.setdefault(name, _Family())
            family.lines[owner] = piece.lines
            before = old.get(name)
            if before is None or before.help != piece.help:
                family.helps[piece.help] += 1
        for name, piece in old.items():
            after = new.get(name)
            if after is not None and after.help == piece.help:
                continue
            family = self._families[name]
            family.helps[piece.help] -= 1
            if after is None:
                del family.lines[owner]
                if not family.lines:
                    del self._families[name]

    def families(self) -> exposition.Families:
        # HELP must be one text per family; two sources under one name get the first in order.
        return {
            name: Share(min(+family.helps), list(family.lines.values()))
            for name, family in self._families.items()
        }


class Store:
    """`clock` gives seconds since the epoch; `version` changes whenever the page would."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._stale_after = 0.0
        self._entries: dict[tuple[str, ...], Entry] = {}
        self._descriptions: Mapping[str, Mapping[str, Piece]] = {}
        self._index = _Index()
        self._version = 0
        self._next_expiry = _NEVER

    def retarget(self, targets: Iterable[Target], stale_after: float) -> None:
        """Take a new set of targets: those still there keep what they have, the rest is gone at once."""
        with self._lock:
            old = self._entries
            self._entries = {
                target.key: replace(old.get(target.key, Entry(target)), target=target) for target in targets
            }
            for key in old.keys() - self._entries.keys():
                self._index.replace(key, old[key].pieces, {})
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

    def hold_back(self, target: Target, reason: str, error: str, *, down: bool) -> None:
        """Note why a poll did not even start; `down`: the target is no longer known to be up.

        Nor is one whose last good poll is so long ago that its series are gone.
        """
        with self._lock:
            self._expire()
            old = self._entries.get(target.key)
            if old is None or old.target != target:
                return
            if down or old.up is None or (old.up and old.snapshot is None):
                self._put(replace(old, up=False, reason=reason, error=error))

    def describe(self, descriptions: Mapping[str, Mapping[str, Piece]]) -> None:
        """Take what the listings say of each workspace, in place of what they said before."""
        with self._lock:
            old, self._descriptions = self._descriptions, descriptions
            for workspace in old.keys() | descriptions.keys():
                self._share((workspace,), old.get(workspace, {}), descriptions.get(workspace, {}))

    def families(self) -> tuple[int, exposition.Families]:
        """The version and all that stands on its page, stale series already gone."""
        with self._lock:
            self._expire()
            return self._version, self._index.families()

    def view(self) -> tuple[int, list[Entry]]:
        """The version and the entries that belong together, stale series already gone."""
        with self._lock:
            self._expire()
            return self._version, list(self._entries.values())

    @property
    def version(self) -> int:
        """Cheap to ask: changes whenever `families` would answer differently."""
        with self._lock:
            self._expire()
            return self._version

    def ready(self) -> bool:
        """Whether every target had its first poll: good, bad, or held back."""
        with self._lock:
            return all(entry.up is not None for entry in self._entries.values())

    def _put(self, entry: Entry) -> None:
        old = self._entries[entry.target.key]
        new = entry.rendered()
        self._entries[entry.target.key] = new
        self._share(entry.target.key, old.pieces, new.pieces)

    def _share(self, owner: Owner, old: Mapping[str, Piece], new: Mapping[str, Piece]) -> None:
        """Put what an owner has on the page in place of what it had."""
        if new != old:
            self._index.replace(owner, old, new)
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
