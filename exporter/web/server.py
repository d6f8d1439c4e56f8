"""uvicorn with its signals left to the composition root, TLS that may change, and limits on clients."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from exporter.web.config import WebConfig
from exporter.web.live import LiveWebConfig
from exporter.web.tls import CurrentContext

log = logging.getLogger(__name__)

_GRACE = 1
"""Seconds for answers under way once everything else has stopped."""

_LONGEST_HEAD = 16 * 1024
_SLICE = 1024


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client is waited for, in seconds."""

    request: float = 10
    """For the TLS handshake, and then for each request from its first byte to its last."""

    answer: float = 60
    """For it to take what was sent to it."""

    idle: int = 75
    """Between two requests; longer than a usual scrape interval, so that scrapers keep their connection."""


class Server(uvicorn.Server):
    """Serves until `should_exit` is set.

    uvicorn would catch SIGTERM itself, stop accepting before the polls are drained, and raise the
    signal again afterwards.
    """

    def __init__(
        self, app: ASGIApp, web: LiveWebConfig | None = None, patience: Patience = Patience()
    ) -> None:
        config = uvicorn.Config(
            app,
            http=H11Protocol,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=patience.idle,
            timeout_graceful_shutdown=_GRACE,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            callback_notify=self._follow if web else None,
            timeout_notify=0,  # whenever it may, which is once a second
        )
        super().__init__(config)
        self._web = web
        self._patience = patience

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with what that lacks: a limit on the handshake, and a context that may change."""
        loop = asyncio.get_running_loop()
        plain = WebConfig()
        web: Callable[[], WebConfig] = self._web or (lambda: plain)
        context = CurrentContext.of(lambda: web().context) if web().context else None
        self.servers = [
            await loop.create_server(
                lambda: _Connection(self, web, self._patience),
                sock=sock,
                ssl=context,
                backlog=self.config.backlog,
                ssl_handshake_timeout=self._patience.request if context else None,
                ssl_shutdown_timeout=self._patience.answer if context else None,
            )
            for sock in sockets or []
        ]
        self.started = True

    async def _follow(self) -> None:
        """Look at the files; whoever is connected by the old rules has to connect again by the new."""
        assert self._web is not None
        try:
            changed = await asyncio.to_thread(self._web.refresh)
        except Exception:
            log.exception("bug: web config not reloaded")  # and serving goes on
            return
        if changed:
            for connection in list(self.server_state.connections):
                if isinstance(connection, _Connection) and not connection.transport.is_closing():
                    connection.renew()


class _Alarm:
    """Calls back once, unless it is stopped in time."""

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self._seconds = seconds
        self._callback = callback
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start it; one that runs goes on as it was."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._callback)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Connection(H11Protocol):
    """Uvicorn's, which would wait for ever for the rest of a request, and for a reader that has stopped."""

    def __init__(self, server: Server, web: Callable[[], WebConfig], patience: Patience) -> None:
        super().__init__(server.config, server.server_state, {})
        self._web = web
        self._asked = False  # a connection that has never asked is not kept for a next request
        self._outdated = False
        self._request = _Alarm(patience.request, self._abort)
        self._answer = _Alarm(patience.answer, self._abort)
        self._idle = _Alarm(patience.idle, self._abort)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        session = transport.get_extra_info("ssl_object")
        if session is not None and not self._web().admits(session.getpeercert()):
            log.info("client refused: its certificate has none of client_allowed_sans")
            self._abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        for alarm in (self._request, self._answer, self._idle):
            alarm.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # h11 looks at the length of a head only while it is incomplete, so it must not come in one piece.
        for start in range(0, len(data), _SLICE):
            if not self.transport.is_closing():
                super().data_received(data[start : start + _SLICE])
        self._watch()

    def on_response_complete(self) -> None:
        self._asked = True
        if self.conn.their_state is not h11.SEND_BODY:
            self._request.stop()  # whatever has come of the next one has a time of its own
        super().on_response_complete()
        if self._outdated and not self.transport.is_closing():
            self.shutdown()
        self._watch()

    def _watch(self) -> None:
        """Have that clock run which belongs to what the client does now."""
        awaited = self._awaited()
        for alarm in (self._request, self._idle):
            if alarm is not awaited:
                alarm.stop()
        if awaited is not None:
            awaited.start()

    def _awaited(self) -> _Alarm | None:
        """The limit on what is awaited from the client; None while it awaits its answer."""
        if self.transport.is_closing():  # once it has taken the last of what was sent
            return self._answer
        state, begun = self.conn.their_state, self.conn.trailing_data[0]
        if state is h11.IDLE and self._asked and not begun:
            return self._idle
        return self._request if state in (h11.IDLE, h11.SEND_BODY) else None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._answer.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._answer.stop()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, and tell a head that is too long apart."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # it has an answer, or a part of one
            self._abort()
            return
        if self.cycle is not None:
            self.cycle.disconnected = True  # what still works on an answer must not send it
        too_long = len(self.conn.trailing_data[0]) > _LONGEST_HEAD
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if too_long else HTTPStatus.BAD_REQUEST
        body = f"{status.phrase}\n" if too_long else f"{msg}\n"
        headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=status.phrase),
            h11.Data(data=body.encode()),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def renew(self) -> None:
        """Have the client connect anew: one that idles at once, one that has just come after its answer."""
        if self._asked:
            self.shutdown()
        self._outdated = True

    def shutdown(self) -> None:
        taken = not self.transport.get_write_buffer_size()
        super().shutdown()
        if taken and self.transport.is_closing():  # TLS would wait for a client that may not listen
            self._abort()

    def _abort(self) -> None:
        self.transport.abort()


def listen(address: str) -> socket.socket:
    """A listening socket for `host:port` or `:port` (all interfaces); OSError or ValueError if none."""
    host, colon, port = address.rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{port!r} is not a port, as in localhost:10310 or :10310")
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    listener = socket.create_server((host, int(port)), family=family, dualstack_ipv6=both, backlog=1024)
    # asyncio leaves this out for sockets it did not make, and the end of an answer would wait for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
