"""Ready faults, by name: what a server, or the network before it, does wrong.

A fault is a function of the `Wire`; those that send nothing more leave a closed connection.
"""

import gzip
import json
import math
import re
from collections.abc import Callable, Mapping
from email.utils import formatdate
from functools import cache
from typing import Any

from exporter.simulator.api import JSON, Response, json_response
from exporter.simulator.wire import Wire

Fault = Callable[[Wire], None]
Json = dict[str, Any]

MIB = 1 << 20
HTML = (("Content-Type", "text/html"),)
GZIP = ("Content-Encoding", "gzip")
LIMITED = {"error": "rate limit exceeded"}

HOSTILE = 'a "quoted" \\ text\nof \uf8ff and ' + "x" * 10_000
"""Becomes label values; the private character is sent as a byte that is no UTF-8."""

UNKNOWN = "NEVER_HEARD_OF"
MANY = 100_000


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


def slow(seconds: float, pieces: int = 4) -> Fault:
    """The true response in some pieces, the last of them after so many seconds."""

    def act(wire: Wire) -> None:
        content = wire.response.body
        size = len(content) // pieces + 1
        wire.promise(wire.response, len(content))
        for start in range(0, len(content), size):
            if wire.hold(seconds / pieces):
                return
            wire.send(content[start : start + size])

    return act


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


def numbers(value: float | None) -> Fault:
    """Every number is this one. NaN is written as Python does, and JSON forbids."""

    def act(wire: Wire) -> None:
        answer = json.loads(wire.response.body, parse_int=lambda _: value, parse_float=lambda _: value)
        wire.reply(json_response(wire.response.status, answer))

    return act


def unknown_enum(wire: Wire) -> None:
    """Every value of an enumeration is one that nobody documented."""
    spoilt = re.sub(rb'"[A-Z][A-Z_]+"', json.dumps(UNKNOWN).encode(), wire.response.body)
    wire.reply(wire.response._replace(body=spoilt))


def edited(change: Callable[[Json], object]) -> Fault:
    """The true answer with something done to it; a refusal stays as it is."""

    def act(wire: Wire) -> None:
        answer = json.loads(wire.response.body)
        if wire.response.status == 200:
            change(answer)
        text = json.dumps(answer, separators=(",", ":"))
        wire.reply(wire.response._replace(body=text.encode().replace(rb"\uf8ff", b"\xff")))

    return act


def double(answer: Json) -> None:
    """One metric comes twice, a value of one node, or the first thing listed."""
    if "metric_descriptors" in answer:
        answer["metric_descriptors"] += answer["metric_descriptors"][-1:]
        for step in answer["metric_values"]:
            step["values"] += step["values"][-1:]
    elif "metrics" in answer:
        nodes = answer["metrics"]["per_node_metrics"]
        nodes += [{"node_id": node["node_id"], "cpu_usage": node["cpu_usage"]} for node in nodes[:1]]
    else:
        (listed,) = answer.values()
        listed += listed[:1]


def multiply(answer: Json) -> None:
    """One metric has 100,000 label sets, the leader as many GPUs, or what is listed first as many labels."""
    names = [f"n{number}" for number in range(MANY)]
    if "metric_descriptors" in answer:
        for descriptor in answer["metric_descriptors"][-1:]:
            descriptor["label_sets"] = [{"n": name} for name in names]
        for step in answer["metric_values"]:
            step["values"][-1:] = [[0.5] * MANY]
    elif "metrics" in answer:
        answer["metrics"]["gpu_utilization"] = dict.fromkeys(names, answer["metrics"]["cpu_usage"][-1:])
    else:
        (listed,) = answer.values()
        for each in listed[:1]:
            each["labels"] = dict.fromkeys(names, "x")


def poison(answer: Json) -> None:
    """Label values, and name and labels of what is listed first, are `HOSTILE`."""
    if "metric_descriptors" in answer:
        for descriptor in answer["metric_descriptors"]:
            for label_set in descriptor["label_sets"]:
                label_set |= {name: HOSTILE + value for name, value in label_set.items()}
    elif "metrics" in answer:
        for node in answer["metrics"]["per_node_metrics"][:1]:
            node["node_id"] = HOSTILE
    else:
        (listed,) = answer.values()
        for each in listed[:1]:
            each |= {"name": HOSTILE, "labels": {HOSTILE: HOSTILE}}


@cache
def _bomb() -> bytes:
    return gzip.compress(b" " * (64 * MIB), 9)


def gzip_bomb(wire: Wire) -> None:
    """64 MiB of spaces in 64 KiB."""
    wire.reply(Response(200, _bomb(), (*JSON, GZIP)))


def dense(wire: Wire) -> None:
    """8 MB of JSON that would be 200 MB of Python."""
    wire.reply(Response(200, b"[%s{}]" % (b"{}," * 2_700_000), JSON))


def huge(mib: int, *, announced: bool) -> Fault:
    """An endless-looking body, with or without a Content-Length that says so."""

    def act(wire: Wire) -> None:
        wire.promise(Response(200, b""), mib * MIB if announced else None)
        spaces = b" " * MIB
        chunk = spaces if announced else b"100000\r\n" + spaces + b"\r\n"
        for _ in range(mib):
            wire.send(chunk)

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
    "502": status(502, {"error": "bad gateway"}),
    "503": body(b"upstream connect error", 503, (("Content-Type", "text/plain"),)),
    "504": body(b"upstream request timeout", 504, (("Content-Type", "text/plain"),)),
    "redirect 301": body(b"", 301, (("Location", "/elsewhere"),)),
    "stall": stall,
    "stall mid-body": stall_mid_body,
    "slow": slow(0.2),
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
    "nan literal": numbers(math.nan),
    "null numbers": numbers(None),
    "unknown enum": unknown_enum,
    "duplicate series": edited(double),
    "many label sets": edited(multiply),
    "hostile labels": edited(poison),
    "invalid utf-8": body(b'{"models": "\xff\xfe"}'),
    "deep nesting": body(b"[" * 100_000 + b"]" * 100_000),
    "gzip bomb": gzip_bomb,
    "dense json": dense,
    "not gzip": body(b"{}", 200, (*JSON, GZIP)),
    "huge body": huge(40, announced=True),
    "huge chunked body": huge(40, announced=False),
}
