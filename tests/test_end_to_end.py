"""Real processes: the exporter under signals, and a real Prometheus that scrapes it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from exporter.baseten import catalogue, inventory
from exporter.baseten.loops_metrics import METRICS
from exporter.simulator import Simulator, World

if TYPE_CHECKING:
    from exporter.simulator import Wire
    from tests.conftest import Demo, Eventually, Prometheus

KEY = "bt-key/with+odd%chars"
TIMEOUT = 1.0
CONFIG = """
poll: {{interval: 1s, timeout: 1s}}
workspaces:
  - name: team
    api_key_env: KEY
    api_url: {url}
    requests_per_second: 100
    models: [{models}]
"""
CHAT = "{model_id: q7chat32, deployment_id: w5prod01}"
CODE = "{model_id: c0der480, deployment_id: w6prod02}"

MODES = pytest.mark.parametrize("log_format", ["logfmt", "json"])
SERVER = pytest.mark.xdist_group("prometheus")
"""Tests that share one server run in one worker, so that it starts once."""


class Process:
    """`run` as a process of its own; its output goes to files."""

    def __init__(self, folder: Path, api: Simulator, port: int) -> None:
        self.folder = folder
        self.api = api
        self.url = f"http://127.0.0.1:{port}"
        self.configure(CHAT)

    def configure(self, models: str) -> None:
        (self.folder / "config.yaml").write_text(CONFIG.format(url=self.api.url, models=models))

    def start(self, *flags: str) -> None:
        address = self.url.removeprefix("http://")
        command = [sys.executable, "-m", "exporter", "run", f"--web.listen-address={address}", *flags]
        with (self.folder / "out").open("w") as out, (self.folder / "err").open("w") as err:
            environ = {**os.environ, "KEY": KEY}
            self.process = subprocess.Popen(command, cwd=self.folder, env=environ, stdout=out, stderr=err)

    def status(self, path: str) -> int:
        try:
            return httpx.get(self.url + path).status_code
        except httpx.TransportError:
            return 0

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path)

    def targets(self) -> dict[str, str]:
        return {
            each["deployment_id"]: each["state"] for each in self.get("/api/v1/targets").json()["targets"]
        }

    def output(self) -> str:
        return (self.folder / "out").read_text() + (self.folder / "err").read_text()

    def end(self, number: signal.Signals) -> tuple[int, float]:
        """Send a signal; return the exit status and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(30)
        return status, time.monotonic() - began


@pytest.fixture
def api() -> Iterator[Simulator]:
    with Simulator(World.demo(), key=KEY) as simulator:
        yield simulator


@pytest.fixture
def process(tmp_path: Path, api: Simulator, port: int) -> Iterator[Process]:
    process = Process(tmp_path, api, port)
    yield process
    process.process.kill()
    process.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_gets_ready_is_scraped_and_stops_with_0(
    process: Process, eventually: "Eventually", number: signal.Signals
) -> None:
    process.start()
    eventually(lambda: process.status("/-/ready") == 200)
    page = process.get("/metrics").text
    assert "\nbaseten_model_replicas_active{" in page
    assert '\nbaseten_exporter_target_up{deployment_id="w5prod01",' in page
    status, seconds = process.end(number)
    assert (status, seconds < TIMEOUT + 2) == (0, True)
    assert "Traceback" not in process.output()


def test_it_stops_with_0_in_time_though_a_poll_hangs(process: Process, eventually: "Eventually") -> None:
    process.api.fail("", "stall")
    process.start()
    eventually(lambda: process.api.requests["model_metrics", 0])
    status, seconds = process.end(signal.SIGTERM)
    assert (status, seconds < TIMEOUT + 2) == (0, True)


def test_asked_twice_it_stops_without_waiting_for_polls(process: Process, eventually: "Eventually") -> None:
    path = process.folder / "config.yaml"
    path.write_text(path.read_text().replace("interval: 1s, timeout: 1s", "interval: 20s, timeout: 20s"))
    process.api.fail("", "stall")
    process.start()
    eventually(lambda: process.api.requests["model_metrics", 0])
    process.process.send_signal(signal.SIGTERM)
    eventually(lambda: "msg=stopping" in process.output())
    status, seconds = process.end(signal.SIGTERM)
    assert (status, seconds < 5) == (0, True)


def test_a_scrape_is_answered_while_it_waits_for_polls_to_end(
    process: Process, eventually: "Eventually"
) -> None:
    process.api.fail("", "stall")
    process.start()
    eventually(lambda: process.api.requests["model_metrics", 0])
    process.process.send_signal(signal.SIGTERM)
    eventually(lambda: "msg=stopping" in process.output())
    assert process.status("/metrics") == 200
    assert process.process.wait(30) == 0


def test_sighup_reads_the_config_again(process: Process, eventually: "Eventually") -> None:
    process.start()
    eventually(lambda: process.status("/-/ready") == 200)
    process.configure(f"{CHAT}, {CODE}")
    process.process.send_signal(signal.SIGHUP)
    eventually(lambda: process.targets() == {"w5prod01": "up", "w6prod02": "up"})


def test_a_bad_config_at_sighup_changes_nothing(process: Process, eventually: "Eventually") -> None:
    process.start()
    eventually(lambda: process.status("/-/ready") == 200)
    process.configure("{}")
    process.process.send_signal(signal.SIGHUP)
    eventually(lambda: "baseten_exporter_config_last_reload_successful 0.0" in process.get("/metrics").text)
    assert process.targets() == {"w5prod01": "up"}
    assert "workspaces[0].models[0].model_id: is missing" in process.output()


