"""The client on real sockets: what it sends, what it makes of each answer, and that it ends in time."""

import gc
import gzip
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import httpcore
import pytest
import trustme

from exporter import __version__
from exporter.apikey import ApiKey
from exporter.baseten.answers import MAX_VALUES, ModelAnswer
from exporter.baseten.circuit import THRESHOLD, Outage
from exporter.baseten.client import Client, Connection, Spare
from exporter.baseten.deadline import Deadline
from exporter.baseten.errors import ApiError, CircuitOpen, EndpointPaused, Stopping
from exporter.baseten.replies import MAX_BODY
from exporter.simulator import FAULTS, Fault, Request, Simulator, World
from exporter.simulator.api import JSON
from exporter.simulator.faults import GZIP, LIMITED, body, dribble, status
from tests.helpers_baseten import Told

KEY = "s3cret-k3y"
CHAT = ("q7chat32", "w5prod01")
ANSWER = b'{"metric_descriptors": [], "metric_values": []}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b" " * 1000

SHORT = 0.3
"""A timeout to run into; the tests that do must end within a second."""

ClientFor = Callable[..., Client]
Speak = Callable[[socket.socket], None]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(World.demo(), key=KEY, limit=None) as running:
        yield running


@pytest.fixture
def client_for() -> Iterator[ClientFor]:
    """Makes clients that never wait, unless told otherwise."""
    with ExitStack() as stack:

        def make(
            url: str,
            *,
            key: ApiKey | None = None,
            told: Told | None = None,
            pause: Callable[[float], bool] = lambda seconds: False,
            **connection: Any,
        ) -> Client:
            settings = {"requests_per_second": 1e6, "timeout": 5, **connection}
            key = key or ApiKey.from_env("KEY", KEY)
            client = Client(Connection("w", url, key, **settings), told or Told(), pause)
            stack.callback(client.close)
            return client

        yield make


A = TypeVar("A")


def itself(answer: A) -> A:
    return answer


def ask(client: Client, params: tuple[tuple[str, str], ...] = ()) -> ModelAnswer:
    return client.model_metrics(*CHAT, params, itself)


def failure(client: Client) -> ApiError:
    """The error of a request, which never shows the key."""
    with pytest.raises(ApiError) as caught:
        ask(client)
    assert KEY not in f"{caught.value} {caught.value!r}"
    return caught.value


def failure_in_time(client: Client) -> ApiError:
    started = time.monotonic()
    error = failure(client)
    assert time.monotonic() - started < 1
    return error


def seen_by(simulator: Simulator) -> list[Request]:
    """A list that fills with every request from now on."""
    seen: list[Request] = []
    simulator.fail(seen.append, "500")  # append returns None: the fault never applies
    return seen


