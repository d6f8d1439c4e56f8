"""Listings in, exposition text out."""

import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from exporter import exposition
from exporter.baseten.answers import decode
from exporter.baseten.errors import ApiError
from exporter.baseten.inventory import METRICS, Inventory, ModelListing, harvest
from exporter.baseten.listings import Deployments, Environments, Models, Prices, Trainers
from exporter.baseten.selection import Wanted, select
from exporter.exposition import Format
from exporter.model import Discovery, Labels, LoopsSelector, ModelSelector
from tests.helpers_baseten import Json, encoded, expected, grouped

WORKSPACE = (("workspace", "w"),)
NAMES = ("model_name", "environment")
IDS = 'deployment_id="d",model_id="m",workspace="w"'


def inventory_of(
    models: Iterable[Json] = (), trainers: Iterable[Json] = (), prices: Iterable[Json] = ()
) -> Inventory:
    """An inventory from listings as the API answers them; a model stands with what it has."""
    return Inventory(
        {each["id"]: _listing(each) for each in models},
        tuple(_read(Trainers, deployments=list(trainers)).deployments),
        {each.instance_type.name: each for each in _read(Prices, instance_types=list(prices)).instance_types},
    )


def _listing(raw: Json) -> ModelListing:
    (model,) = _read(Models, models=[raw]).models
    deployments = _read(Deployments, deployments=raw.get("deployments", [])).deployments
    environments = _read(Environments, environments=raw.get("environments", [])).environments
    return ModelListing(model, tuple(deployments), tuple(environments))


def _read(listing: Any, **answer: object) -> Any:
    return decode(listing, encoded(answer))


def page(inventory: Inventory, metadata: Collection[str] = (), own: Labels = WORKSPACE) -> list[str]:
    pieces = exposition.pieces(harvest(inventory, metadata).families(), own)
    text = b"".join(exposition.blocks(grouped([pieces]), Format.TEXT)).decode()
    return sorted(line for line in text.split("\n") if line and not line.startswith("#"))


def model(*deployments: Json, **more: object) -> Json:
    return {"id": "m", "name": "chat", "deployments": list(deployments), **more}


def priced(name: str, price: float | None, **more: object) -> Json:
    return {"instance_type": {"name": name, **more}, "price": price}


def _status(name: str) -> str:
    return (
        f'baseten_model_deployment_status{{deployment_id="d",model_id="m",status="{name}",workspace="w"}} 1.0'
    )


# One deployment


