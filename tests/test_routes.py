"""The routes, over a real socket: status codes, headers, and what stands behind them."""

import gzip
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from exporter import exposition
from exporter.config import ConfigError, Problem
from exporter.exposition import Format
from exporter.model import Family, ModelOptions, Sample, Snapshot, Target
from exporter.store import Store
from exporter.web.pages import Pages
from exporter.web.routes import Parts, application
from exporter.web.server import Server, listen

if TYPE_CHECKING:
    from tests.conftest import Clock

HOSTILE = "<script>alert('1')</script>\"&\\\n"
TARGET = Target("team", "m1", "d1", ModelOptions())
EVIL = Target("team", HOSTILE, HOSTILE, ModelOptions())
BAD_CONFIG = ConfigError([Problem("workspaces[0].name", "is missing"), Problem("poll", "is empty")])


class Site(NamedTuple):
    """A running server, and what it serves."""

    http: httpx.Client
    store: Store
    reloads: list[str]

    def poll(self, target: Target = TARGET) -> None:
        family = Family("baseten_model_x", "X.", (Sample((("name", HOSTILE),), 1.0),))
        self.store.succeed(target, Snapshot(exposition.pieces([family], target.labels), 1, None), 0.1)


def _reload_badly() -> None:
    raise BAD_CONFIG


RELOADS: dict[str, Callable[[], None] | None] = {"off": None, "bad": _reload_badly}


@pytest.fixture
def site(request: pytest.FixtureRequest, clock: "Clock") -> Iterator[Site]:
    """The parameter chooses what a reload does, or the telemetry path; the default is a reload that works."""
    chosen = getattr(request, "param", "good")
    reloads: list[str] = []
    store = Store(clock)
    store.retarget([TARGET, EVIL], 300)
    registry = CollectorRegistry()
    Counter("own", "Own.", registry=registry)
    reload = RELOADS.get(chosen, lambda: reloads.append("done"))
    parts = Parts(
        store, Pages(store, registry), store.ready, lambda _: clock.now + 30, clock, reload, lambda: ()
    )
    server = Server(application(parts, chosen if chosen.startswith("/") else "/metrics"))
    listener = listen("127.0.0.1:0")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    host, port = listener.getsockname()[:2]
    with httpx.Client(base_url=f"http://{host}:{port}") as http:
        yield Site(http, store, reloads)
    server.should_exit = True
    thread.join()


