"""A workspace's circuit: once nothing gets through, one probe per interval goes out, and no more."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from exporter.baseten.errors import ApiError, CircuitOpen

log = logging.getLogger(__name__)

THRESHOLD = 5
"""Failures in a row that open it."""

_COUNT = ("connection", "tls", "auth")
"""Failures that every other request would meet, too."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Why a circuit is open; times are of the circuit's clock."""

    error: ApiError
    since: float
    next_probe: float


class Circuit:
    """Closed at first; `clock` is monotonic, `interval` in seconds."""

    def __init__(self, workspace: str, interval: float, clock: Callable[[], float]) -> None:
        self._workspace = workspace
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._outage: Outage | None = None

    @property
    def outage(self) -> Outage | None:
        """None while it is closed."""
        return self._outage

    def enter(self) -> None:
        """Let a request pass, as a probe if it must be; CircuitOpen if not."""
        with self._lock:
            outage, now = self._outage, self._clock()
            if outage is None:
                return
            if now < outage.next_probe:
                raise CircuitOpen(outage.error)
            self._outage = replace(outage, next_probe=now + self._interval)

    def failed(self, error: ApiError) -> None:
        if error.reason == "timeout":  # a slow deployment says nothing of the others, good or bad
            return
        if error.reason not in _COUNT:  # an answer is an answer, though not the wanted one
            self.succeeded()
            return
        kept, now = error.kept(), self._clock()
        with self._lock:
            self._failures += 1
            if self._outage is not None:
                self._outage = replace(self._outage, error=kept)
            elif self._failures >= THRESHOLD:
                self._outage = Outage(kept, now, now + self._interval)
                extra = {"workspace": self._workspace, "reason": error.reason, "error": kept}
                log.warning("circuit open: nothing but a probe per interval goes out", extra=extra)

    def succeeded(self) -> None:
        with self._lock:
            self._failures = 0
            if self._outage is not None:
                self._outage = None
                log.info("circuit closed: the API answers again", extra={"workspace": self._workspace})

    def probe_now(self) -> None:
        """Let one probe out without waiting for its time: something has changed on our side."""
        with self._lock:
            if self._outage is not None:
                self._outage = replace(self._outage, next_probe=self._clock())
