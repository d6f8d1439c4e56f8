"""What several test modules share."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import httpx
import pytest
from hypothesis import settings
from prometheus_client import disable_created_metrics

settings.register_profile("any machine", deadline=None)  # a busy machine is no bug
settings.load_profile("any machine")

_DEADLINE = 30.0
T = TypeVar("T")


class Clock:
    """Seconds since the epoch, moved by hand."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Eventually:
    """Asks until the answer is truthy, for a bounded time; returns the answer."""

    def __call__(self, ask: Callable[[], T], seconds: float = _DEADLINE) -> T:
        end = time.monotonic() + seconds
        while not (answer := ask()):
            assert time.monotonic() < end, f"still {answer!r} after {seconds} s"
            time.sleep(0.01)
        return answer


@pytest.fixture(scope="session", autouse=True)
def _metrics_as_the_command_line_sets_them() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    return Eventually()


@pytest.fixture
def port() -> int:
    """A port nobody listens on."""
    return _free_port()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _binary(name: str) -> str:
    """The path of a server's program; a skip where there is none, unless servers are required."""
    found = shutil.which(name)
    if found is None and os.environ.get("REQUIRE_SERVERS") == "1":
        pytest.fail(f"{name} is not installed, and REQUIRE_SERVERS=1")
    return found or pytest.skip(f"{name} is not installed")


@contextmanager
def running(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


class Demo(NamedTuple):
    """The demo exporter as a process."""

    url: str

    def page(self) -> str:
        return httpx.get(f"{self.url}/metrics").text


class Prometheus(NamedTuple):
    """A real server that scrapes the demo every second."""

    url: str

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}).json()
        return [(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@pytest.fixture(scope="session")
def promtool() -> str:
    return _binary("promtool")


@pytest.fixture(scope="session")
def demo(eventually: Eventually) -> Iterator[Demo]:
    command = [sys.executable, "-m", "exporter", "demo", "--web.listen-address=127.0.0.1:0"]
    with running(command) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1].removesuffix("/metrics")
        eventually(lambda: _answers(f"{url}/-/ready"))
        yield Demo(url)


@pytest.fixture(scope="session")
def prometheus(
    demo: Demo, tmp_path_factory: pytest.TempPathFactory, eventually: Eventually
) -> Iterator[Prometheus]:
    program = _binary("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    config = folder / "prometheus.yml"
    config.write_text(_PROMETHEUS.format(target=demo.url.removeprefix("http://")))
    url = f"http://127.0.0.1:{_free_port()}"
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--log.level=warn",
    ]
    with running(command):
        server = Prometheus(url)
        eventually(lambda: _answers(f"{url}/-/ready"))
        eventually(lambda: server.query("up"))
        yield server


_PROMETHEUS = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: baseten
    static_configs: [{{targets: ["{target}"]}}]
"""
