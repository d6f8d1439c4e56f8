"""What the API sends and this version does not know is told once, whatever it is."""

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from exporter.baseten.answers import LoopsAnswer, ModelAnswer
from exporter.baseten.drift import Drift, Unknown, unknown
from exporter.baseten.listings import Deployments, Environments, Models, Prices, Trainers
from exporter.simulator import Request, World
from exporter.simulator.api import Api

KEY = "key"
ANSWERS: dict[str, tuple[type, str, str]] = {
    "models": (Models, "GET", "/v1/models"),
    "deployments": (Deployments, "GET", "/v1/models/q7chat32/deployments"),
    "environments": (Environments, "GET", "/v1/models/q7chat32/environments"),
    "trainers": (Trainers, "GET", "/v1/loops/deployments?scope=org"),
    "prices": (Prices, "GET", "/v1/instance_type_prices"),
    "model metrics": (ModelAnswer, "GET", "/v1/models/q7chat32/deployments/w5prod01/metrics"),
    "loops metrics": (LoopsAnswer, "POST", "/v1/loops/deployments/tr2x4sft/metrics"),
}


def found(raw: object, answer_type: type) -> list[Unknown]:
    return list(unknown(raw, inspect.type_info(answer_type)))


@pytest.mark.parametrize(("answer_type", "method", "target"), ANSWERS.values(), ids=ANSWERS)
def test_all_that_is_documented_is_known(answer_type: type, method: str, target: str) -> None:
    request = Request(method, target, {"authorization": f"Bearer {KEY}"}, b"{}")
    _, response = Api(World.demo(), KEY).answer(request, 1_790_000_000.0)
    assert found(json.loads(response.body), answer_type) == []


@pytest.mark.parametrize(
    ("answer_type", "raw", "what", "path"),
    [
        (Models, {"models": [], "next": 1}, "field", "$.next"),
        (Models, {"models": [{"id": "a", "owner": 1}]}, "field", "$.models[].owner"),
        (
            Deployments,
            {"deployments": [{"id": "a", "status": "NAPPING"}]},
            "value",
            "$.deployments[].status=NAPPING",
        ),
        (
            Deployments,
            {"deployments": [{"id": "a", "autoscaling_settings": {"mood": 1}}]},
            "field",
            "$.deployments[].autoscaling_settings.mood",
        ),
        (
            Environments,
            {"environments": [{"name": "p", "in_progress_promotion": {"status": "STUCK"}}]},
            "value",
            "$.environments[].in_progress_promotion.status=STUCK",
        ),
        (
            Trainers,
            {"deployments": [{"id": "t", "status": {"name": "DREAMING"}}]},
            "value",
            "$.deployments[].status.name=DREAMING",
        ),
        (
            ModelAnswer,
            {"metric_descriptors": [{"name": "x", "kind": "SKETCH"}], "metric_values": []},
            "value",
            "$.metric_descriptors[].kind=SKETCH",
        ),
        (
            LoopsAnswer,
            {"metrics": {"gpu_utilization": {"0": [{"value": 1, "timestamp": "", "unit": "x"}]}}},
            "field",
            "$.metrics.gpu_utilization.*[].unit",
        ),
    ],
)
def test_an_unknown_item_has_a_path(answer_type: type, raw: Any, what: str, path: str) -> None:
    assert found(raw, answer_type) == [Unknown(what, path)]  # type: ignore[arg-type] # as the table has it


@pytest.mark.parametrize("answer_type", [each for each, _, _ in ANSWERS.values()])
@given(raw=st.recursive(st.none() | st.text(max_size=3) | st.integers(), st.lists))
def test_any_data_can_be_looked_at(answer_type: type, raw: object) -> None:
    items = found({"models": raw, "deployments": raw, "metrics": raw}, answer_type)
    assert all(item.path.startswith("$.") for item in items)


def test_an_item_is_told_and_logged_once_and_looks_are_rare(caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, Unknown]] = []
    now = [0.0]
    drift = Drift("team", lambda endpoint, item: told.append((endpoint, item)), lambda: now[0])
    item = ("models", Unknown("field", "$.models[].owner"))
    body = b'{"models": [{"id": "a", "owner": 1}, {"id": "b", "owner": 2}]}'
    with caplog.at_level(logging.WARNING):
        for now[0], sent in [(0, body), (1, b'{"models": [], "missed": 1}'), (600, body), (1200, b"{NaN")]:
            drift.look("models", sent, Models)
    assert told == list(drift.found) == [item]
    assert len(caplog.records) == 1


def test_what_is_remembered_is_bounded() -> None:
    told: list[str] = []
    drift = Drift("team", lambda _, item: told.append(item.path), lambda: 0.0)
    drift.look("models", json.dumps({"models": [], **{f"x{n}": 1 for n in range(2000)}}).encode(), Models)
    assert len(told) == len(drift.found) == 1000
