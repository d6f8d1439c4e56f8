"""What the status page is told of each workspace."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from exporter.app import Exporter
from exporter.baseten.circuit import THRESHOLD
from exporter.config import load
from exporter.logs import Redactor
from exporter.simulator import Simulator, World
from exporter.web.status import WorkspaceStatus
from tests.conftest import Clock

KEY = "sk-verysecret"

CONFIG = """
poll: {{interval: 60s, timeout: 5s}}
workspaces:
  - name: team
    api_key_env: KEY
    api_url: {url}
    requests_per_second: 0.05
    models:
      - {{model_id: q7chat32, deployment_id: w5prod01}}
      - {{model_id: c0der480, deployment_id: w6prod02}}
    loops:
      - {{deployment_id: tr2x4sft}}
"""


@pytest.fixture
def api() -> Iterator[Simulator]:
    with Simulator(World.demo(), key=KEY) as running:
        yield running


@pytest.fixture
def exporter(api: Simulator, tmp_path: Path, clock: Clock) -> Iterator[Exporter]:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.format(url=api.url))
    redactor = Redactor()
    exporter = Exporter(lambda: load(file, {"KEY": KEY}), redactor, clock)
    exporter.poller.apis["team"].client._pause = lambda seconds: False
    exporter.list_once()
    yield exporter
    exporter.close()


def overview(exporter: Exporter) -> WorkspaceStatus:
    (workspace,) = exporter.overview()
    return workspace


def test_a_workspace_at_rest(exporter: Exporter, clock: Clock) -> None:
    found = overview(exporter)
    assert (found.workspace, found.circuit, found.circuit_reason) == ("team", "closed", None)
    assert (found.circuit_since, found.next_probe) == (None, None)
    assert found.last_listed == datetime.fromtimestamp(clock.now, UTC)
    model, loops = found.endpoints
    assert (model.endpoint, model.kind, model.targets) == ("model_metrics", "model", 2)
    assert (loops.endpoint, loops.kind, loops.targets) == ("loops_metrics", "loops", 1)
    assert (model.interval_seconds, loops.effective_interval_seconds) == (60, 60)
    assert model.effective_interval_seconds == pytest.approx(80 / 0.95)
    assert model.needed_requests_per_second == pytest.approx(0.05 * 0.95)
    assert model.allowed_requests_per_second == 0.05
    assert model.budget_share == pytest.approx(4 / 3)
    assert loops.budget_share == pytest.approx(1 / 3)
    assert (model.paused_until, loops.paused_until) == (None, None)


def test_a_pause_is_told_by_its_end(exporter: Exporter, api: Simulator, clock: Clock) -> None:
    api.fail("", "429 body")
    exporter.poller.poll(exporter.targets[0])
    until = overview(exporter).endpoints[0].paused_until
    assert until is not None
    assert until.timestamp() == pytest.approx(clock.now + 37, abs=1)


def test_an_open_circuit_tells_why_since_when_and_until_when(
    exporter: Exporter, api: Simulator, clock: Clock
) -> None:
    body = b'{"error": "no key %s"}' % KEY.encode()
    api.fail("", lambda wire: wire.reply(wire.response._replace(status=401, body=body)))
    for _ in range(THRESHOLD):
        exporter.poller.poll(exporter.targets[0])
    found = overview(exporter)
    assert (found.circuit, found.circuit_reason) == ("open", "HTTP 401: no key <redacted>")
    assert found.circuit_since is not None
    assert found.next_probe is not None
    assert found.circuit_since.timestamp() == pytest.approx(clock.now, abs=1)
    assert found.next_probe.timestamp() == pytest.approx(clock.now + 60, abs=1)