@pytest.mark.parametrize(
    ("deployment", "lines"),
    [
        pytest.param({}, "", id="only an id"),
        pytest.param({"status": None, "active_replica_count": None, "created_at": None}, "", id="nulls"),
        pytest.param(
            {"status": "ACTIVE"},
            _status("ACTIVE"),
            id="status",
        ),
        pytest.param(
            {"status": "DREAMING"},
            _status("DREAMING"),
            id="a status of tomorrow",
        ),
        pytest.param({"status": ""}, "", id="an empty status"),
        pytest.param(
            {"active_replica_count": 3},
            f"baseten_model_deployment_active_replicas{{{IDS}}} 3.0",
            id="replicas",
        ),
        pytest.param(
            {"active_replica_count": 0, "instance_type_name": "L4"},
            f"""baseten_model_deployment_active_replicas{{{IDS}}} 0.0
                baseten_model_deployment_price_dollars_per_hour{{{IDS}}} 0.0""",
            id="scaled to zero costs nothing",
        ),
        pytest.param(
            {"active_replica_count": 3, "instance_type_name": "L4"},
            f"""baseten_model_deployment_active_replicas{{{IDS}}} 3.0
                baseten_model_deployment_price_dollars_per_hour{{{IDS}}} 90.0""",
            id="three replicas at half a dollar per minute",
        ),
        pytest.param({"instance_type_name": "L4"}, "", id="no price without replicas"),
        pytest.param(
            {"active_replica_count": 1, "instance_type_name": "unpriced"},
            f"baseten_model_deployment_active_replicas{{{IDS}}} 1.0",
            id="a price that is null",
        ),
        pytest.param(
            {"active_replica_count": 1, "instance_type_name": "unlisted"},
            f"baseten_model_deployment_active_replicas{{{IDS}}} 1.0",
            id="a price that is not listed",
        ),
        pytest.param(
            {"created_at": "2026-09-21T14:14:20Z"},
            f"baseten_model_deployment_created_timestamp_seconds{{{IDS}}} 1.79000006e+09",
            id="created",
        ),
        pytest.param({"created_at": "yesterday"}, "", id="a time that is none"),
        pytest.param(
            {
                "autoscaling_settings": {
                    "min_replica": 0,
                    "max_replica": 4,
                    "concurrency_target": 8,
                    "scale_down_delay": 900,
                    "autoscaling_window": 60,
                    "target_utilization_percentage": 70,
                }
            },
            f"""baseten_model_deployment_autoscaling_min_replicas{{{IDS}}} 0.0
                baseten_model_deployment_autoscaling_max_replicas{{{IDS}}} 4.0
                baseten_model_deployment_autoscaling_concurrency_target{{{IDS}}} 8.0
                baseten_model_deployment_autoscaling_scale_down_delay_seconds{{{IDS}}} 900.0
                baseten_model_deployment_autoscaling_window_seconds{{{IDS}}} 60.0
                baseten_model_deployment_autoscaling_target_utilization_ratio{{{IDS}}} 0.7""",
            id="autoscaling",
        ),
        pytest.param({"autoscaling_settings": None}, "", id="no autoscaling"),
        pytest.param({"autoscaling_settings": {"max_replica": None}}, "", id="autoscaling of nulls"),
    ],
)
def test_what_is_said_of_a_deployment(deployment: Json, lines: str) -> None:
    known = inventory_of(
        [model({"id": "d", **deployment})], (), [priced("L4", 0.5), priced("unpriced", None)]
    )
    said = [line for line in page(known) if "_deployment_info{" not in line and "instance_type_" not in line]
    assert said == expected(lines)


@pytest.mark.parametrize(
    ("deployment", "model_facts", "labels"),
    [
        pytest.param({}, {"name": None}, "", id="only ids"),
        pytest.param(
            {"name": "v1", "environment": "production", "instance_type_name": "L4"},
            {"team_name": "applied"},
            'deployment_name="v1",environment="production",instance_type="L4",model_name="chat",team="applied"',
            id="everything",
        ),
        pytest.param({"environment": ""}, {"name": ""}, "", id="empty texts"),
        pytest.param(
            {"labels": {"tier": "gold", "level": 3, "paid": True, "share": 0.5}},
            {"name": None},
            'label_level="3",label_paid="true",label_share="0.5",label_tier="gold"',
            id="the user's labels",
        ),
        pytest.param(
            {"labels": {"none": None, "empty": "", "list": [1], "object": {"a": 1}}},
            {"name": None},
            "",
            id="labels that are no text",
        ),
        pytest.param(
            {"labels": {"a.b": "1", "a-b": "2", "a b": "3"}},
            {"name": None},
            'label_a_b="3"',
            id="names that become one: the first in order",
        ),
        pytest.param(
            {"labels": {"": "x", "model_id": "y", "__name__": "z", "é\n": '"\\\n'}},
            {"name": None},
            r'label_="x",label___="\"\\\n",label___name__="z",label_model_id="y"',
            id="hostile names and values",
        ),
        pytest.param(
            {"labels": {"x" * 300: "y" * 300}},
            {"name": None},
            f'label_{"x" * 200}="{"y" * 200}"',
            id="long ones are cut",
        ),
        pytest.param(
            {"labels": {f"n{number:02}": "x" for number in range(50)}},
            {"name": None},
            ",".join(f'label_n{number:02}="x"' for number in range(20)),
            id="the first twenty",
        ),
        pytest.param({"name": "\ud800"}, {"name": None}, 'deployment_name="?"', id="a lone surrogate"),
    ],
)
def test_the_info_of_a_deployment(deployment: Json, model_facts: Json, labels: str) -> None:
    known = inventory_of([model({"id": "d", **deployment}, **model_facts)])
    pairs = {*labels.split(","), 'deployment_id="d"', 'model_id="m"', 'workspace="w"'} - {""}
    own = ",".join(sorted(pairs, key=lambda pair: pair.partition("=")[0]))
    assert page(known) == [f"baseten_model_deployment_info{{{own}}} 1.0"]


