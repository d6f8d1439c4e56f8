"""One endpoint's allowance: a token bucket of one token, and the pause a 429 asks for."""

import threading
from collections.abc import Callable

from exporter.baseten.errors import EndpointPaused

DEFAULT_PAUSE = 10.0
"""Seconds, for a 429 that does not say for how long."""

MAX_PAUSE = 300.0


class Throttle:
    """`rate` in requests per second, which may change; `clock` is monotonic, in seconds.

    With a burst of one token, requests go out evenly and no second ever sees more than the rate.
    """

    def __init__(self, endpoint: str, rate: float, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._endpoint = endpoint
        self.rate = rate
        self._clock = clock
        self._next = clock()
        self._resume = self._next

    def reserve(self) -> float:
        """Take a token; return the seconds to wait before using it. EndpointPaused during a pause."""
        with self._lock:
            if (left := self._paused()) > 0:
                raise EndpointPaused(self._endpoint, left)
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + 1 / self.rate
            return turn - now

    def pause(self, seconds: float | None) -> float:
        """Leave the endpoint alone for `seconds`, as its answer asked (None: it did not say).

        Returns the seconds that it is left alone from now on.
        """
        wait = DEFAULT_PAUSE if seconds is None else min(max(seconds, 0.0), MAX_PAUSE)
        with self._lock:
            self._resume = max(self._resume, self._clock() + wait)
            return self._paused()

    def paused(self) -> float:
        """The seconds that the endpoint is still left alone."""
        with self._lock:
            return self._paused()

    def _paused(self) -> float:
        return max(0.0, self._resume - self._clock())
