"""From a broken deployment to a message and back, on real servers; and another server's scrape."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest

from exporter.simulator import Simulator, World
from tests.conftest import _answers, _binary, _free_port, running

if TYPE_CHECKING:
    from tests.conftest import Demo, Eventually

RULES = Path(__file__).parent.parent / "helm" / "baseten-exporter" / "files" / "rules"
KEY = "alerting-key"
BROKEN = {"alertname": "BasetenTargetFailing", "deployment_id": "w5prod01"}
RUNBOOK = (
    "https://github.com/baseten-exporter/baseten-exporter/blob/main/docs/runbooks/BasetenTargetFailing.md"
)

EXPORTER = """
poll: {{interval: 1s, timeout: 1s}}
workspaces:
  - name: team
    api_key_env: KEY
    api_url: {api}
    requests_per_second: 100
    models: [{{model_id: q7chat32, deployment_id: w5prod01}}]
    discovery: {{interval: 5s, models: {{}}, loops: {{scope: org}}}}
"""
PROMETHEUS = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [rules/*.yaml]
scrape_configs: [{{job_name: baseten, static_configs: [{{targets: ["{exporter}"]}}]}}]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}
"""
SCRAPE = """
scrape_configs:
  - {{job_name: baseten, scrape_interval: 1s, static_configs: [{{targets: ["{exporter}"]}}]}}
"""
ALERTMANAGER = """
route: {{receiver: test, group_by: ["..."], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: test, webhook_configs: [{{url: "{webhook}", send_resolved: true}}]}}]
"""