@pytest.mark.parametrize(
    ("metadata", "labels"),
    [
        ((), IDS),
        (NAMES, 'deployment_id="d",environment="production",model_id="m",model_name="chat",workspace="w"'),
        (("model_name",), 'deployment_id="d",model_id="m",model_name="chat",workspace="w"'),
        (("base_model", "loops_deployment_id"), IDS),
    ],
)
def test_the_names_stand_on_every_series_where_they_are_wanted(
    metadata: tuple[str, ...], labels: str
) -> None:
    known = inventory_of([model({"id": "d", "environment": "production", "active_replica_count": 2})])
    assert f"baseten_model_deployment_active_replicas{{{labels}}} 2.0" in page(known, metadata)
    (info,) = [line for line in page(known, metadata) if "_info{" in line]
    assert 'environment="production"' in info
    assert 'model_name="chat"' in info


def test_the_same_deployment_twice_stands_once() -> None:
    twice = {"id": "d", "active_replica_count": 2, "status": "ACTIVE"}
    assert page(inventory_of([model(twice, twice)])) == page(inventory_of([model(twice)]))


# Environments

PROMOTED = 'candidate_deployment_id="d2",deployment_id="d1"'
ENVIRONMENT = 'environment="production",model_id="m",workspace="w"'


@pytest.mark.parametrize(
    ("environment", "lines"),
    [
        pytest.param(
            {},
            f"""baseten_model_environment_info{{{ENVIRONMENT}}} 1.0
                baseten_model_environment_promotion_in_progress{{{ENVIRONMENT}}} 0.0""",
            id="an empty one",
        ),
        pytest.param(
            {"current_deployment": {"id": "d1"}, "candidate_deployment": None},
            f"""baseten_model_environment_info{{deployment_id="d1",{ENVIRONMENT}}} 1.0
                baseten_model_environment_promotion_in_progress{{{ENVIRONMENT}}} 0.0""",
            id="current",
        ),
        pytest.param(
            {
                "current_deployment": {"id": "d1"},
                "candidate_deployment": {"id": "d2"},
                "in_progress_promotion": {"status": "RAMPING_UP", "percent_traffic_to_new_version": 25},
            },
            f"""baseten_model_environment_info{{{PROMOTED},{ENVIRONMENT}}} 1.0
                baseten_model_environment_promotion_in_progress{{{ENVIRONMENT}}} 1.0
                baseten_model_environment_promotion_traffic_ratio{{{ENVIRONMENT}}} 0.25""",
            id="a promotion",
        ),
        pytest.param(
            {"in_progress_promotion": {"status": "TOMORROW", "percent_traffic_to_new_version": None}},
            f"""baseten_model_environment_info{{{ENVIRONMENT}}} 1.0
                baseten_model_environment_promotion_in_progress{{{ENVIRONMENT}}} 1.0""",
            id="a promotion in a status of tomorrow",
        ),
        *(
            pytest.param(
                {"in_progress_promotion": {"status": status, "percent_traffic_to_new_version": 100}},
                f"""baseten_model_environment_info{{{ENVIRONMENT}}} 1.0
                    baseten_model_environment_promotion_in_progress{{{ENVIRONMENT}}} 0.0""",
                id=status,
            )
            for status in ("SUCCEEDED", "FAILED", "CANCELED")
        ),
    ],
)
def test_what_is_said_of_an_environment(environment: Json, lines: str) -> None:
    known = inventory_of([model(environments=[{"name": "production", **environment}])])
    assert page(known) == expected(lines)


# Loops and prices

TRAINER = 'deployment_id="t",workspace="w"'
SAMPLER: Json = {"model_id": "m", "deployment_id": "d"}