def exchange(site: Site, head: str) -> bytes:
    """All bytes the server sends for one request on a connection of its own."""
    url = site.http.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=30) as connection:
        connection.sendall(f"{head}\r\nHost: {url.host}\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


# Status codes and headers


@pytest.mark.parametrize(
    ("path", "status", "content_type"),
    [
        ("/metrics", 200, Format.TEXT.value),
        ("/", 200, "text/html; charset=utf-8"),
        ("/api/v1/targets", 200, "application/json"),
        ("/-/healthy", 200, "text/plain; charset=utf-8"),
        ("/-/ready", 503, "text/plain; charset=utf-8"),
        ("/favicon.ico", 404, "text/plain; charset=utf-8"),
        ("/metrics/more", 404, "text/plain; charset=utf-8"),
        ("/-/nope", 404, "text/plain; charset=utf-8"),
    ],
)
def test_a_path_answers_with_its_status_and_type_and_head_with_the_same_and_no_body(
    site: Site, path: str, status: int, content_type: str
) -> None:
    got = site.http.get(path)
    assert (got.status_code, got.headers["content-type"]) == (status, content_type)
    head = site.http.head(path)
    volatile = ("date",)
    assert head.status_code == status
    assert {name: value for name, value in head.headers.items() if name not in volatile} == {
        name: value for name, value in got.headers.items() if name not in volatile
    }
    assert exchange(site, f"HEAD {path} HTTP/1.1").partition(b"\r\n\r\n")[2] == b""


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/metrics", {"GET", "HEAD"}),
        ("DELETE", "/", {"GET", "HEAD"}),
        ("PUT", "/api/v1/targets", {"GET", "HEAD"}),
        ("POST", "/-/healthy", {"GET", "HEAD"}),
        ("GET", "/-/reload", {"POST"}),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(site: Site, method: str, path: str, allowed: set[str]) -> None:
    answer = site.http.request(method, path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    assert site.reloads == []


def test_the_server_does_not_say_what_it_is_made_of(site: Site) -> None:
    assert "server" not in site.http.get("/metrics").headers


# Metrics


def test_metrics_come_plain_or_in_gzip(site: Site) -> None:
    site.poll()
    plain = site.http.get("/metrics", headers={"accept-encoding": "identity"})
    zipped = site.http.get("/metrics", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert plain.content == zipped.content
    raw = exchange(site, "GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip").partition(b"\r\n\r\n")[2]
    assert gzip.decompress(raw) == plain.content
    assert int(zipped.headers["content-length"]) == len(raw)
    assert plain.headers["vary"] == zipped.headers["vary"] == "accept, accept-encoding"


def test_metrics_come_in_openmetrics_if_asked(site: Site) -> None:
    site.poll()
    answer = site.http.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert answer.headers["content-type"] == Format.OPENMETRICS.value
    assert answer.text.endswith("# EOF\n")


def test_metrics_can_be_filtered_by_name(site: Site) -> None:
    site.poll()
    answer = site.http.get("/metrics", params={"name[]": ["baseten_model_x", "own_total"]})
    types = [line for line in answer.text.splitlines() if line.startswith("# TYPE")]
    assert types == ["# TYPE baseten_model_x gauge", "# TYPE own_total counter"]


def test_metrics_are_200_even_when_every_target_fails(site: Site) -> None:
    for target in (TARGET, EVIL):
        site.store.fail(target, "auth", "no", 0.1)
    answer = site.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.text.count("baseten_exporter_target_up{") == 2


@pytest.mark.parametrize("site", ["/custom/path"], indirect=True)
def test_metrics_can_be_elsewhere_and_the_status_page_knows(site: Site) -> None:
    assert site.http.get("/custom/path").status_code == 200
    assert site.http.get("/metrics").status_code == 404
    assert 'href="custom/path"' in site.http.get("/").text


# Health


def test_ready_is_200_once_every_target_was_polled_well_or_not(site: Site) -> None:
    statuses = [site.http.get("/-/ready").status_code]
    site.poll()
    statuses.append(site.http.get("/-/ready").status_code)
    site.store.fail(EVIL, "timeout", "no", 0.1)
    statuses.append(site.http.get("/-/ready").status_code)
    assert statuses == [503, 503, 200]


def test_healthy_does_not_depend_on_the_api(site: Site) -> None:
    site.store.fail(TARGET, "connection", "no", 0.1)
    assert site.http.get("/-/healthy").text == "healthy\n"


# Reload


def test_a_reload_reads_the_config_again(site: Site) -> None:
    answer = site.http.post("/-/reload")
    assert (answer.status_code, answer.text) == (200, "reloaded\n")
    assert site.reloads == ["done"]


@pytest.mark.parametrize("site", ["off"], indirect=True)
def test_a_reload_is_refused_where_it_is_off(site: Site) -> None:
    answer = site.http.post("/-/reload")
    assert answer.status_code == 403
    assert "--web.enable-lifecycle" in answer.text


@pytest.mark.parametrize("site", ["bad"], indirect=True)
def test_a_bad_config_is_told_with_every_problem(site: Site) -> None:
    answer = site.http.post("/-/reload")
    assert answer.status_code == 500
    assert answer.text.splitlines() == [
        "not reloaded, the old config stays:",
        "workspaces[0].name: is missing",
        "poll: is empty",
    ]


# Hostile names


def test_hostile_names_are_escaped_in_html_json_and_metrics(site: Site) -> None:
    site.poll(EVIL)
    site.store.fail(TARGET, "server_error", HOSTILE, 0.1)
    assert "<script" not in site.http.get("/").text
    targets: list[dict[str, Any]] = json.loads(site.http.get("/api/v1/targets").content)["targets"]
    assert [target["deployment_id"] for target in targets] == ["d1", HOSTILE]
    assert targets[0]["error"] == HOSTILE
    assert [
        line for line in site.http.get("/metrics").text.split("\n") if line.startswith("baseten_model_x")
    ] == [
        "baseten_model_x{"
        + ",".join(
            f'{name}="{value}"'
            for name, value in [
                ("deployment_id", r"<script>alert('1')</script>\"&\\\n"),
                ("model_id", r"<script>alert('1')</script>\"&\\\n"),
                ("name", r"<script>alert('1')</script>\"&\\\n"),
                ("workspace", "team"),
            ]
        )
        + "} 1.0"
    ]


def test_the_next_poll_is_told(site: Site) -> None:
    targets = site.http.get("/api/v1/targets").json()["targets"]
    assert [target["next_poll"] for target in targets] == ["2026-09-21T14:13:50Z"] * 2


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /metrics?name[]=%ff%00 HTTP/1.1",
        "GET //metrics HTTP/1.1",
        "GET /%2e%2e/x HTTP/1.1",
        "BREW / HTTP/1.1",
        "nonsense",
    ],
)
def test_odd_requests_cost_no_error_in_the_log(
    site: Site, caplog: pytest.LogCaptureFixture, request_line: str
) -> None:
    assert exchange(site, request_line).startswith(b"HTTP/1.1 ")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# Listening


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", ":0"])
def test_it_listens_where_it_is_told(address: str) -> None:
    with listen(address) as listener:
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])).close()


@pytest.mark.parametrize("address", ["127.0.0.1:65536", "127.0.0.1:http", "127.0.0.1", "127.0.0.1:-1", ""])
def test_an_impossible_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not a port"):
        listen(address).close()


def test_a_port_in_use_is_refused() -> None:
    with listen("127.0.0.1:0") as first, pytest.raises(OSError, match="in use"):
        listen(f"127.0.0.1:{first.getsockname()[1]}").close()