@contextmanager
def server(speak: Speak) -> Iterator[str]:
    """The address of a server that does what `speak` says to one connection after the other."""

    def serve() -> None:
        with suppress(OSError):  # accept fails once the listener is shut down
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    speak(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def head(connection: socket.socket) -> bytes:
    """A request up to its blank line; empty when the client hung up."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        chunk = connection.recv(65536)
        if not chunk:
            return b""
        received += chunk
    return received


def drip(connection: socket.socket, data: bytes) -> None:
    """Send a byte every 50 ms, until the client hangs up."""
    connection.settimeout(0.05)
    for byte in data:
        connection.sendall(bytes((byte,)))
        with suppress(TimeoutError):
            if not connection.recv(1):
                return


def dripping(data: bytes) -> Speak:
    def speak(connection: socket.socket) -> None:
        head(connection)
        drip(connection, data)

    return speak


def silent(connection: socket.socket) -> None:
    """Read what comes, and say nothing until the client hangs up."""
    while connection.recv(65536):
        pass


# What is sent


def test_a_request_carries_the_key_and_says_who_asks(simulator: Simulator, client_for: ClientFor) -> None:
    seen = seen_by(simulator)
    ask(client_for(simulator.url))
    headers = seen[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["user-agent"] == f"baseten-exporter/{__version__}"
    assert headers["accept"] == "application/json"
    assert headers["accept-encoding"] == "gzip"


def test_metrics_are_asked_for_one_by_one(simulator: Simulator, client_for: ClientFor) -> None:
    seen = seen_by(simulator)
    params = (
        ("mode", "SUMMARY"),
        ("start_epoch_millis", "1790000000000"),
        ("end_epoch_millis", "1790000300000"),
        ("metrics", "baseten_replicas_active"),
        ("metrics", "vllm:num_requests_running"),
    )
    answer = ask(client_for(simulator.url), params)
    url = urlsplit(seen[0].target)
    assert url.path == "/v1/models/q7chat32/deployments/w5prod01/metrics"
    assert tuple(parse_qsl(url.query)) == params
    assert [descriptor.name for descriptor in answer.metric_descriptors] == [params[3][1], params[4][1]]


def test_a_trainer_is_asked_by_post(simulator: Simulator, client_for: ClientFor) -> None:
    seen = seen_by(simulator)
    answer = client_for(simulator.url).loops_metrics("tr2x4sft", {"step_seconds": 30}, itself)
    assert (seen[0].method, seen[0].target) == ("POST", "/v1/loops/deployments/tr2x4sft/metrics")
    assert seen[0].body == b'{"step_seconds":30}'
    assert answer.metrics.cpu_usage


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        ("plain-id_1~", "plain-id_1~"),
        ("a/b", "a%2Fb"),
        ("%2F", "%252F"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("v1.2", "v1%2E2"),
        ("ü", "%C3%BC"),
        ("a b?c#d&e", "a%20b%3Fc%23d%26e"),
        ("\r\nX: y", "%0D%0AX%3A%20y"),
    ],
)
def test_an_odd_id_stays_one_part_of_the_path(
    simulator: Simulator, client_for: ClientFor, part: str, sent: str
) -> None:
    simulator.fail("/models/", body(ANSWER))
    simulator.fail("/loops/", body(b'{"metrics": {}}'))
    seen = seen_by(simulator)
    client = client_for(simulator.url)
    client.model_metrics(part, part, [("mode", "CURRENT")], itself)
    assert seen[0].target == f"/v1/models/{sent}/deployments/{sent}/metrics?mode=CURRENT"
    client.loops_metrics(part, {}, itself)
    assert seen[1].target == f"/v1/loops/deployments/{sent}/metrics"


def test_the_api_may_live_below_a_path(simulator: Simulator, client_for: ClientFor) -> None:
    simulator.fail("^/gateway/v1/", body(ANSWER))
    assert ask(client_for(f"{simulator.url}/gateway")) == ModelAnswer([], [])


def test_a_connection_is_used_again(client_for: ClientFor) -> None:
    connections = []

    def speak(connection: socket.socket) -> None:
        connections.append(1)
        while head(connection):
            connection.sendall(OK)

    with server(speak) as address:
        client = client_for(f"http://{address}")
        for _ in range(3):
            ask(client)
        client.close()
    assert connections == [1]


@pytest.mark.parametrize("broken", [False, True], ids=["all well", "circuit open"])
def test_the_connections_close_when_the_last_poll_lets_go(simulator: Simulator, *, broken: bool) -> None:
    """At once, without the garbage collector."""
    client = Client(
        Connection("w", simulator.url, ApiKey.from_env("KEY", KEY), 1e6, 5), Told(), lambda seconds: False
    )
    if broken:
        simulator.fail("", "401")
    for _ in range(THRESHOLD):
        with suppress(ApiError):
            ask(client)
    assert client.is_cut_off() == broken
    with client._connections.one() as http:
        assert len(http._pool.connections) == 1
    gc.disable()
    del client
    gc.enable()
    assert http._pool.connections == []


# The key


def test_a_rotated_key_file_is_seen_at_the_next_request(
    simulator: Simulator, client_for: ClientFor, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_text("outdated")
    client = client_for(simulator.url, key=ApiKey.from_file(path))
    assert failure(client).reason == "auth"
    path.write_text(f"{KEY}\n")
    assert ask(client).metric_descriptors


def test_after_a_401_even_a_file_that_looks_unchanged_is_read_again(
    simulator: Simulator, client_for: ClientFor, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_text("x" * len(KEY))
    before = path.stat()
    client = client_for(simulator.url, key=ApiKey.from_file(path))
    path.write_text(KEY)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ask(client).metric_descriptors
    assert simulator.requests == {("model_metrics", 401): 1, ("model_metrics", 200): 1}


# Statuses


@pytest.mark.parametrize(
    ("fault", "code", "reason", "message"),
    [
        pytest.param("redirect 301", 301, "invalid_response", "HTTP 301: redirects", id="301"),
        pytest.param(body(ANSWER, 201), 201, "invalid_response", "HTTP 201", id="201"),
        pytest.param(body(b"", 204), 204, "invalid_response", "HTTP 204", id="204"),
        pytest.param(status(400, {"error": "bad"}), 400, "client_error", "HTTP 400: bad", id="400"),
        pytest.param("401", 401, "auth", "HTTP 401: invalid API key", id="401"),
        pytest.param("403", 403, "forbidden", "HTTP 403: not allowed", id="403"),
        pytest.param(status(403, {"code": "NO"}), 403, "forbidden", "HTTP 403: NO", id="403, only a code"),
        pytest.param("404", 404, "not_found", "HTTP 404: deployment not found", id="404"),
        pytest.param(status(409, {}), 409, "client_error", "HTTP 409", id="409"),
        pytest.param("422", 422, "client_error", "HTTP 422: unknown metrics: x", id="422"),
        pytest.param("429", 429, "rate_limited", "HTTP 429: rate limit exceeded", id="429"),
        pytest.param("500", 500, "server_error", "HTTP 500: internal error", id="500"),
        pytest.param("html 502", 502, "server_error", "HTTP 502", id="502 in HTML"),
        pytest.param("503", 503, "server_error", "HTTP 503", id="503 in plain text"),
        pytest.param(body(b"[" * 100_000, 500), 500, "server_error", "HTTP 500", id="500, nested deeply"),
        pytest.param(
            status(500, {"error": "x" * 1000}), 500, "server_error", "HTTP 500: " + "x" * 200,
            id="500, long text",
        ),
        pytest.param(
            status(400, {"error": {"detail": ["no"]}}), 400, "client_error", "HTTP 400: {'detail': ['no']}",
            id="400 with an object",
        ),
    ],
)  # fmt: skip
def test_every_status_but_200_has_its_reason(
    simulator: Simulator, client_for: ClientFor, fault: str | Fault, code: int, reason: str, message: str
) -> None:
    simulator.fail("", fault)
    error = failure(client_for(simulator.url))
    assert (error.status, error.reason) == (code, reason)
    assert str(error).startswith(message)
    assert len(str(error)) <= 211
    assert error.retry_after is None


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        pytest.param("429", None, id="not said"),
        pytest.param("429 body", 37, id="in the body"),
        pytest.param("429 header", 37, id="in the header, as seconds"),
        pytest.param("429 date", 37, id="in the header, as a date"),
        pytest.param(status(429, LIMITED | {"retry_after": "37"}), 37, id="in quotes"),
        pytest.param(status(429, LIMITED | {"retry_after": 0.5}), 0.5, id="a fraction"),
        pytest.param(
            status(429, LIMITED | {"retry_after": 5}, ("Retry-After", "60")), 5, id="in both: the body"
        ),
        pytest.param(
            status(429, LIMITED | {"retry_after": "soon"}, ("Retry-After", "60")), 60, id="a word: the header"
        ),
        pytest.param(
            status(429, LIMITED | {"retry_after": None}, ("Retry-After", "60")), 60, id="null: the header"
        ),
        pytest.param(status(429, LIMITED | {"retry_after": [1]}), None, id="a list"),
        pytest.param(status(429, LIMITED | {"retry_after": 10**400}), None, id="too large a number"),
        pytest.param(status(429, LIMITED, ("Retry-After", "nan")), None, id="no number"),
        pytest.param(status(429, LIMITED, ("Retry-After", "later")), None, id="no date"),
        pytest.param(body(b"Too many requests", 429, (("Retry-After", "60"),)), 60, id="not JSON"),
        pytest.param(status(503, {"error": "busy", "retry_after": 9}), 9, id="503 may say it, too"),
    ],
)
def test_how_long_to_wait_is_said_in_many_ways(
    simulator: Simulator, client_for: ClientFor, fault: str | Fault, seconds: float | None
) -> None:
    simulator.fail("", fault)
    waits = failure(client_for(simulator.url)).retry_after
    assert waits == (None if seconds is None else pytest.approx(seconds, abs=2))


def test_after_a_429_the_endpoint_is_left_alone(simulator: Simulator, client_for: ClientFor) -> None:
    simulator.fail("", "429 body", times=1)
    client = client_for(simulator.url)
    failure(client)
    with pytest.raises(EndpointPaused) as caught:
        ask(client)
    assert 36 < caught.value.seconds <= 37
    assert caught.value.endpoint == "model_metrics"
    assert client.loops_metrics("tr2x4sft", {}, itself).metrics.cpu_usage
    assert simulator.requests == {("model_metrics", 429): 1, ("loops_metrics", 200): 1}


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(simulator: Simulator, client_for: ClientFor, code: int) -> None:
    with Simulator(World.demo(), key=KEY) as elsewhere:
        simulator.fail("", body(b"", code, (("Location", f"{elsewhere.url}/v1/models"),)))
        assert failure(client_for(simulator.url)).reason == "invalid_response"
        assert not elsewhere.requests


# Bodies


TOO_LARGE = ("too_large", "the answer is larger than 8 MiB")
TOO_MUCH = ("too_large", "the answer holds more than 500,000 values")
ZIPPED = gzip.compress(ANSWER)


def zipped(content: bytes) -> Fault:
    return body(content, 200, (*JSON, GZIP))


def full(values: int, item: bytes) -> bytes:
    """An answer of so many commas and brackets."""
    frame = b'{"metric_descriptors":[],"metric_values":[],"more":[%s]}'
    return frame % b",".join([item] * ((values - 6) // (1 + item.count(b"[") + item.count(b"{")) + 1))


def encoded(encoding: str, content: bytes = ANSWER) -> Fault:
    return body(content, 200, (*JSON, ("Content-Encoding", encoding)))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(body(ANSWER), id="plain"),
        pytest.param(encoded("identity"), id="identity"),
        pytest.param(body(ANSWER, 200, (("Content-Type", "text/html"),)), id="whatever type it says it is"),
        pytest.param(zipped(ZIPPED), id="gzip"),
        pytest.param(encoded("GZip", ZIPPED), id="GZip"),
        pytest.param(zipped(ZIPPED + b"junk"), id="junk behind the gzip data"),
        pytest.param(body(ANSWER.ljust(MAX_BODY)), id="the largest"),
        pytest.param(zipped(gzip.compress(ANSWER.ljust(MAX_BODY), 1)), id="the largest, unzipped"),
        pytest.param(body(full(MAX_VALUES, b"0")), id="the fullest"),
    ],
)
def test_an_answer_is_read(simulator: Simulator, client_for: ClientFor, fault: Fault) -> None:
    simulator.fail("", fault)
    assert ask(client_for(simulator.url)) == ModelAnswer([], [])


@pytest.mark.parametrize(
    ("fault", "reason", "message"),
    [
        pytest.param(body(ANSWER.ljust(MAX_BODY + 1)), *TOO_LARGE, id="one byte too large"),
        pytest.param(zipped(gzip.compress(ANSWER.ljust(MAX_BODY + 1), 1)), *TOO_LARGE, id="once unzipped"),
        pytest.param(FAULTS["gzip bomb"], *TOO_LARGE, id="gzip bomb"),
        pytest.param(FAULTS["huge body"], *TOO_LARGE, id="huge body"),
        pytest.param(FAULTS["huge chunked body"], *TOO_LARGE, id="huge chunked body"),
        pytest.param(zipped(ZIPPED + bytes(MAX_BODY)), *TOO_LARGE, id="junk without end behind gzip"),
        pytest.param(body(b"x" * (MAX_BODY + 1), 500), *TOO_LARGE, id="a refusal too large"),
        pytest.param(body(full(MAX_VALUES + 1, b"0")), *TOO_MUCH, id="one number too many"),
        pytest.param(body(full(MAX_VALUES + 2, b"[]")), *TOO_MUCH, id="too many lists"),
        pytest.param(body(full(MAX_VALUES + 2, b"{}")), *TOO_MUCH, id="too many objects"),
        pytest.param(FAULTS["dense json"], *TOO_MUCH, id="dense json"),
        pytest.param(zipped(ZIPPED[:-12]), "invalid_response", "cut short", id="gzip, cut short"),
        pytest.param(zipped(b""), "invalid_response", "cut short", id="gzip of nothing"),
        pytest.param(zipped(ZIPPED[:-8] + bytes(8)), "invalid_response", "broken", id="gzip, wrong checksum"),
        pytest.param(FAULTS["not gzip"], "invalid_response", "gzip data is broken", id="not gzip"),
        pytest.param(encoded("br"), "invalid_response", "content-encoding 'br', unasked", id="brotli"),
        pytest.param(encoded("gzip, gzip"), "invalid_response", "unasked", id="gzip twice"),
        pytest.param(FAULTS["html 200"], "invalid_response", "not JSON", id="html"),
        pytest.param(FAULTS["empty body"], "invalid_response", "not JSON", id="empty"),
        pytest.param(FAULTS["truncated json"], "invalid_response", "not JSON", id="truncated json"),
        pytest.param(FAULTS["json null"], "invalid_response", "got `null`", id="json null"),
        pytest.param(FAULTS["deep nesting"], "invalid_response", "not JSON", id="deep nesting"),
    ],
)  # fmt: skip
def test_a_body_that_is_no_answer(
    simulator: Simulator, client_for: ClientFor, fault: Fault, reason: str, message: str
) -> None:
    simulator.fail("", fault)
    error = failure(client_for(simulator.url))
    assert error.reason == reason
    assert message in str(error)


@pytest.mark.parametrize(("encoding", "content"), [("br", b"x"), ("gzip", b"junk")])
def test_of_a_refusal_that_cannot_be_read_the_status_counts(
    simulator: Simulator, client_for: ClientFor, encoding: str, content: bytes
) -> None:
    simulator.fail("", body(content, 429, (("Content-Encoding", encoding), ("Retry-After", "37"))))
    client = client_for(simulator.url)
    assert str(failure(client)) == "HTTP 429"
    assert 36 < client.paused("model_metrics") <= 37


def test_of_a_long_refusal_only_the_status_is_told(simulator: Simulator, client_for: ClientFor) -> None:
    simulator.fail("", body(b'{"error": "%s"}' % (b"x" * 2**16), 500))
    assert str(failure(client_for(simulator.url))) == "HTTP 500"


def test_answers_are_used_one_at_a_time(simulator: Simulator, client_for: ClientFor) -> None:
    at_work, most = [0], [0]

    def use(_: ModelAnswer) -> None:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        time.sleep(0.02)  # lets the others run, if nothing else keeps them from it
        at_work[0] -= 1

    clients = [client_for(simulator.url) for _ in range(2)]
    threads = [Thread(target=clients[n % 2].model_metrics, args=(*CHAT, (), use)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(simulator.requests), simulator.requests["model_metrics", 200], most) == (1, 8, [1])


# Connections that fail


@pytest.mark.parametrize("fault", ["reset", "close", "cut off", "not http"])
def test_a_broken_connection(simulator: Simulator, client_for: ClientFor, fault: str) -> None:
    simulator.fail("", fault)
    error = failure(client_for(simulator.url))
    assert (error.reason, error.status) == ("connection", None)


def test_a_refused_connection(client_for: ClientFor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = failure(client_for(f"http://127.0.0.1:{port}"))
    assert error.reason == "connection"
    assert "refused" in str(error)


def test_the_next_request_finds_a_healed_server(simulator: Simulator, client_for: ClientFor) -> None:
    client = client_for(simulator.url)
    for fault in ("reset", "cut off", "huge body", "500"):
        simulator.fail("", fault)
        failure(client)
        simulator.heal()
        assert ask(client).metric_descriptors


# What is asked again: at most one request of a poll, once


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("html 502", id="502"),
        pytest.param("503", id="503"),
        pytest.param(status(504, {}), id="504"),
        pytest.param("reset", id="a reset"),
        pytest.param("close", id="a connection closed without an answer"),
        pytest.param("cut off", id="a connection closed within one"),
    ],
)
def test_what_may_pass_is_asked_again_once(
    simulator: Simulator, client_for: ClientFor, fault: str | Fault
) -> None:
    told, paused = Told(), []

    def pause(seconds: float) -> bool:
        paused.append(seconds)
        return False

    client = client_for(simulator.url, told=told, pause=pause)
    simulator.fail("", fault, times=1)
    ask(client)
    assert told.retries == ["model_metrics"]
    assert len(told.requests) == 2
    assert 0.1 <= paused[1] <= 0.5
    simulator.fail("", fault)
    failure(client)
    assert len(told.requests) == 4


def test_a_refused_connection_is_tried_again_once(client_for: ClientFor) -> None:
    told = Told()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    failure(client_for(f"http://127.0.0.1:{port}", told=told))
    assert [code for _, _, code, _ in told.requests] == ["connection"] * 2


@pytest.mark.parametrize(
    "fault",
    ["500", "401", "404", "422", "429", "html 200", "truncated json", "huge body", "gzip bomb", "stall"],
)
def test_what_will_not_pass_is_not_asked_again(
    simulator: Simulator, client_for: ClientFor, fault: str
) -> None:
    told = Told()
    simulator.fail("", fault)
    failure(client_for(simulator.url, told=told, timeout=SHORT if fault == "stall" else 5))
    assert (len(told.requests), told.retries) == (1, [])


def test_all_requests_of_a_poll_share_one_retry(simulator: Simulator, client_for: ClientFor) -> None:
    told, spare = Told(), Spare()
    client = client_for(simulator.url, told=told)
    simulator.fail("", "503", times=1)
    client.model_metrics(*CHAT, (), itself, spare)
    simulator.fail("", "503", times=1)
    with pytest.raises(ApiError):
        client.model_metrics(*CHAT, (), itself, spare)
    assert len(told.retries) == 1


@pytest.mark.parametrize(
    ("fault", "connection"),
    [
        pytest.param(status(503, {"retry_after": 4.95}), {}, id="the jitter would go beyond it"),
        pytest.param(status(503, {"retry_after": 9}), {}, id="the answer asks for longer"),
        pytest.param("503", {"requests_per_second": 0.1}, id="its turn comes later"),
    ],
)
def test_there_is_no_retry_after_the_deadline(
    simulator: Simulator, client_for: ClientFor, fault: str | Fault, connection: dict[str, float]
) -> None:
    told = Told()
    simulator.fail("", fault)
    assert failure(client_for(simulator.url, told=told, **connection)).reason == "server_error"
    assert told.retries == []


def test_a_retry_ends_with_the_deadline_of_its_request(simulator: Simulator, client_for: ClientFor) -> None:
    simulator.fail("", "stall")
    simulator.fail("", "503", times=1)
    client = client_for(simulator.url, timeout=0.6)
    assert failure_in_time(client).reason == "timeout"


def test_a_retry_may_run_into_a_429(simulator: Simulator, client_for: ClientFor) -> None:
    told = Told()
    simulator.fail("", "429 body")
    simulator.fail("", "503", times=1)
    assert failure(client_for(simulator.url, told=told)).reason == "rate_limited"
    [(endpoint, seconds)] = told.pauses
    assert endpoint == "model_metrics"
    assert 36 < seconds <= 37


def test_an_endpoint_paused_meanwhile_is_not_asked_again(simulator: Simulator, client_for: ClientFor) -> None:
    client = client_for(simulator.url)

    def limit_another(request: Request) -> None:
        """While the first request is under way, another one is told to wait."""
        if "metrics=other" not in request.target:
            with suppress(ApiError):
                ask(client, (("metrics", "other"),))

    simulator.fail(limit_another, "500")  # returns None: the fault never applies
    simulator.fail("metrics=other", "429 body")
    simulator.fail(lambda request: "metrics=other" not in request.target, "503")
    simulator.fail(limit_another, "500")
    assert failure(client).reason == "server_error"


def test_a_key_replaced_meanwhile_is_used_at_once(
    simulator: Simulator, client_for: ClientFor, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("old-key")
    told = Told()
    client = client_for(simulator.url, key=ApiKey.from_file(file), told=told)

    def replace(_: Request) -> None:
        file.write_text(KEY)

    simulator.fail(replace, "500")
    ask(client)
    assert [code for _, _, code, _ in told.requests] == ["401", "200"]


# The circuit


def outage_of(client: Client, simulator: Simulator, fault: str = "reset") -> Outage:
    """Open the circuit: several requests in a row do not get through."""
    simulator.fail("", fault)
    for _ in range(THRESHOLD):
        assert client.outage is None
        failure(client)
    assert client.outage is not None
    return client.outage


@pytest.mark.parametrize("fault", ["reset", "401"])
def test_once_nothing_gets_through_only_a_probe_per_interval_goes_out(
    simulator: Simulator, client_for: ClientFor, fault: str
) -> None:
    told = Told()
    client = client_for(simulator.url, told=told)
    outage = outage_of(client, simulator, fault)
    sent = len(told.requests)
    with pytest.raises(CircuitOpen) as caught:
        client.loops_metrics("tr2x4sft", {}, itself)
    assert (caught.value.reason, caught.value.endpoint) == (outage.error.reason, "loops_metrics")
    assert KEY not in str(caught.value)
    assert len(told.requests) == sent


def test_a_probe_that_gets_through_closes_the_circuit(simulator: Simulator, client_for: ClientFor) -> None:
    client = client_for(simulator.url, probe_interval=0)
    outage_of(client, simulator)
    failure(client)
    assert client.is_cut_off()
    simulator.heal()
    ask(client)
    assert not client.is_cut_off()


def test_a_new_key_is_tried_at_once(simulator: Simulator, client_for: ClientFor, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("wrong")
    client = client_for(simulator.url, key=ApiKey.from_file(file))
    for _ in range(THRESHOLD):
        failure(client)
    with pytest.raises(CircuitOpen):
        ask(client)
    file.write_text(KEY)
    ask(client)


# Deadlines: `timeout` bounds the whole request, however slowly the server feeds it


@pytest.mark.parametrize(
    "fault", ["stall", "stall mid-body", dribble(0.05)], ids=["stall", "mid-body", "dribble"]
)
def test_a_slow_answer_ends_with_the_timeout(
    simulator: Simulator, client_for: ClientFor, fault: str | Fault
) -> None:
    simulator.fail("", fault)
    error = failure_in_time(client_for(simulator.url, timeout=SHORT))
    assert (error.reason, str(error)) == ("timeout", "no complete answer within 0.3 s")


@pytest.mark.parametrize(
    ("scheme", "speak", "reason"),
    [
        pytest.param("http", silent, "timeout", id="no answer"),
        pytest.param("http", dripping(OK), "timeout", id="dribbling headers"),
        pytest.param(
            "http", dripping(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), "timeout", id="endless interim answers"
        ),
        pytest.param("https", silent, "connection", id="a TLS handshake without end"),
    ],
)
def test_a_slow_server_ends_with_the_timeout(
    client_for: ClientFor, scheme: str, speak: Speak, reason: str
) -> None:
    with server(speak) as address:
        client = client_for(f"{scheme}://{address}", timeout=SHORT)
        assert failure_in_time(client).reason == reason
        client.close()


def test_a_timeout_costs_only_its_own_request(simulator: Simulator, client_for: ClientFor) -> None:
    simulator.fail("", dribble(0.05), times=1)
    client = client_for(simulator.url, timeout=SHORT)
    assert failure(client).reason == "timeout"
    assert ask(client).metric_descriptors


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.fixture
def secure(authority: trustme.CA) -> Iterator[Callable[..., str]]:
    """The address of a simulator behind TLS, with a certificate for the given name."""
    with ExitStack() as stack:

        def start(name: str = "127.0.0.1", **more: Any) -> str:
            context = serving(authority.issue_cert(name, **more))
            return stack.enter_context(Simulator(World.demo(), key=KEY, ssl_context=context)).url

        yield start


def test_an_authority_of_our_own_is_trusted_when_named(
    secure: Callable[..., str], client_for: ClientFor, ca: str
) -> None:
    assert ask(client_for(secure(), ca=ca)).metric_descriptors


def test_an_unknown_authority(secure: Callable[..., str], client_for: ClientFor) -> None:
    error = failure(client_for(secure()))
    assert error.reason == "tls"
    assert "self-signed certificate" in str(error) or "unable to get" in str(error)


def test_a_certificate_for_another_name(secure: Callable[..., str], client_for: ClientFor, ca: str) -> None:
    error = failure(client_for(secure("api.example.org"), ca=ca))
    assert error.reason == "tls"
    assert "not valid for '127.0.0.1'" in str(error)


def test_an_expired_certificate(secure: Callable[..., str], client_for: ClientFor, ca: str) -> None:
    error = failure(client_for(secure(not_after=datetime(2020, 1, 1, tzinfo=UTC)), ca=ca))
    assert error.reason == "tls"
    assert "expired" in str(error)


def test_a_server_that_speaks_no_tls(simulator: Simulator, client_for: ClientFor) -> None:
    assert failure(client_for(simulator.url.replace("http:", "https:"))).reason == "tls"


# Proxies


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, client_for: ClientFor, name: str, scheme: str
) -> None:
    seen = []

    def speak(connection: socket.socket) -> None:
        seen.append(head(connection))
        connection.sendall(OK)

    with server(speak) as address:
        monkeypatch.setenv(name, f"{scheme}{address}")
        client = client_for("http://api.test")
        assert ask(client) == ModelAnswer([], [])
        client.close()
    assert seen[0].startswith(b"GET http://api.test/v1/models/q7chat32/deployments/w5prod01/metrics")


@pytest.mark.parametrize("excepted", ["127.0.0.1", "api.test, 127.0.0.1", "*", "127.0.0.1:{port}"])
def test_an_address_excepted_from_the_proxy_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch, simulator: Simulator, client_for: ClientFor, excepted: str
) -> None:
    seen: list[bytes] = []
    with server(lambda connection: seen.append(head(connection))) as address:
        monkeypatch.setenv("HTTP_PROXY", f"http://{address}")
        monkeypatch.setenv("NO_PROXY", excepted.format(port=urlsplit(simulator.url).port))
        assert ask(client_for(simulator.url)).metric_descriptors
    assert seen == []


@pytest.mark.parametrize(
    ("url", "speak"),
    [
        pytest.param("http://api.test", dripping(ENDLESS), id="a dribbling proxy"),
        pytest.param("https://api.test", silent, id="a tunnel that never opens"),
        pytest.param(
            "https://api.test", dripping(b"HTTP/1.1 200 OK\r\n\r\n"), id="a tunnel that opens slowly"
        ),
    ],
)
def test_a_slow_proxy_ends_with_the_timeout(
    monkeypatch: pytest.MonkeyPatch, client_for: ClientFor, url: str, speak: Speak
) -> None:
    with server(speak) as address:
        monkeypatch.setenv("ALL_PROXY", f"http://{address}")
        client = client_for(url, timeout=SHORT)
        assert failure_in_time(client).reason == "timeout"
        client.close()


@pytest.mark.parametrize("slow", [False, True], ids=["an answer", "a dribbling answer"])
def test_a_tunnel_of_a_proxy_carries(
    monkeypatch: pytest.MonkeyPatch,
    authority: trustme.CA,
    ca: str,
    client_for: ClientFor,
    *,
    slow: bool,
) -> None:
    context = serving(authority.issue_cert("api.test"))
    seen = []

    def speak(connection: socket.socket) -> None:
        seen.append(head(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as tunnel:
            seen.append(head(tunnel))
            drip(tunnel, ENDLESS) if slow else tunnel.sendall(OK)

    with server(speak) as address:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
        client = client_for("https://api.test", ca=ca, timeout=SHORT if slow else 5)
        if slow:
            assert failure_in_time(client).reason == "timeout"
        else:
            assert ask(client) == ModelAnswer([], [])
        client.close()
    assert seen[0].startswith(b"CONNECT api.test:443 ")
    assert KEY.encode() not in seen[0]
    assert f"Bearer {KEY}".encode() in seen[1]


# What the observer is told, and the pace


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        pytest.param(body(ANSWER), "200", id="an answer"),
        pytest.param("404", "404", id="a refusal"),
        pytest.param("json null", "200", id="what is no answer, by its status"),
        pytest.param("stall", "timeout", id="a timeout"),
        pytest.param("reset", "connection", id="a broken connection"),
        pytest.param("gzip bomb", "200", id="a gzip bomb, by its status"),
        pytest.param("not gzip", "200", id="broken gzip, by its status"),
        pytest.param("huge body", "too_large", id="what was not read to its end"),
    ],
)
def test_the_observer_is_told_every_request(
    simulator: Simulator, client_for: ClientFor, fault: str | Fault, code: str
) -> None:
    simulator.fail("", fault)
    told = Told()
    client = client_for(simulator.url, told=told, timeout=SHORT if fault == "stall" else 5)
    with suppress(ApiError):
        ask(client)
    assert {request[:3] for request in told.requests} == {("w", "model_metrics", code)}
    assert len(told.requests) == 1 + len(told.retries)
    for *_, seconds in told.requests:
        assert (SHORT if fault == "stall" else 0) <= seconds < 5


def test_requests_wait_for_their_turn_per_endpoint(simulator: Simulator, client_for: ClientFor) -> None:
    told, paused = Told(), []

    def pause(seconds: float) -> bool:
        paused.append(seconds)
        return False

    client = client_for(simulator.url, told=told, pause=pause, requests_per_second=0.1)
    ask(client)
    client.loops_metrics("tr2x4sft", {}, itself)
    ask(client)
    assert paused[:2] == [0, 0]
    assert 9 < paused[2] <= 10
    assert told.waits == [("w", "model_metrics", paused[2])]


def test_nothing_is_asked_once_the_exporter_is_stopping(simulator: Simulator, client_for: ClientFor) -> None:
    told = Told()
    client = client_for(simulator.url, told=told, pause=lambda seconds: True)
    with pytest.raises(Stopping):
        ask(client)
    assert (told.requests, simulator.requests) == ([], {})


# The deadline itself


class Clock:
    """A monotonic clock that moves when told."""

    now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("passed", "timeout", "left"),
    [
        pytest.param(0, 5, 5, id="an operation gets its own timeout"),
        pytest.param(7, 5, 3, id="or what is left of the request's time"),
        pytest.param(7, None, 3, id="also when it has no timeout of its own"),
    ],
)
def test_what_an_operation_may_take(passed: float, timeout: float | None, left: float) -> None:
    clock = Clock()
    deadline = Deadline(clock)
    with deadline.within(10):
        clock.now += passed
        assert deadline.left(timeout) == left


@pytest.mark.parametrize("passed", [10, 11])
def test_no_operation_starts_once_the_time_is_up(passed: float) -> None:
    clock = Clock()
    deadline = Deadline(clock)
    with deadline.within(10):
        clock.now += passed
        with pytest.raises(httpcore.ReadTimeout):
            deadline.left(5)


def test_outside_a_request_there_is_no_deadline() -> None:
    deadline = Deadline(Clock())
    with deadline.within(10):
        pass
    assert deadline.left(5) == 5
    assert deadline.left(None) is None
