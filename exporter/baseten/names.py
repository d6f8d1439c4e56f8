"""What a workspace has taught about metric names: their kinds, and those the server rejects.

One unknown name makes the API reject a whole request. The names of a rejected request become
suspects, in two groups that are asked apart: a rejected group is halved, an accepted one cleared,
until the culprits stand alone. All polls of a workspace share what they find.
"""

import logging
import threading

from exporter.baseten.answers import ModelAnswer
from exporter.baseten.catalogue import CATALOGUE

log = logging.getLogger(__name__)

RETRY_SECONDS = 24 * 3600.0
"""A rejected name is tried again after a day: servers learn names, too."""

_PROBES = 2
"""Groups of suspects that one poll asks for."""

_MAX_LEARNED = 10_000

Group = tuple[str, ...]


class MetricNames:
    """One workspace's knowledge; safe to share between polls. Times in seconds since the epoch."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._kinds: dict[str, str] = {}
        self._rejected: dict[str, float] = {}
        self._suspects: list[Group] = []

    def kind_of(self, name: str) -> str:
        known = CATALOGUE.get(name)
        return self._kinds.get(name) or (known.kind if known else "GAUGE")

    def learn(self, answer: ModelAnswer) -> None:
        """Remember the kinds the server gave, where they are not as expected."""
        for descriptor in answer.metric_descriptors:
            news = descriptor.kind and descriptor.kind != self.kind_of(descriptor.name)
            if news and len(self._kinds) < _MAX_LEARNED:
                self._kinds[descriptor.name] = str(descriptor.kind)

    def rejected(self) -> list[str]:
        """The names the server does not know."""
        with self._lock:
            return sorted(self._rejected)

    def groups(self, names: Group, now: float) -> list[Group]:
        """How to ask for `names`: those in good standing together, then a few groups of doubtful ones."""
        with self._lock:
            doubtful = {name for group in self._suspects for name in group} | self._rejected.keys()
            due = [(name,) for name, retry_at in self._rejected.items() if retry_at <= now]
            probes = [_among(group, names) for group in (*self._suspects, *due)]
        trusted = tuple(name for name in names if name not in doubtful)
        return [group for group in (trusted, *[probe for probe in probes if probe][:_PROBES]) if group]

    def in_doubt(self, names: Group) -> bool:
        """Whether one of `names` is already known or suspected to be rejected."""
        with self._lock:
            return any(_among(group, names) for group in (*self._suspects, tuple(self._rejected)))

    def accept(self, names: Group) -> None:
        """The server answered a request for `names`: none of them is at fault."""
        with self._lock:
            self._clear(names)
            for name in self._rejected.keys() & set(names):
                del self._rejected[name]

    def reject(self, names: Group, now: float) -> list[Group]:
        """The server rejected a request because of one of `names`; return the groups to ask next."""
        with self._lock:
            self._clear(names)
            if len(names) > 1:
                middle = len(names) // 2
                halves = [names[:middle], names[middle:]]
                self._suspects += halves
                return halves
            news = names[0] not in self._rejected
            self._rejected[names[0]] = now + RETRY_SECONDS
        if news:
            log.warning(
                "the API rejects this metric name: polling goes on without it and tries it again in a day",
                extra={"workspace": self._workspace, "metric": names[0]},
            )
        return []

    def _clear(self, names: Group) -> None:
        rest = [tuple(name for name in group if name not in names) for group in self._suspects]
        self._suspects = [group for group in rest if group]


def _among(group: Group, names: Group) -> Group:
    return tuple(name for name in group if name in names)
