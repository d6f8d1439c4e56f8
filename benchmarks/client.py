"""Scrapers that cost next to nothing themselves: raw sockets, bodies read and thrown away.

On its own it scrapes without pause: `python -m benchmarks.client PORT --scrapers=4 --seconds=10`.
"""

import argparse
import http.client
import json
import re
import select
import selectors
import socket
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

HOST = "127.0.0.1"
_BUFFER = 1024 * 1024
_LAST_CHUNK = b"0\r\n\r\n"
_TIMEOUT = 300.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked\r\n", re.IGNORECASE)


class Response(NamedTuple):
    status: int
    body: bytes


def get(port: int, path: str, *, method: str = "GET", gzip: bool = False) -> Response:
    """One request, its body as it was sent."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_TIMEOUT)
    try:
        connection.request(method, path, headers={"Accept-Encoding": "gzip" if gzip else "identity"})
        response = connection.getresponse()
        return Response(response.status, response.read())
    finally:
        connection.close()


class Scrapers:
    """So many scrapers of one server, each on a connection that it keeps where the server does."""

    def __init__(self, port: int, count: int, *, gzip: bool) -> None:
        self._scrapers = [_Scraper(port, gzip=gzip) for _ in range(count)]
        self._buffer = bytearray(_BUFFER)

    def scrape(self) -> list[float]:
        """All ask at once; return the seconds from there until each had its last byte."""
        started = perf_counter()
        latencies = []
        with selectors.DefaultSelector() as selector:
            for scraper in self._scrapers:
                selector.register(scraper.connected(), selectors.EVENT_WRITE, scraper)
            while selector.get_map():
                ready = selector.select(_TIMEOUT)
                if not ready:
                    raise TimeoutError("no answer to a scrape")
                for key, events in ready:
                    if events & selectors.EVENT_WRITE:
                        key.data.ask()
                        selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
                    elif key.data.read(self._buffer):
                        latencies.append(perf_counter() - started)
                        selector.unregister(key.fileobj)
                        key.data.rest()
        return latencies

    def close(self) -> None:
        for scraper in self._scrapers:
            scraper.close()


class _Scraper:
    """One connection and how far its answer has come."""

    def __init__(self, port: int, *, gzip: bool) -> None:
        self._port = port
        encoding = "gzip" if gzip else "identity"
        self._request = (
            f"GET /metrics HTTP/1.1\r\nHost: {HOST}:{port}\r\nAccept-Encoding: {encoding}\r\n\r\n".encode()
        )
        self._socket: socket.socket | None = None

    def connected(self) -> socket.socket:
        """A socket that can be written to once it is connected."""
        if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
            self.close()  # the server has hung up since
        if self._socket is None:
            self._socket = socket.socket()
            self._socket.setblocking(False)  # noqa: FBT003 - as the standard library has it
            self._socket.connect_ex((HOST, self._port))
        return self._socket

    def ask(self) -> None:
        assert self._socket is not None
        self._head = b""
        self._left: int | None = None
        self._tail = b""
        self._closed = False
        self._socket.sendall(self._request)

    def read(self, buffer: bytearray) -> bool:
        """Take what has come; return whether that was the end."""
        assert self._socket is not None
        count = received = self._socket.recv_into(buffer)
        if received == 0:
            self._closed = True
            if self._left is not None or not self._head:
                raise ConnectionError("the answer to a scrape was cut short")
            return True
        if b"\r\n\r\n" not in self._head:
            count = self._begin(bytes(buffer[:count]))
        if self._left is not None:
            self._left -= count
            return self._left == 0
        self._tail = (self._tail + buffer[max(0, received - 5) : received])[-5:]
        return self._tail == _LAST_CHUNK and _CHUNKED.search(self._head) is not None

    def _begin(self, data: bytes) -> int:
        """Take the head; return how much of `data` belongs to the body."""
        before = len(self._head)
        self._head += data
        end = self._head.find(b"\r\n\r\n") + 4
        if end < 4:
            return 0
        body = before + len(data) - end
        self._head = self._head[:end]
        if b" 200 " not in self._head[:15]:
            raise ConnectionError(self._head.decode(errors="replace"))
        length = _LENGTH.search(self._head)
        self._left = int(length[1]) if length else None
        return body

    def rest(self) -> None:
        """Hang up where the server will: an HTTP/1.0 one closes after every answer."""
        if self._closed or self._head.startswith(b"HTTP/1.0"):
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--scrapers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args(arguments)
    scrapers = Scrapers(options.port, options.scrapers, gzip=True)
    end = perf_counter() + options.seconds
    latencies: list[float] = []
    while perf_counter() < end:
        latencies += scrapers.scrape()
    print(json.dumps(latencies))


if __name__ == "__main__":
    main()