def echo(wire: "Wire") -> None:
    """An API that tells the key back, in its error and in a header."""
    said = json.dumps({"error": f"no such key: {KEY}"}).encode()
    wire.reply(
        wire.response._replace(status=500, body=said, headers=(("X-Key", KEY), *wire.response.headers))
    )


@MODES
def test_the_key_appears_nowhere(process: Process, eventually: "Eventually", log_format: str) -> None:
    process.api.fail("", echo)
    process.start("--log.level=debug", f"--log.format={log_format}")
    eventually(lambda: process.status("/-/ready") == 200)
    pages = "".join(process.get(path).text for path in ("/", "/api/v1/targets", "/metrics"))
    assert "no such key: &lt;redacted&gt;" in pages
    process.end(signal.SIGTERM)
    assert "no such key: <redacted>" in process.output()
    assert "bt-key" not in pages + process.output()


def test_json_log_lines_are_json(process: Process, eventually: "Eventually") -> None:
    process.start("--log.format=json")
    eventually(lambda: process.status("/-/ready") == 200)
    process.end(signal.SIGTERM)
    lines: list[dict[str, Any]] = [json.loads(line) for line in process.output().splitlines()]
    assert {line["msg"] for line in lines} == {
        *("started", "listening", "targets listed", "target is up", "stopping", "stopped")
    }


# The demo, and Prometheus


def samples(page: str) -> int:
    return sum(1 for line in page.splitlines() if line and not line.startswith("#"))


def families(page: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))


def model_families() -> Iterator[str]:
    for source, known in catalogue.CATALOGUE.items():
        for stat in ("", "avg") if known.kind == "HISTOGRAM" else ("",):
            yield catalogue.name(source, known.kind, known.unit_hint, stat=stat).family


@SERVER
def test_every_known_family_appears_in_the_demo(demo: "Demo") -> None:
    listed = {metric.family for metric in inventory.METRICS}
    expected = {*model_families(), *(metric.family for metric in METRICS), *listed}
    found = families(demo.page())
    assert expected - found <= {inventory.PROMOTION_TRAFFIC.family}, "there only while a promotion runs"
    assert {name for name in found if re.match("baseten_(model|loops|instance)_", name)} - expected == set()


@SERVER
def test_the_demo_page_is_readable_openmetrics(demo: "Demo") -> None:
    page = httpx.get(f"{demo.url}/metrics", headers={"accept": "application/openmetrics-text"}).text
    read: Callable[[str], Iterator[Any]] = text_string_to_metric_families
    assert sum(len(family.samples) for family in read(page)) == samples(page)


@SERVER
def test_promtool_finds_nothing_wrong_but_the_quantile_label(demo: "Demo", promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "metrics"], input=demo.page(), check=False, capture_output=True, text=True
    )
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if line]
    assert [line for line in complaints if 'should not have "quantile" label' not in line] == []


@SERVER
def test_prometheus_takes_every_sample_of_the_page(
    prometheus: "Prometheus", demo: "Demo", eventually: "Eventually"
) -> None:
    def counts() -> set[float]:
        names = ("scrape_samples_scraped", "scrape_samples_post_metric_relabeling")
        return {value for name in names for _, value in prometheus.query(name)}

    assert [value for _, value in prometheus.query("up")] == [1]
    eventually(lambda: counts() == {samples(demo.page())})


@SERVER
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param(
            "count by (deployment_id) (baseten_loops_node_gpu_utilization_ratio)",
            {"tr2x4sft": 2 * 4, "tr4x8rl0": 4 * 8},
            id="a series per node and GPU rank",
        ),
        pytest.param(
            'count by (gpu_rank) (baseten_loops_node_gpu_memory_usage_bytes{deployment_id="tr2x4sft"})',
            {"0": 2, "1": 2, "2": 2, "3": 2},
            id="every rank on every node",
        ),
        pytest.param(
            "count by (quantile) (baseten_loops_response_time_seconds)",
            {"0.5": 3, "0.95": 3, "0.99": 3},
            id="quantiles of trainers",
        ),
        pytest.param(
            'count by (quantile) (baseten_model_end_to_end_response_time_seconds{deployment_id="w5prod01"})',
            {"0.5": 1, "0.9": 1, "0.95": 1, "0.99": 1},
            id="quantiles of models",
        ),
        pytest.param(
            "count by (status) (baseten_loops_inference_requests_by_status_per_second)",
            {"2xx": 3, "4xx": 3, "5xx": 3},
            id="statuses",
        ),
        pytest.param(
            'count by (replica) (baseten_model_gpu_memory_used_bytes{deployment_id="w5prod01"})',
            {f"w5prod01-{number}": 2 for number in range(3)},
            id="replicas and their GPUs",
        ),
        pytest.param(
            "count by (kind) (baseten_exporter_target_up == 1)"
            " - on (kind) sum by (kind) (baseten_exporter_discovered_targets)",
            {"model": 0, "loops": 0},
            id="all that was discovered is up",
        ),
    ],
)
def test_prometheus_answers_with_the_series_there_are(
    prometheus: "Prometheus", expression: str, expected: dict[str, float]
) -> None:
    found = {label: value for metric, value in prometheus.query(expression) for label in metric.values()}
    assert found == expected
