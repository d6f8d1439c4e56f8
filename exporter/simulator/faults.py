"""Ready faults, by name: what a server, or the network before it, does wrong.

A fault is a function of the `Wire`; those that send nothing more leave a closed connection.
"""

import gzip
import re
from collections.abc import Callable, Mapping
from email.utils import formatdate

from exporter.simulator.api import JSON, Response, json_response
from exporter.simulator.wire import Wire

Fault = Callable[[Wire], None]

MIB = 1 << 20
HTML = (("Content-Type", "text/html"),)
GZIP = ("Content-Encoding", "gzip")
LIMITED = {"error": "rate limit exceeded"}


def status(code: int, body: object, *headers: tuple[str, str]) -> Fault:
    return lambda wire: wire.reply(json_response(code, body, *headers))


def body(content: bytes, code: int = 200, headers: tuple[tuple[str, str], ...] = JSON) -> Fault:
    return lambda wire: wire.reply(Response(code, content, headers))


def retry_at_date(seconds: int) -> Fault:
    """429 whose Retry-After is an HTTP date, `seconds` from now."""

    def act(wire: Wire) -> None:
        date = formatdate(wire.now + seconds, usegmt=True)
        wire.reply(json_response(429, LIMITED, ("Retry-After", date)))

    return act


def stall(wire: Wire) -> None:
    wire.hold()


def stall_mid_body(wire: Wire) -> None:
    cut_off(wire)
    wire.hold()


def dribble(seconds: float) -> Fault:
    """The true response, one byte every so many seconds."""

    def act(wire: Wire) -> None:
        wire.promise(wire.response, len(wire.response.body))
        for byte in wire.response.body:
            wire.send(bytes((byte,)))
            if wire.hold(seconds):
                return

    return act


def cut_off(wire: Wire) -> None:
    """The connection ends in the middle of the body."""
    wire.promise(wire.response, len(wire.response.body))
    wire.send(_half(wire.response.body))


def truncated_json(wire: Wire) -> None:
    """A whole response whose JSON is half."""
    wire.reply(wire.response._replace(body=_half(wire.response.body)))


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def nan_literal(wire: Wire) -> None:
    """The first value is written NaN, as Python does and JSON forbids."""
    spoilt = re.sub(rb'("values?":\[*)[-\d.e]+', rb"\1NaN", wire.response.body, count=1)
    wire.reply(wire.response._replace(body=spoilt))


def gzip_bomb(wire: Wire) -> None:
    """64 MiB of spaces in 64 KiB."""
    zipped = gzip.compress(b" " * (64 * MIB), 9)
    wire.reply(Response(200, zipped, (*JSON, GZIP)))


def huge(mib: int, *, announced: bool) -> Fault:
    """An endless-looking body, with or without a Content-Length that says so."""

    def act(wire: Wire) -> None:
        wire.promise(Response(200, b""), mib * MIB if announced else None)
        for _ in range(mib):
            wire.send(b" " * MIB if announced else b"100000\r\n" + b" " * MIB + b"\r\n")

    return act


FAULTS: Mapping[str, Fault] = {
    "401": status(401, {"error": "invalid API key"}),
    "403": status(403, {"code": "PERMISSION_DENIED", "message": "not allowed"}),
    "404": status(404, {"error": "deployment not found"}),
    "422": status(422, {"error": "unknown metrics: x"}),
    "429": status(429, LIMITED),
    "429 body": status(429, {**LIMITED, "retry_after": 37}),
    "429 header": status(429, LIMITED, ("Retry-After", "37")),
    "429 date": retry_at_date(37),
    "500": status(500, {"error": "internal error"}),
    "503": body(b"upstream connect error", 503, (("Content-Type", "text/plain"),)),
    "redirect 301": body(b"", 301, (("Location", "/elsewhere"),)),
    "stall": stall,
    "stall mid-body": stall_mid_body,
    "dribble": dribble(0.05),
    "reset": Wire.reset,
    "close": lambda wire: wire.begin(0),
    "cut off": cut_off,
    "not http": lambda wire: wire.send(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "html 200": body(b"<!doctype html><title>Sign in</title>", 200, HTML),
    "html 502": body(b"<html><h1>502 Bad Gateway</h1></html>", 502, HTML),
    "empty body": body(b""),
    "truncated json": truncated_json,
    "json null": body(b"null"),
    "json list": body(b"[]"),
    "json empty object": body(b"{}"),
    "nan literal": nan_literal,
    "invalid utf-8": body(b'{"models": "\xff\xfe"}'),
    "deep nesting": body(b"[" * 100_000 + b"]" * 100_000),
    "gzip bomb": gzip_bomb,
    "not gzip": body(b"{}", 200, (*JSON, GZIP)),
    "huge body": huge(40, announced=True),
    "huge chunked body": huge(40, announced=False),
}
