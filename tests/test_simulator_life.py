"""The simulated organizations change as their timetables say, and answer as the API would at any moment."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from exporter.simulator import Request, Simulator, World, demo, life
from exporter.simulator.api import Api

KEY = "s3cret"
START = 1_790_000_000.0
LIFE = World.life(START)
DEMO = World.demo(start=START)
LISTINGS = json.loads((Path(__file__).parent / "schemas" / "listings.json").read_text())
CHAT = f"/v1/models/{demo.CHAT}"
MODEL = f"/v1/models/{life.MODEL}"
BYSTANDER = f"/v1/models/{life.BYSTANDER[0]}"


def ask(world: World, offset: float, path: str, method: str = "GET") -> Any:
    """The answer so many seconds after the start; None where there is nothing."""
    request = Request(method, path, {"authorization": f"Bearer {KEY}"}, b"{}")
    response = Api(world, KEY, limit=None).answer(request, START + offset)[1]
    assert response.status in {200, 404}
    return json.loads(response.body) if response.status == 200 else None


def deployment(offset: float, ids: tuple[str, str], world: World = LIFE) -> Any:
    return ask(world, offset, f"/v1/models/{ids[0]}/deployments/{ids[1]}")


def state(offset: float, ids: tuple[str, str]) -> Any:
    found = deployment(offset, ids)
    return found and (found["status"], found["environment"], found["active_replica_count"])


def trainer(offset: float) -> Any:
    found = ask(LIFE, offset, f"/v1/loops/deployments/{life.TRAINER}")
    return found and (found["deployment"]["status"]["name"], found["deployment"]["sampler"]["status"]["name"])


def environment(world: World, offset: float, path: str) -> Any:
    """Who serves in production, who is to, and at what percentage."""
    (production,) = (
        each
        for each in ask(world, offset, f"{path}/environments")["environments"]
        if each["name"] == "production"
    )
    candidate, ramp = production["candidate_deployment"], production["in_progress_promotion"]
    return (
        production["current_deployment"]["id"],
        candidate and candidate["id"],
        ramp and ramp["status"],
        ramp and ramp["percent_traffic_to_new_version"],
    )


def schemas(world: World, offset: float) -> Iterator[tuple[str, str]]:
    """What there is to ask at a moment, with the name of its schema."""
    yield from (("models", "/v1/models"), ("instance_type_prices", "/v1/instance_type_prices"))
    yield "loops_deployments", "/v1/loops/deployments?scope=org"
    for kind, model_id, deployment_id in world.at(START + offset).targets():
        path = f"/v1/models/{model_id}"
        if kind == "loops":
            yield "loops_deployment", f"/v1/loops/deployments/{deployment_id}"
        else:
            yield from (("model", path), ("deployments", f"{path}/deployments"))
            yield "deployment", f"{path}/deployments/{deployment_id}"
            yield "environments", f"{path}/environments"


def check_shapes(world: World, offset: float) -> None:
    for name, path in set(schemas(world, offset)):
        Draft202012Validator(LISTINGS | {"$ref": f"#/$defs/{name}"}).validate(ask(world, offset, path))


# One life

FIRST = [
    (life.CREATED, ("BUILDING", "production", 0)),
    (life.DEPLOYING, ("DEPLOYING", "production", 0)),
    (life.LOADING, ("LOADING_MODEL", "production", 0)),
    (life.ACTIVE, ("ACTIVE", "production", 2)),
    (life.PROMOTION_ENDS, ("ACTIVE", None, 2)),
    (life.FIRST_DEACTIVATING, ("DEACTIVATING", None, 0)),
    (life.FIRST_INACTIVE, ("INACTIVE", None, 0)),
    (life.FIRST_DELETED, None),
]
SECOND = [
    (life.SECOND_CREATED, ("BUILDING", None, 0)),
    (life.SECOND_DEPLOYING, ("DEPLOYING", None, 0)),
    (life.SECOND_LOADING, ("LOADING_MODEL", None, 0)),
    (life.SECOND_ACTIVE, ("ACTIVE", None, 2)),
    (life.PROMOTION_ENDS, ("ACTIVE", "production", 2)),
    (life.SCALED_TO_ZERO, ("SCALED_TO_ZERO", "production", 0)),
    (life.WAKING_UP, ("WAKING_UP", "production", 0)),
    (life.AWAKE, ("ACTIVE", "production", 2)),
    (life.UNHEALTHY, ("UNHEALTHY", "production", 2)),
    (life.HEALTHY_AGAIN, ("ACTIVE", "production", 2)),
    (life.FAILED, ("FAILED", "production", 0)),
    (life.MODEL_DELETED, None),
]
LOOPS = [
    (life.LOOPS_CREATED, ("CREATED", "BUILDING")),
    (life.LOOPS_DEPLOYING, ("DEPLOYING", "DEPLOYING")),
    (life.LOOPS_RUNNING, ("RUNNING", "ACTIVE")),
    (life.LOOPS_SCALED_TO_ZERO, ("SCALED_TO_ZERO", "SCALED_TO_ZERO")),
    (life.LOOPS_RUNNING_AGAIN, ("RUNNING", "ACTIVE")),
    (life.LOOPS_FAILED, ("FAILED", "UNHEALTHY")),
    (life.LOOPS_STOPPED, ("STOPPED", "INACTIVE")),
    (life.LOOPS_DELETED, None),
]


@pytest.mark.parametrize("ids", [life.FIRST, life.SECOND, life.SAMPLER], ids=str)
def test_before_its_creation_there_is_nothing(ids: tuple[str, str]) -> None:
    for offset in (-1e6, 0, life.CREATED - 1):
        assert deployment(offset, ids) is None
        assert ask(LIFE, offset, f"/v1/models/{ids[0]}/environments") is None
        assert trainer(offset) is None


@pytest.mark.parametrize(("ids", "stages"), [(life.FIRST, FIRST), (life.SECOND, SECOND)], ids=["1st", "2nd"])
def test_a_deployment_is_in_each_state_until_the_next(ids: tuple[str, str], stages: Any) -> None:
    for (begins, expected), (ends, _) in pairwise((*stages, (10_000, None))):
        assert [state(offset, ids) for offset in (begins, ends - 1)] == [expected, expected]


def test_a_trainer_and_its_sampler_go_through_their_states() -> None:
    for (begins, expected), (ends, _) in pairwise((*LOOPS, (10_000, None))):
        assert [trainer(offset) for offset in (begins, ends - 1)] == [expected, expected]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (life.PROMOTION_STARTS - 1, (life.FIRST[1], None, None, None)),
        (life.PROMOTION_STARTS, (life.FIRST[1], life.SECOND[1], "RELEASING", 0)),
        (life.PROMOTION_STARTS + 3, (life.FIRST[1], life.SECOND[1], "RAMPING_UP", 1)),
        (life.PROMOTION_STARTS + 76, (life.FIRST[1], life.SECOND[1], "RAMPING_UP", 25)),
        (life.PROMOTION_STARTS + 150, (life.FIRST[1], life.SECOND[1], "RAMPING_UP", 50)),
        (life.PROMOTION_ENDS - 1, (life.FIRST[1], life.SECOND[1], "RAMPING_UP", 99)),
        (life.PROMOTION_ENDS, (life.SECOND[1], None, None, None)),
        (life.MODEL_DELETED - 1, (life.SECOND[1], None, None, None)),
    ],
)
def test_a_promotion_ramps_up_and_then_the_candidate_serves(offset: float, expected: Any) -> None:
    assert environment(LIFE, offset, MODEL) == expected


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (life.CREATED, (life.NAME, 1, life.FIRST[1])),
        (life.SECOND_CREATED, (life.NAME, 2, life.FIRST[1])),
        (life.PROMOTION_ENDS, (life.NAME, 2, life.SECOND[1])),
        (life.MODEL_RENAMED, (life.NEW_NAME, 2, life.SECOND[1])),
        (life.FIRST_DELETED, (life.NEW_NAME, 1, life.SECOND[1])),
    ],
)
def test_a_model_is_listed_as_it_is(offset: float, expected: Any) -> None:
    listed = ask(LIFE, offset, "/v1/models")["models"]
    found = ask(LIFE, offset, MODEL)
    assert found in listed
    assert (found["name"], found["deployments_count"], found["production_deployment_id"]) == expected


def test_a_deployment_may_be_renamed() -> None:
    names = [deployment(life.DEPLOYMENT_RENAMED - wait, life.SECOND)["name"] for wait in (1, 0)]
    assert names == [life.DEPLOYMENT_NAME, life.NEW_DEPLOYMENT_NAME]


def test_what_was_created_says_when() -> None:
    assert ask(LIFE, life.CREATED, MODEL)["created_at"] == "2026-09-21T14:14:20Z"
    assert deployment(life.SECOND_CREATED, life.SECOND)["created_at"] == "2026-09-21T14:18:20Z"


def test_settings_are_null_until_deployed() -> None:
    offsets = (life.CREATED, life.DEPLOYING, life.ACTIVE)
    assert [deployment(each, life.FIRST)["autoscaling_settings"] is None for each in offsets] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(("offset", "expected"), SECOND)
def test_only_what_serves_has_metrics_to_speak_of(offset: float, expected: Any) -> None:
    path = f"{MODEL}/deployments/{life.SECOND[1]}/metrics?metrics="
    utilization = ask(LIFE, offset, f"{path}baseten_gpu_utilization")
    latency = ask(LIFE, offset, f"{path}baseten_end_to_end_response_time_seconds")
    assert [utilization is None, latency is None] == [expected is None] * 2
    if expected:
        assert len(utilization["metric_descriptors"][0]["label_sets"]) == expected[2]
        assert (latency["metric_values"][0]["values"][0][0] is not None) == bool(expected[2])


@pytest.mark.parametrize(("offset", "expected"), LOOPS)
def test_only_a_running_trainer_has_points(offset: float, expected: Any) -> None:
    found = ask(LIFE, offset, f"/v1/loops/deployments/{life.TRAINER}/metrics", "POST")
    assert (found and bool(found["metrics"]["gpu_utilization"])) == (expected and expected[0] == "RUNNING")


def test_at_the_end_only_the_bystander_is_left_and_it_never_changed() -> None:
    assert LIFE.at(START + 10_000) == LIFE.at(START)
    answers = [
        ask(LIFE, event.at, f"{BYSTANDER}{rest}")
        for event in LIFE.timetable.events
        for rest in ("", "/deployments", "/environments")
    ]
    assert len({json.dumps(answer) for answer in answers}) == 3


def test_the_shapes_hold_after_every_event() -> None:
    for offset in {event.at for event in LIFE.timetable.events if event.at % 20 == 0}:
        check_shapes(LIFE, offset)


def test_there_is_one_organization_from_each_event_to_the_next() -> None:
    assert LIFE.at(START + life.ACTIVE) is LIFE.at(START + life.SECOND_CREATED - 1)
    assert LIFE.at(START + life.ACTIVE) is not LIFE.at(START + life.SECOND_CREATED)


def test_a_running_server_lists_what_there_is_at_the_time() -> None:
    times = iter([START, START + life.CREATED, START + life.MODEL_RENAMED, START + life.MODEL_DELETED])
    with Simulator(LIFE, key=KEY, clock=lambda: next(times)) as simulator:
        headers = {"Authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=simulator.url, headers=headers, trust_env=False) as client:
            found = [client.get(MODEL) for _ in range(4)]
    assert [each.json().get("name") for each in found] == [None, life.NAME, life.NEW_NAME, None]


# The demo


def test_nothing_happens_to_a_demo_without_a_start() -> None:
    world = World.demo()
    assert world.at(0) is world.at(START) is world.at(START + 1e6)
    assert world.at(START) == DEMO.at(START) == DEMO.at(START - 1)


def test_within_five_minutes_the_demo_shows_a_promotion_that_completes() -> None:
    seen = [environment(DEMO, offset, CHAT) for offset in range(300)]
    percents = [each[3] for each in seen if each[3] is not None]
    assert len(set(percents)) > 50
    assert percents == sorted(percents)
    assert (seen[0], seen[-1]) == (
        (demo.CHAT_PRODUCTION, None, None, None),
        (demo.CHAT_STAGING, None, None, None),
    )


@pytest.mark.parametrize(
    ("ids", "stages"),
    [
        (demo.CODE, ["ACTIVE", "UNHEALTHY", "ACTIVE"]),
        (demo.UPSCALER, ["ACTIVE", "SCALED_TO_ZERO", "WAKING_UP", "ACTIVE"]),
    ],
)
def test_within_five_minutes_the_demo_shows_changes_of_status(ids: tuple[str, str], stages: Any) -> None:
    seen = [deployment(offset, ids, DEMO)["status"] for offset in range(301)]
    changes = [b for a, b in pairwise(["", *seen]) if a != b]
    assert changes == stages


def test_the_demo_is_back_where_it_began_and_starts_over() -> None:
    assert DEMO.at(START + demo.RETURN_ENDS) == DEMO.at(START)
    for offset in range(0, demo.PERIOD, 7):
        assert DEMO.at(START + offset) is DEMO.at(START + offset + 50 * demo.PERIOD)


def test_the_demo_has_the_same_targets_at_any_time() -> None:
    assert {tuple(DEMO.at(START + offset).targets()) for offset in range(0, demo.PERIOD, 10)} == {
        tuple(World.demo().targets())
    }


def test_the_shapes_hold_throughout_the_demo() -> None:
    for offset in range(0, demo.PERIOD, 30):
        check_shapes(DEMO, offset)


# Large organizations


@pytest.mark.parametrize(("models", "deployments"), [(0, 3), (1, 1), (7, 3), (40, 5)])
def test_an_organization_has_so_many_models_of_so_many_deployments(models: int, deployments: int) -> None:
    world = World.organization(models, deployments)
    assert len(world.models) == len({model.name for model in world.models}) == models
    assert {len(model.deployments) for model in world.models} <= {deployments}
    assert len(set(world.targets())) == models * deployments
    check_shapes(world, 0)


def test_an_organization_is_mixed_as_real_ones_are() -> None:
    world = World.organization(2000)
    deployments = list(world.deployment_by_ids.values())
    statuses = Counter(each.status for each in deployments)
    assert statuses["ACTIVE"] > 4 * statuses["SCALED_TO_ZERO"] > 4 * statuses["INACTIVE"] > 0
    assert Counter(each.environment for each in deployments) == {
        "production": 2000,
        "staging": 2000,
        "development": 1000,
        None: 1000,
    }
    assert len({each.instance for each in deployments}) > 4
    assert len({model.team for model in world.models}) > 4
    assert len({each.labels for each in deployments}) > 2
    assert world == World.organization(2000) != World.organization(2000, seed=2)


def test_a_list_is_made_once_as_long_as_nothing_changes() -> None:
    api = Api(LIFE, KEY, limit=None)

    def listed(offset: float) -> bytes:
        request = Request("GET", "/v1/models", {"authorization": f"Bearer {KEY}"})
        return api.answer(request, START + offset)[1].body

    assert listed(life.ACTIVE) is listed(life.ACTIVE + 1)
    assert listed(life.MODEL_RENAMED) != listed(life.ACTIVE)


def test_an_organization_is_served_on_its_own() -> None:
    command = [sys.executable, "-m", "exporter.simulator", "--organization=2000", f"--key={KEY}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip() if process.stdout else ""
        headers = {"Authorization": f"Bearer {KEY}"}
        found = httpx.get(f"{url}/v1/models", headers=headers, trust_env=False).json()["models"]
        process.terminate()
    assert (len(found), process.returncode) == (2000, 0)
