"""One exchange on its socket: the place where answers, and faults, become bytes."""

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Event

from exporter.simulator.api import Request, Response


@dataclass
class Wire:
    """What may be done to the client of one request.

    `response` is the true answer to `request`, `now` the time in seconds, `closing` is set when the
    server closes. The connection is closed afterwards, unless `reply` sent a whole response.
    """

    request: Request
    connection: socket.socket
    response: Response
    now: float
    closing: Event
    count: Callable[[int], None]
    keep_alive: bool = field(default=False, init=False)
    _counted: bool = field(default=False, init=False)

    def begin(self, status: int) -> None:
        """Count the exchange: once, and before the client sees any of it; status 0 is none at all."""
        if not self._counted:
            self._counted = True
            self.count(status)

    def reply(self, response: Response) -> None:
        self.keep_alive = True
        self.begin(response.status)
        self.connection.sendall(_head(response, len(response.body)) + response.body)

    def promise(self, response: Response, length: int | None) -> None:
        """Only the head of a response, whose body is declared `length` bytes long; None: chunked."""
        self.begin(response.status)
        self.connection.sendall(_head(response, length))

    def send(self, data: bytes) -> None:
        self.begin(0)
        self.connection.sendall(data)

    def hold(self, seconds: float | None = None) -> bool:
        """Do nothing for a while, or for ever; True if the server closes meanwhile."""
        self.begin(0)
        return self.closing.wait(seconds)

    def reset(self) -> None:
        """Let the connection end with an RST instead of a FIN."""
        self.begin(0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _head(response: Response, length: int | None) -> bytes:
    size = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in (*response.headers, size)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
