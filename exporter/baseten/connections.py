"""The HTTP connections to a workspace's API, one for each request under way."""

import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from exporter.baseten.deadline import Deadline, enforce

_IDLE = 10.0
"""Seconds after which a connection that nobody needed is closed; httpx would not use it again after five."""


class Connections:
    """Hands out HTTP clients of one connection each, the one used last first; `clock` is monotonic.

    A pool of httpx looks through all of its connections when a request begins and when it ends: with
    hundreds under way that costs more than the request.
    """

    def __init__(
        self, ca_file: Path | None, deadline: Deadline, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._deadline = deadline
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: deque[tuple[float, httpx.Client]] = deque()
        self._closed = False

    @contextmanager
    def one(self) -> Iterator[httpx.Client]:
        """A client for one request; it is nobody else's meanwhile."""
        client = self._take()
        try:
            yield client
        finally:
            self._give_back(client)

    def close(self) -> None:
        """Close what is idle now, and the rest as it is given back."""
        with self._lock:
            self._closed = True
        self._drop(before=float("inf"))

    def _take(self) -> httpx.Client:
        with self._lock:
            if self._idle:
                return self._idle.pop()[1]
        client = httpx.Client(
            limits=httpx.Limits(max_keepalive_connections=1), verify=self._tls, follow_redirects=False
        )
        enforce(client, self._deadline)
        return client

    def _give_back(self, client: httpx.Client) -> None:
        now = self._clock()
        with self._lock:
            self._idle.append((now, client))
        self._drop(before=float("inf") if self._closed else now - _IDLE)

    def _drop(self, before: float) -> None:
        """Close what was last used before that time."""
        while True:
            with self._lock:
                if not self._idle or self._idle[0][0] >= before:
                    return
                _, client = self._idle.popleft()
            client.close()