@pytest.mark.parametrize(
    ("trainer", "lines"),
    [
        pytest.param({}, f"baseten_loops_deployment_info{{{TRAINER}}} 1.0", id="only an id"),
        pytest.param(
            {"base_model": "Qwen/Qwen3-8B", "status": {"name": "RUNNING"}},
            f"""baseten_loops_deployment_info{{base_model="Qwen/Qwen3-8B",{TRAINER}}} 1.0
                baseten_loops_deployment_status{{deployment_id="t",status="RUNNING",workspace="w"}} 1.0""",
            id="a trainer",
        ),
        pytest.param(
            {"sampler": {**SAMPLER, "id": "s", "status": {"name": "WAKING_UP"}}},
            """baseten_loops_deployment_info{deployment_id="t",sampler_deployment_id="d",sampler_id="s",\
sampler_model_id="m",workspace="w"} 1.0
               baseten_loops_sampler_status{deployment_id="t",status="WAKING_UP",workspace="w"} 1.0""",
            id="a sampler",
        ),
        pytest.param(
            {"status": {"name": None}, "sampler": SAMPLER},
            """baseten_loops_deployment_info{deployment_id="t",sampler_deployment_id="d",\
sampler_model_id="m",workspace="w"} 1.0""",
            id="without statuses",
        ),
        pytest.param(
            {"status": {}, "user": {"email": "ada@example.com"}, "sampler": {**SAMPLER, "status": {}}},
            """baseten_loops_deployment_info{deployment_id="t",sampler_deployment_id="d",\
sampler_model_id="m",workspace="w"} 1.0""",
            id="its owner is not said",
        ),
    ],
)
def test_what_is_said_of_a_trainer(trainer: Json, lines: str) -> None:
    assert page(inventory_of(trainers=[{"id": "t", **trainer}])) == expected(lines)


@pytest.mark.parametrize(
    ("price", "labels", "value"),
    [
        (priced("CPU", 0.5), 'instance_type="CPU"', "30.0"),
        (
            priced("H100:8", 2, gpu_type="H100", gpu_count=8),
            'gpu_count="8",gpu_type="H100",instance_type="H100:8"',
            "120.0",
        ),
        (priced("CPU", 0, gpu_type=None, gpu_count=0), 'gpu_count="0",instance_type="CPU"', "0.0"),
    ],
)
def test_what_an_instance_type_costs(price: Json, labels: str, value: str) -> None:
    assert page(inventory_of(prices=[price])) == [
        f'baseten_instance_type_price_dollars_per_hour{{{labels},workspace="w"}} {value}'
    ]


def test_a_price_that_is_null_is_absent() -> None:
    assert page(inventory_of(prices=[priced("CPU", None)])) == []


# Every family


def test_an_empty_workspace_says_nothing() -> None:
    assert page(Inventory()) == []


def test_families_and_labels_are_those_listed_for_the_documentation() -> None:
    everything = inventory_of(
        [
            model(
                {
                    "id": "d",
                    "status": "ACTIVE",
                    "active_replica_count": 1,
                    "instance_type_name": "L4",
                    "created_at": "2026-09-21T14:14:20Z",
                    "autoscaling_settings": {
                        "min_replica": 0,
                        "max_replica": 4,
                        "concurrency_target": 8,
                        "scale_down_delay": 900,
                        "autoscaling_window": 60,
                        "target_utilization_percentage": 70,
                    },
                },
                environments=[
                    {"name": "production", "in_progress_promotion": {"percent_traffic_to_new_version": 1}}
                ],
            )
        ],
        [{"id": "t", "status": {"name": "RUNNING"}, "sampler": {**SAMPLER, "status": {"name": "ACTIVE"}}}],
        [priced("L4", 0.5)],
    )
    found = {family.name: family for family in harvest(everything, NAMES).families()}
    assert found.keys() == {each.family for each in METRICS}
    for metric in METRICS:
        family = found[metric.family]
        assert family.help == metric.help
        assert {name for sample in family.samples for name, _ in sample.labels} <= set(metric.labels)


# Whatever the API says

