"""Workspaces do not feel each other: each has its own key, rate, pauses, circuit and threads."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from exporter.app import Exporter
from exporter.config import load
from exporter.logs import Redactor
from exporter.simulator import Simulator, World

if TYPE_CHECKING:
    from tests.conftest import Eventually

KEYS = {"GOOD": "good-key", "BAD": "bad-key"}
TARGETS = 8
ROUNDS = 2

CONFIG = """
poll: {{interval: 2s, timeout: 1s, concurrency: 2, stale_after: 1h}}
workspaces:
  - name: bad
    api_key_env: BAD
    api_url: {bad}
    {rate}
    metadata_labels: []
    models: [{models}]
  - name: good
    api_key_env: GOOD
    api_url: {good}
    requests_per_second: 100
    metadata_labels: []
    models: [{models}]
"""


@pytest.fixture
def world() -> World:
    return World.sized(TARGETS)


@pytest.fixture
def apis(world: World) -> Iterator[tuple[Simulator, Simulator]]:
    with ExitStack() as stack:
        yield (
            stack.enter_context(Simulator(world, key=KEYS["BAD"], limit=None)),
            stack.enter_context(Simulator(world, key=KEYS["GOOD"], limit=None)),
        )


@pytest.mark.parametrize(
    ("fault", "rate"),
    [
        pytest.param("stall", "requests_per_second: 100", id="one stalls"),
        pytest.param("429 body", "requests_per_second: 100", id="one is throttled"),
        pytest.param("reset", "requests_per_second: 100", id="one cannot be reached"),
        pytest.param("401", "requests_per_second: 100", id="one has a wrong key"),
        pytest.param("", "requests_per_second: 0.5", id="one asks more than it may"),
    ],
)
def test_the_other_workspace_is_polled_as_if_it_were_alone(
    apis: tuple[Simulator, Simulator],
    world: World,
    tmp_path: Path,
    fault: str,
    rate: str,
    eventually: "Eventually",
) -> None:
    bad, good = apis
    if fault:
        bad.fail("", fault)
    deployments = [(model.id, each.id) for model in world.models for each in model.deployments]
    models = ", ".join(
        f"{{model_id: {model}, deployment_id: {each}, mode: current}}" for model, each in deployments
    )
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.format(bad=bad.url, good=good.url, rate=rate, models=models))
    exporter = Exporter(lambda: load(file, KEYS), Redactor())

    def count(name: str, workspace: str, **labels: str) -> float:
        where = {"workspace": workspace, "kind": "model", **labels}
        return exporter.telemetry.registry.get_sample_value(f"baseten_exporter_{name}", where) or 0

    exporter.start()
    try:
        eventually(lambda: count("polls_total", "good") >= ROUNDS * len(deployments))
    finally:
        exporter.stop()
        exporter.close()
    due = count("polls_total", "good") + count("polls_skipped_total", "good", reason="overlap")
    assert count("polls_skipped_total", "good", reason="overlap") == 0
    assert due >= ROUNDS * len(deployments)
    assert {count("polls_skipped_total", "good", reason=reason) for reason in ("paused", "circuit_open")} == {
        0
    }
    assert exporter.poller.apis["good"].client.outage is None
    (stretched,) = (
        each.effective_interval_seconds
        for workspace in exporter.overview()
        if workspace.workspace == "good"
        for each in workspace.endpoints
    )
    assert stretched == 2
