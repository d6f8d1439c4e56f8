"""The HTTP connections to a workspace's API, one for each request under way."""

import ssl
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from exporter.baseten.deadline import Deadline, enforce

_IDLE = 10.0
"""Seconds after which a connection that nobody needed is closed; httpx would not use it again after five."""


class Connections:
    """Hands out connections to the server of `url`, the one used last first; `clock` is monotonic.

    They are httpx's transports, with one connection each: a pool looks through all of its connections
    when a request begins and when it ends, which with hundreds under way costs more than the request;
    and what `httpx.Client` adds, cookies, redirects and authentication, is a quarter of a request's cost
    and of no use here.
    """

    def __init__(
        self,
        url: httpx.URL,
        ca: str | None,
        deadline: Deadline,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proxy = _proxy(url)
        self._tls = ssl.create_default_context(cadata=ca)
        self._deadline = deadline
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: deque[tuple[float, httpx.HTTPTransport]] = deque()
        self._closed = False

    @contextmanager
    def one(self) -> Iterator[httpx.HTTPTransport]:
        """A connection for one request; it is nobody else's meanwhile."""
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close what is idle now, and the rest as it is given back."""
        with self._lock:
            self._closed = True
        self._drop(before=float("inf"))

    def _take(self) -> httpx.HTTPTransport:
        with self._lock:
            if self._idle:
                return self._idle.pop()[1]
        connection = httpx.HTTPTransport(verify=self._tls, proxy=self._proxy)
        enforce(connection, self._deadline)
        return connection

    def _give_back(self, connection: httpx.HTTPTransport) -> None:
        now = self._clock()
        with self._lock:
            self._idle.append((now, connection))
        self._drop(before=float("inf") if self._closed else now - _IDLE)

    def _drop(self, before: float) -> None:
        """Close what was last used before that time."""
        while True:
            with self._lock:
                if not self._idle or self._idle[0][0] >= before:
                    return
                _, connection = self._idle.popleft()
            connection.close()


def _proxy(url: httpx.URL) -> str | None:
    """The proxy that the environment names for `url`."""
    if any(map(urllib.request.proxy_bypass, (url.host, url.netloc.decode()))):  # without and with its port
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"