class Webhook:
    """Receives what Alertmanager sends."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    @contextmanager
    def listening(self) -> Iterator["Webhook"]:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        yield self
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        alerts = self.alerts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                alerts.extend(json.loads(body)["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class
                """Stay quiet."""

        return Handler

    def received(self, status: str, labels: dict[str, str]) -> list[dict[str, Any]]:
        """The alerts with this status and these labels, as they came."""
        return [
            alert
            for alert in self.alerts
            if alert["status"] == status and labels.items() <= alert["labels"].items()
        ]


class Stack(NamedTuple):
    """The chain from the API to the receiver of alerts."""

    api: Simulator
    webhook: Webhook
    prometheus: str

    def rules(self) -> list[dict[str, Any]]:
        groups = httpx.get(f"{self.prometheus}/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


class Chain:
    """Starts one part after the other; all of them end with `parts`."""

    def __init__(self, folder: Path, parts: ExitStack, eventually: "Eventually") -> None:
        self._folder = folder
        self._parts = parts
        self._eventually = eventually

    def file(self, name: str, text: str, **values: str) -> Path:
        path = self._folder / name
        path.write_text(text.format(**values))
        return path

    def exporter(self, api: str) -> str:
        config = self.file("config.yaml", EXPORTER, api=api)
        address = f"127.0.0.1:{_free_port()}"
        command = [sys.executable, "-m", "exporter", "run", f"--config.file={config}"]
        self._process([*command, f"--web.listen-address={address}"], {**os.environ, "KEY": KEY})
        return self._ready(address)

    def alertmanager(self, webhook: str) -> str:
        config = self.file("alertmanager.yml", ALERTMANAGER, webhook=webhook)
        flags = (f"--config.file={config}", f"--storage.path={self._folder / 'am'}")
        return self._server(
            "prometheus-alertmanager", *flags, "--cluster.listen-address=", "--log.level=warn"
        )

    def prometheus(self, exporter: str, alertmanager: str) -> str:
        self.shorten_rules()
        config = self.file("prometheus.yml", PROMETHEUS, exporter=exporter, alertmanager=alertmanager)
        flags = (f"--config.file={config}", f"--storage.tsdb.path={self._folder / 'data'}")
        return self._server("prometheus", *flags, "--log.level=warn")

    def shorten_rules(self) -> None:
        (self._folder / "rules").mkdir()
        for path in RULES.glob("*.yaml"):
            text = re.sub(r"\bfor: \w+", "for: 1s", path.read_text(encoding="utf-8"))
            (self._folder / "rules" / path.name).write_text(text)

    def _server(self, program: str, *flags: str) -> str:
        address = f"127.0.0.1:{_free_port()}"
        self._parts.enter_context(running([_binary(program), *flags, f"--web.listen-address={address}"]))
        return self._ready(address)

    def _process(self, command: list[str], environ: dict[str, str]) -> None:
        process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._parts.callback(process.wait, 30)
        self._parts.callback(process.terminate)

    def _ready(self, address: str) -> str:
        self._eventually(lambda: _answers(f"http://{address}/-/ready"))
        return address


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, eventually: "Eventually") -> Iterator[Stack]:
    for program in ("prometheus", "prometheus-alertmanager"):
        _binary(program)
    with ExitStack() as parts:
        chain = Chain(tmp_path_factory.mktemp("alerting"), parts, eventually)
        api = parts.enter_context(Simulator(World.demo(), key=KEY))
        webhook = parts.enter_context(Webhook().listening())
        exporter = chain.exporter(api.url)
        alertmanager = chain.alertmanager(webhook.url)
        prometheus = f"http://{chain.prometheus(exporter, alertmanager)}"
        yield Stack(api, webhook, prometheus)


@pytest.mark.xdist_group("alerting")
def test_every_rule_is_evaluated_on_what_the_exporter_exposes(stack: Stack, eventually: "Eventually") -> None:
    def seen(name: str) -> bool:
        query = {"query": name}
        answer = httpx.get(f"{stack.prometheus}/api/v1/query", params=query).json()
        return bool(answer["data"]["result"])

    eventually(lambda: seen("baseten:loops_nodes:count") and seen("baseten:model_gpu_memory:ratio"))
    eventually(lambda: {rule["health"] for rule in stack.rules()} == {"ok"})


@pytest.mark.xdist_group("alerting")
def test_a_broken_deployment_is_told_of_with_its_runbook_and_then_that_it_is_well(
    stack: Stack, eventually: "Eventually"
) -> None:
    stack.api.fail("w5prod01/metrics", "500")
    alert, *_ = eventually(lambda: stack.webhook.received("firing", BROKEN))
    assert alert["annotations"]["runbook_url"] == RUNBOOK
    assert alert["annotations"]["summary"] == "Polls of model deployment qwen3-32b-chat fail"
    assert alert["labels"]["severity"] == "warning"
    assert not stack.webhook.received("resolved", BROKEN)
    stack.api.heal()
    assert eventually(lambda: stack.webhook.received("resolved", BROKEN))


@pytest.mark.xdist_group("prometheus")  # where the demo runs already
def test_victoriametrics_reads_the_same_page(demo: "Demo", tmp_path: Path, eventually: "Eventually") -> None:
    scrape = tmp_path / "scrape.yml"
    scrape.write_text(SCRAPE.format(exporter=demo.url.removeprefix("http://")))
    address = f"127.0.0.1:{_free_port()}"
    command = [
        _binary("victoria-metrics"),
        f"-promscrape.config={scrape}",
        f"-storageDataPath={tmp_path / 'data'}",
        f"-httpListenAddr={address}",
        "-search.latencyOffset=0s",
        "-loggerLevel=ERROR",
    ]

    def ranks() -> dict[str, float]:
        query = {"query": "count by (deployment_id) (baseten_loops_node_gpu_utilization_ratio)"}
        answer = httpx.get(f"http://{address}/api/v1/query", params=query).json()["data"]["result"]
        return {each["metric"]["deployment_id"]: float(each["value"][1]) for each in answer}

    with running(command):
        eventually(lambda: _answers(f"http://{address}/health"))
        eventually(lambda: ranks() == {"tr2x4sft": 2 * 4, "tr4x8rl0": 4 * 8})
