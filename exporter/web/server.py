"""uvicorn, with its signals left to the composition root."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

_KEEP_ALIVE = 75
"""Seconds; longer than a usual scrape interval, so that scrapers keep their connection."""

_GRACE = 1
"""Seconds for answers under way once everything else has stopped."""


class Server(uvicorn.Server):
    """Serves until `should_exit` is set.

    uvicorn would catch SIGTERM itself, stop accepting before the polls are drained, and raise the
    signal again afterwards.
    """

    def __init__(self, app: ASGIApp) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_GRACE,
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(address: str) -> socket.socket:
    """A listening socket for `host:port` or `:port` (all interfaces); OSError or ValueError if none."""
    host, colon, port = address.rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{port!r} is not a port, as in localhost:10310 or :10310")
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", int(port)), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, int(port)), family=family, backlog=1024)
