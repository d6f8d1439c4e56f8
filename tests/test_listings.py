"""The listings as the API answers them: what is read, what may be missing, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from exporter.baseten import listings
from exporter.baseten.answers import decode
from exporter.baseten.errors import ApiError
from exporter.baseten.listings import (
    Autoscaling,
    Deployment,
    Deployments,
    Environment,
    Environments,
    InstanceType,
    Model,
    Models,
    Price,
    Prices,
    Promotion,
    Reference,
    Sampler,
    SamplerStatus,
    Status,
    Trainer,
    Trainers,
)
from exporter.simulator import Request, World, life
from exporter.simulator.api import Api
from tests.helpers_baseten import Json, encoded

START = 1_790_000_000.0
ANY_MODEL = f"/v1/models/{life.MODEL}"
SCHEMAS = json.loads((Path(__file__).parent / "schemas" / "listings.json").read_text())


# Good answers


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param({"models": []}, Models([]), id="no models"),
        pytest.param({"models": [{"id": "m"}]}, Models([Model("m")]), id="a model's id is enough"),
        pytest.param(
            {"models": [{"id": "m", "name": "chat", "team_name": "applied", "deployments_count": 2}]},
            Models([Model("m", "chat", "applied")]),
            id="a model",
        ),
        pytest.param(
            {"models": [{"id": "m", "name": None, "team_name": None}]}, Models([Model("m")]), id="nulls"
        ),
        pytest.param(
            {"models": [{"id": "m", "tomorrow": {"x": [1]}}], "next_page": None},
            Models([Model("m")]),
            id="fields of tomorrow",
        ),
        pytest.param(
            {"models": [{"id": "m"}, {"id": "m"}]}, Models([Model("m"), Model("m")]), id="the same twice"
        ),
        pytest.param(b'{"models": [{"id": "\\ud800"}]}', Models([Model("\ud800")]), id="a lone surrogate"),
        pytest.param({"deployments": [{"id": "d"}]}, Deployments([Deployment("d")]), id="an id is enough"),
        pytest.param(
            {
                "deployments": [
                    {
                        "id": "d",
                        "name": "v1",
                        "environment": "production",
                        "status": "DREAMING",
                        "active_replica_count": 2,
                        "instance_type_name": "L4:4x16",
                        "created_at": "2026-09-21T14:14:20Z",
                        "labels": {"tier": "gold", "level": 3},
                        "autoscaling_settings": {"min_replica": 1, "target_in_flight_tokens": 7},
                    }
                ]
            },
            Deployments(
                [
                    Deployment(
                        "d",
                        "v1",
                        "production",
                        "DREAMING",
                        2,
                        "L4:4x16",
                        "2026-09-21T14:14:20Z",
                        Autoscaling(min_replica=1),
                        {"tier": "gold", "level": 3},
                    )
                ]
            ),
            id="a deployment in a status of tomorrow",
        ),
        pytest.param(
            {"environments": [{"name": "production", "current_deployment": None}]},
            Environments([Environment("production")]),
            id="an environment that is empty",
        ),
        pytest.param(
            {
                "environments": [
                    {
                        "name": "production",
                        "current_deployment": {"id": "d1", "status": "ACTIVE"},
                        "candidate_deployment": {"id": "d2"},
                        "in_progress_promotion": {
                            "status": "RAMPING_UP",
                            "percent_traffic_to_new_version": 25,
                        },
                    }
                ]
            },
            Environments(
                [Environment("production", Reference("d1"), Reference("d2"), Promotion("RAMPING_UP", 25))]
            ),
            id="a promotion",
        ),
        pytest.param({"deployments": [{"id": "t"}]}, Trainers([Trainer("t")]), id="a trainer's id is enough"),
        pytest.param(
            {
                "deployments": [
                    {
                        "id": "t",
                        "base_model": "Qwen/Qwen3-8B",
                        "status": {"name": "RUNNING"},
                        "sampler": {
                            "id": "s",
                            "model_id": "m",
                            "deployment_id": "d",
                            "status": {"name": "ACTIVE"},
                        },
                    }
                ]
            },
            Trainers(
                [
                    Trainer(
                        "t",
                        "Qwen/Qwen3-8B",
                        Status("RUNNING"),
                        Sampler("m", "d", "s", SamplerStatus("ACTIVE")),
                    )
                ]
            ),
            id="a trainer and its sampler",
        ),
        pytest.param(
            {"instance_types": [{"instance_type": {"name": "CPU:2x8", "gpu_type": None}, "price": 0.00173}]},
            Prices([Price(InstanceType("CPU:2x8"), 0.00173)]),
            id="a price",
        ),
    ],
)
def test_what_is_read(answer: object, expected: object) -> None:
    assert decode(type(expected), encoded(answer)) == expected


# Bad answers


@pytest.mark.parametrize(
    ("listing", "answer", "said"),
    [
        (Models, {}, "missing required field `models`"),
        (Models, {"models": None}, r"got `null` - at `\$.models`"),
        (Models, {"models": [{"name": "chat"}]}, r"missing required field `id` - at `\$.models\[0\]`"),
        (Models, {"models": [{"id": 7}]}, r"Expected `str`, got `int` - at `\$.models\[0\].id`"),
        (Models, {"models": ["m"]}, r"Expected `object`, got `str`"),
        (Models, [], "Expected `object`, got `array`"),
        (Deployments, {"deployments": [{"id": "d", "active_replica_count": "2"}]}, "active_replica_count"),
        (Deployments, {"deployments": [{"id": "d", "labels": ["x"]}]}, "labels"),
        (Environments, {"environments": [{}]}, "missing required field `name`"),
        (Environments, {"environments": [{"name": "p", "current_deployment": {}}]}, "field `id`"),
        (Trainers, {"deployments": [{"id": "t", "sampler": {"model_id": "m"}}]}, "field `deployment_id`"),
        (Trainers, {"deployments": [{"id": "t", "status": "RUNNING"}]}, "status"),
        (Prices, {"instance_types": [{"price": 1}]}, "missing required field `instance_type`"),
        (Prices, b"<!doctype html>", "not JSON"),
        (Prices, b"", "not JSON"),
        (Prices, b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_refused_names_its_place(listing: Any, answer: object, said: str) -> None:
    with pytest.raises(ApiError, match=said) as caught:
        decode(listing, encoded(answer))
    assert caught.value.reason == "invalid_response"


# The simulator, whose shapes are the documented ones


@pytest.mark.parametrize(
    ("path", "schema", "listing"),
    [
        ("/v1/models", "models", Models),
        (f"{ANY_MODEL}/deployments", "deployments", Deployments),
        (f"{ANY_MODEL}/environments", "environments", Environments),
        ("/v1/loops/deployments?scope=org", "loops_deployments", Trainers),
        ("/v1/instance_type_prices", "instance_type_prices", Prices),
    ],
)
def test_documented_answers_are_read_without_their_owners(path: str, schema: str, listing: Any) -> None:
    request = Request("GET", path, {"authorization": "Bearer k"})
    now = START + life.PROMOTION_STARTS + 30
    _, response = Api(World.life(START), "k", None).answer(request, now)
    answer: Json = json.loads(response.body)
    Draft202012Validator(SCHEMAS | {"$ref": f"#/$defs/{schema}"}).validate(answer)
    assert "@" not in repr(decode(listing, response.body))


def test_no_type_has_a_place_for_an_owner() -> None:
    types = [each for each in vars(listings).values() if hasattr(each, "__struct_fields__")]
    fields = {name for each in types for name in each.__struct_fields__}
    assert len(types) > 10
    assert not fields & {"user", "email", "owner", "created_by"}