ODD_TEXTS = st.sampled_from(
    ["", "m", "d", "t", "production", "RUNNING", "ACTIVE", '"', "\\", "\n", "%s", "\x00"]
)
texts = st.text(max_size=4) | ODD_TEXTS | st.just("\ud800")
numbers = st.floats() | st.integers() | st.just(10**400)
scalars = st.none() | st.booleans() | numbers | texts
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Objects of the documented fields, each of which may be missing, with some of tomorrow."""
    required = {
        name: each for name, each in fields.items() if name in {"id", "model_id", "deployment_id", "name"}
    }
    optional = {name: each for name, each in fields.items() if name not in required}
    return st.fixed_dictionaries(required, optional={**optional, "tomorrow": anything})


def lists(items: st.SearchStrategy[Json]) -> st.SearchStrategy[list[Json]]:
    return st.lists(items, max_size=3)


maybe_text = st.none() | texts
maybe_number = st.none() | numbers
references = st.none() | objects(id=texts)
statuses = st.none() | objects(name=maybe_text)
deployments = objects(
    id=texts,
    name=maybe_text,
    environment=maybe_text,
    status=maybe_text,
    active_replica_count=maybe_number,
    instance_type_name=maybe_text,
    created_at=maybe_text | st.just("0001-01-01T00:00:00+23:59"),
    labels=st.none() | st.dictionaries(texts, anything, max_size=4),
    autoscaling_settings=st.none()
    | objects(min_replica=maybe_number, target_utilization_percentage=maybe_number),
)
environments = objects(
    name=texts,
    current_deployment=references,
    candidate_deployment=references,
    in_progress_promotion=st.none() | objects(status=maybe_text, percent_traffic_to_new_version=maybe_number),
)
models = objects(
    id=texts,
    name=maybe_text,
    team_name=maybe_text,
    deployments=lists(deployments),
    environments=lists(environments),
)
samplers = objects(id=texts, model_id=texts, deployment_id=texts, status=statuses)
trainers = objects(id=texts, base_model=maybe_text, status=statuses, sampler=st.none() | samplers)
prices = objects(
    instance_type=objects(name=texts, gpu_type=maybe_text, gpu_count=maybe_number), price=maybe_number
)

EVERYTHING = Discovery(
    300, ModelSelector((), (), (), ("ACTIVE", "")), LoopsSelector("org", ()), environments=True, prices=True
)


def check_page(inventory: Inventory, metadata: Collection[str]) -> None:
    """Both parsers read the page, and no series stands on it twice."""
    pieces = exposition.pieces(harvest(inventory, metadata).families(), WORKSPACE)
    for page_format, read, end in (
        (Format.TEXT, read_text, ""),
        (Format.OPENMETRICS, read_openmetrics, "# EOF\n"),
    ):
        text = b"".join(exposition.blocks(grouped([pieces]), page_format)).decode()
        samples = [sample for family in read(text + end) for sample in family.samples]
        series = {(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples}
        assert len(samples) == len(series) == sum(each.lines.count(b"\n") for each in pieces.values())


def check_targets(inventory: Inventory) -> None:
    """Every target is there once, and has what it takes to be asked for and to stand on a page."""
    targets = select(Wanted("w", (), (), EVERYTHING, NAMES), inventory)
    assert len({target.key for target in targets}) == len(targets)
    for target in targets:
        assert all(value.encode() for _, value in target.labels)


@settings(max_examples=300, deadline=None)
@given(
    models=lists(models),
    trainers=lists(trainers),
    prices=lists(prices),
    metadata=st.sets(st.sampled_from(NAMES)),
)
@example(
    models=[model({"id": "\ud800", "status": "ACTIVE", "labels": {"\ud800": "\ud800", "x": 10**400}})],
    trainers=[
        {"id": "\ud800", "status": {"name": "RUNNING"}, "sampler": {"model_id": "", "deployment_id": ""}}
    ],
    prices=[priced("\ud800", 1e308, gpu_count=float("nan"))],
    metadata=set(NAMES),
)
def test_whatever_is_listed_either_is_refused_or_stands_on_a_page(
    models: list[Json], trainers: list[Json], prices: list[Json], metadata: set[str]
) -> None:
    with suppress(ApiError):
        inventory = inventory_of(models, trainers, prices)
        check_page(inventory, metadata)
        check_targets(inventory)


@settings(deadline=None)
@given(answer=anything, listing=st.sampled_from([Models, Deployments, Environments, Trainers, Prices]))
def test_any_json_is_an_answer_or_refused(answer: object, listing: type) -> None:
    with suppress(ApiError):
        assert isinstance(decode(listing, json.dumps(answer).encode()), listing)
