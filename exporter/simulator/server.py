"""The simulator as a server: HTTP/1.1 over the standard library, whose raw socket the faults need."""

import itertools
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, NamedTuple, Self

from exporter.simulator.api import Api, Request
from exporter.simulator.faults import FAULTS, Fault
from exporter.simulator.wire import Wire
from exporter.simulator.world import World


class _Rule(NamedTuple):
    applies: Callable[[Request], object]
    fault: Fault
    turns: Iterator[int]


class Simulator:
    """A Baseten API on a socket, from entering its context until leaving it.

    `latency` is spent before every answer, `limit` is the number of requests per second and endpoint
    (None: any number), `clock` gives the world's time in seconds since the epoch.
    """

    def __init__(  # noqa: PLR0913  # every one is optional, and named by the caller
        self,
        world: World,
        *,
        key: str = "simulator-key",
        latency: float = 0.0,
        limit: int | None = 100,
        clock: Callable[[], float] = time.time,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: SSLContext | None = None,
    ) -> None:
        self._api = Api(world, key, limit)
        self._latency = latency
        self._clock = clock
        self._address = (host, port)
        self._tls = ssl_context
        self._rules: tuple[_Rule, ...] = ()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._lock = Lock()
        self._closing = Event()

    def __enter__(self) -> Self:
        self._server = _Server(self._address, self.exchange, self._tls)
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.close()

    @property
    def world(self) -> World:
        return self._api.world

    @world.setter
    def world(self, world: World) -> None:
        self._api.world = world

    @property
    def key(self) -> str:
        """The key that is accepted; a new one is rotated to at once."""
        return self._api.key

    @key.setter
    def key(self, key: str) -> None:
        self._api.key = key

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{'https' if self._tls else 'http'}://{host!s}:{port}"

    @property
    def requests(self) -> Counter[tuple[str, int]]:
        """Requests so far by endpoint and status, as a copy; status 0 where a fault sent none."""
        with self._lock:
            return Counter(self._requests)

    def fail(
        self, where: str | Callable[[Request], object], fault: str | Fault, *, times: int | None = None
    ) -> None:
        """Answer requests with a fault, the first `times` of them or all.

        `where` is searched for in path and query, or decides itself. The latest matching rule wins.
        """
        applies = _searching(where) if isinstance(where, str) else where
        turns = itertools.count() if times is None else iter(range(times))
        rule = _Rule(applies, FAULTS[fault] if isinstance(fault, str) else fault, turns)
        self._rules = (rule, *self._rules)

    def heal(self) -> None:
        self._rules = ()

    def exchange(self, request: Request, connection: socket.socket) -> bool:
        """Answer one request on its connection; True if the connection can be used again."""
        now = self._clock()
        endpoint, response = self._api.answer(request, now)

        def count(status: int) -> None:
            with self._lock:
                self._requests[endpoint, status] += 1

        wire = Wire(request, connection, response, now, self._closing, count)
        if self._latency:
            self._closing.wait(self._latency)
        self._fault(request)(wire)
        wire.begin(0)
        return wire.keep_alive

    def _fault(self, request: Request) -> Fault:
        for rule in self._rules:
            if rule.applies(request) and next(rule.turns, None) is not None:
                return rule.fault
        return _honest


def _honest(wire: Wire) -> None:
    wire.reply(wire.response)


def _searching(pattern: str) -> Callable[[Request], object]:
    compiled = re.compile(pattern)
    return lambda request: compiled.search(request.target)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_Server"

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body)
        self.close_connection |= not self.server.exchange(request, self.connection)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond  # noqa: N815  # the base class looks for these

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
        """Stay quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(
        self,
        address: tuple[str, int],
        exchange: Callable[[Request, socket.socket], bool],
        tls: SSLContext | None,
    ) -> None:
        super().__init__(address, _Handler)
        self.exchange = exchange
        self._open: set[socket.socket] = set()
        self._open_lock = Lock()
        if tls:
            # Handshakes happen in the connection's own thread: a slow client must not hold up the others.
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as the base class
        with self._open_lock:
            self._open.add(request)
        super().finish_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401  # as the base class
        """Close at once: the FIN that the base class sends first would spoil a reset."""
        with self._open_lock:
            self._open.discard(request)
        request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as the base class
        """Clients may hang up whenever they like; anything else is a mistake to be seen."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop, and wake every thread that waits for its client."""
        self.shutdown()
        self.server_close()
        with self._open_lock:
            for connection in self._open:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
