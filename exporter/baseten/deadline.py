"""A deadline for everything one request does on the network.

httpx bounds each read, not their sum: a server that dribbles a byte now and then would hold a
thread for ever. Here every operation on the socket gets what is left of the request's own time.
"""

import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx


class Deadline:
    """The time by which the calling thread's request must be done; `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._local = threading.local()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        self._local.end = self._clock() + seconds
        try:
            yield
        finally:
            del self._local.end

    def left(self, timeout: float | None) -> float | None:
        """What an operation may take: `timeout`, or less. httpx's ReadTimeout when there is no time left."""
        end: float | None = getattr(self._local, "end", None)
        if end is None:  # closing idle connections, outside any request
            return timeout
        left = end - self._clock()
        if left <= 0:
            raise httpcore.ReadTimeout("the request's time is up")
        return left if timeout is None else min(left, timeout)


def enforce(transport: httpx.HTTPTransport, deadline: Deadline) -> None:
    """Make every connection of `transport`, proxied ones included, keep the deadline.

    httpx has no public door for a network backend, so this reaches for its pool; a test notices
    should a new version move it.
    """
    pool = transport._pool  # noqa: SLF001
    pool._network_backend = _Backend(pool._network_backend, deadline)  # noqa: SLF001


class _Backend(httpcore.NetworkBackend):
    def __init__(self, inner: httpcore.NetworkBackend, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._inner.connect_tcp(
            host, port, self._deadline.left(timeout), local_address, socket_options
        )
        return _Stream(stream, self._deadline)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._deadline.left(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        stream = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left(timeout))
        return _Stream(stream, self._deadline)

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)
