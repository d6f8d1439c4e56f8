"""Config and listings in, targets out; and what has to be listed for it."""

import re
from typing import Any

import pytest

from exporter.baseten.inventory import Inventory, ModelListing
from exporter.baseten.listings import Environment, Model, Reference
from exporter.baseten.selection import Wanted, counts, missing_environments, select, selects
from exporter.model import (
    Discovery,
    Followed,
    Labels,
    LoopsOptions,
    LoopsSelector,
    ModelOptions,
    ModelSelector,
    Target,
)
from tests.helpers_baseten import Json
from tests.test_inventory import inventory_of

ALL = ("model_name", "environment", "base_model", "loops_deployment_id")
STATUSES = ("ACTIVE", "UNHEALTHY", "UPDATING", "WAKING_UP", "LOADING_MODEL", "DEPLOYING")
CURRENT = ModelOptions("current")
TEAM = (("team", "search"),)
STATIC = Target("w", "m1", "d1", CURRENT, TEAM)
STATIC_TRAINER = Target("w", "", "t1", LoopsOptions(window=600))


def patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, texts))


def models(
    *include: str, exclude: tuple[str, ...] = (), environments: tuple[str, ...] = (), **more: Any
) -> ModelSelector:
    return ModelSelector(patterns(*include), patterns(*exclude), environments, more.get("statuses", STATUSES))


def loops(*include: str, scope: Any = "mine") -> LoopsSelector:
    return LoopsSelector(scope, patterns(*include))


def discovery(
    models: ModelSelector | None = None, loops: LoopsSelector | None = None, **more: bool
) -> Discovery:
    """Environments and prices only where a test is about them."""
    return Discovery(300, models, loops, more.get("environments", False), more.get("prices", False))


def wanted(*targets: Target, metadata: tuple[str, ...] = (), **more: Any) -> Wanted:
    return Wanted("w", targets, metadata=metadata, **more)


def deployment(ident: str, status: str | None = "ACTIVE", environment: str | None = None) -> Json:
    return {"id": ident, "status": status, "environment": environment}


def trainer(ident: str, status: str | None = "RUNNING", sampler: tuple[str, str] | None = None) -> Json:
    ids = {"model_id": sampler[0], "deployment_id": sampler[1]} if sampler else None
    return {"id": ident, "base_model": f"base-{ident}", "status": status and {"name": status}, "sampler": ids}


TWO_MODELS = [
    {
        "id": "m1",
        "name": "chat",
        "deployments": [deployment("d1", environment="production"), deployment("d2", environment="staging")],
    },
    {"id": "m2", "name": "chat-canary", "deployments": [deployment("d3")]},
]
TRAINERS = [trainer("t1", sampler=("ms", "ds")), trainer("t2", "DEPLOYING"), trainer("t3", "STOPPED")]


def names(targets: tuple[Target, ...]) -> list[str]:
    return [str(target).removeprefix("w/") for target in targets]


def found(selector: ModelSelector | LoopsSelector, inventory: Inventory) -> list[str]:
    is_models = isinstance(selector, ModelSelector)
    each = discovery(models=selector) if is_models else discovery(loops=selector)  # type: ignore[arg-type]
    return names(select(wanted(discovery=each), inventory))


# Models


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(models(), ["d1", "d2", "d3"], id="all"),
        pytest.param(models("chat"), ["d1", "d2"], id="a pattern is the whole name"),
        pytest.param(models("chat.*"), ["d1", "d2", "d3"], id="a wider pattern"),
        pytest.param(models("x", "chat-c.*"), ["d3"], id="one of several patterns"),
        pytest.param(models(exclude=(".*canary",)), ["d1", "d2"], id="excluded"),
        pytest.param(models("chat.*", exclude=("chat",)), ["d3"], id="excluded though included"),
        pytest.param(models("CHAT"), [], id="case matters"),
        pytest.param(models(environments=("production",)), ["d1"], id="one environment"),
        pytest.param(models(environments=("production", "staging")), ["d1", "d2"], id="two environments"),
        pytest.param(models(environments=("development",)), [], id="an environment nobody has"),
        pytest.param(models(statuses=("INACTIVE",)), [], id="a status nobody is in"),
    ],
)
def test_which_models_are_found(selector: ModelSelector, expected: list[str]) -> None:
    assert [name.rpartition("/")[2] for name in found(selector, inventory_of(TWO_MODELS))] == expected


@pytest.mark.parametrize(
    ("status", "is_found"),
    [
        *((status, True) for status in STATUSES),
        *((status, False) for status in ("BUILDING", "DEPLOY_FAILED", "BUILD_FAILED", "BUILD_STOPPED")),
        *((status, False) for status in ("DEACTIVATING", "INACTIVE", "FAILED", "SCALED_TO_ZERO")),
        ("TOMORROW", False),
        ("", False),
        (None, False),
    ],
)
def test_the_usual_statuses_are_those_that_can_have_data(status: str | None, *, is_found: bool) -> None:
    inventory = inventory_of([{"id": "m", "deployments": [deployment("d", status)]}])
    assert found(models(), inventory) == ["model/m/d"] * is_found


def test_a_status_of_tomorrow_can_be_asked_for() -> None:
    inventory = inventory_of([{"id": "m", "deployments": [deployment("d", "TOMORROW")]}])
    assert found(models(statuses=("TOMORROW",)), inventory) == ["model/m/d"]


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [(None, "", True), ("", "", True), (None, ".+", False), ("a\nb", "a.b", False)],
)
def test_a_model_without_a_name_has_an_empty_one(name: str | None, pattern: str, *, expected: bool) -> None:
    assert selects(models(pattern), Model("m", name)) is expected


# Loops


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(
            loops(), ["loops/t1", "model/ms/ds", "loops/t2"], id="all that run, with their samplers"
        ),
        pytest.param(loops("base-t2"), ["loops/t2"], id="by base model"),
        pytest.param(loops("base-t"), [], id="a pattern is the whole base model"),
        pytest.param(loops("base-t3"), [], id="one that stopped"),
    ],
)
def test_which_trainers_are_found(selector: LoopsSelector, expected: list[str]) -> None:
    assert found(selector, inventory_of(trainers=TRAINERS)) == expected


@pytest.mark.parametrize(
    ("status", "is_found"),
    [
        *(("RUNNING", True), ("DEPLOYING", True)),
        *((status, False) for status in ("CREATED", "SCALED_TO_ZERO", "FAILED", "STOPPED", "TOMORROW", None)),
    ],
)
def test_a_trainer_has_to_run_or_to_deploy(status: str | None, *, is_found: bool) -> None:
    assert found(loops(), inventory_of(trainers=[trainer("t", status)])) == ["loops/t"] * is_found


def test_a_trainer_without_a_base_model_has_an_empty_one() -> None:
    inventory = inventory_of(trainers=[{"id": "t", "status": {"name": "RUNNING"}}])
    assert (found(loops(""), inventory), found(loops(".+"), inventory)) == (["loops/t"], [])


def test_a_sampler_that_is_found_as_a_model_too_is_there_once() -> None:
    inventory = inventory_of(
        [{"id": "ms", "name": "sampler", "deployments": [deployment("ds", environment="production")]}],
        [trainer("t1", sampler=("ms", "ds")), trainer("t2", sampler=("ms", "ds"))],
    )
    targets = select(wanted(metadata=ALL, discovery=discovery(models(), loops())), inventory)
    assert names(targets) == ["model/ms/ds", "loops/t1", "loops/t2"]
    assert targets[0].metadata == (
        ("model_name", "sampler"),
        ("environment", "production"),
        ("loops_deployment_id", "t1"),
    )


# The config's own entries


def test_an_entry_of_the_config_wins_over_what_is_found() -> None:
    everything = wanted(STATIC, STATIC_TRAINER, discovery=discovery(models(), loops()))
    targets = select(everything, inventory_of(TWO_MODELS, TRAINERS))
    assert targets[:2] == (STATIC, STATIC_TRAINER)
    assert names(targets[2:]) == ["model/m1/d2", "model/m2/d3", "model/ms/ds", "loops/t2"]
    assert {target.options for target in targets[2:]} == {ModelOptions(), LoopsOptions()}


def test_an_entry_of_the_config_needs_not_be_listed() -> None:
    assert select(wanted(STATIC, STATIC_TRAINER, metadata=ALL), Inventory()) == (STATIC, STATIC_TRAINER)


def follows(environment: str, **more: Any) -> Followed:
    return Followed("m", environment, CURRENT, TEAM, **more)


def in_environment(
    name: str, current: str | None, candidate: str | None = None, status: str | None = None
) -> Json:
    return {
        "name": name,
        "current_deployment": current and {"id": current},
        "candidate_deployment": candidate and {"id": candidate},
        "in_progress_promotion": status and {"status": status, "percent_traffic_to_new_version": 10},
    }


@pytest.mark.parametrize(
    ("environments", "expected"),
    [
        pytest.param([in_environment("production", "d1")], ["d1"], id="the current one"),
        pytest.param([in_environment("production", "d1", "d2", "RAMPING_UP")], ["d1", "d2"], id="promotion"),
        pytest.param([in_environment("production", "d1", "d2", "TOMORROW")], ["d1", "d2"], id="of tomorrow"),
        pytest.param([in_environment("production", "d1", "d2", "SUCCEEDED")], ["d1"], id="one that is over"),
        pytest.param([in_environment("production", "d1", "d2")], ["d1"], id="a candidate that waits"),
        pytest.param([in_environment("production", "d1", None, "RELEASING")], ["d1"], id="no candidate yet"),
        pytest.param([in_environment("production", None, "d2", "RELEASING")], ["d2"], id="the first of all"),
        pytest.param([in_environment("production", "d1", "d1", "RELEASING")], ["d1"], id="both the same"),
        pytest.param([in_environment("production", None)], [], id="an empty environment"),
        pytest.param([in_environment("staging", "d1")], [], id="another environment"),
        pytest.param([], [], id="no environment"),
    ],
)
def test_an_entry_with_an_environment_follows_it(environments: list[Json], expected: list[str]) -> None:
    inventory = inventory_of([{"id": "m", "environments": environments}])
    targets = select(wanted(followed=(follows("production"),)), inventory)
    assert targets == tuple(Target("w", "m", each, CURRENT, TEAM) for each in expected)


def test_an_entry_whose_model_is_not_listed_follows_nothing() -> None:
    assert select(wanted(followed=(follows("production"),)), Inventory()) == ()


def test_what_is_followed_wins_over_what_is_found_and_yields_to_what_is_named() -> None:
    inventory = inventory_of(
        [
            {
                "id": "m",
                "deployments": [deployment("d1"), deployment("d2"), deployment("d3")],
                "environments": [in_environment("production", "d1", "d2", "RELEASING")],
            }
        ]
    )
    named = Target("w", "m", "d1", ModelOptions("summary"))
    targets = select(
        wanted(named, followed=(follows("production"),), discovery=discovery(models())), inventory
    )
    assert targets == (named, Target("w", "m", "d2", CURRENT, TEAM), Target("w", "m", "d3", ModelOptions()))


# Metadata


@pytest.mark.parametrize(
    ("metadata", "labels"),
    [
        (ALL, (("model_name", "chat"), ("environment", "production"))),
        (("environment",), (("environment", "production"),)),
        (("environment", "model_name"), (("environment", "production"), ("model_name", "chat"))),
        (("base_model",), ()),
        ((), ()),
    ],
)
def test_a_named_model_gets_its_labels_too(metadata: tuple[str, ...], labels: Labels) -> None:
    (target,) = select(wanted(STATIC, metadata=metadata), inventory_of(TWO_MODELS))
    assert target == Target("w", "m1", "d1", CURRENT, TEAM, labels)
    assert target.labels[-2 - len(labels) :][:2] == (("deployment_id", "d1"), *TEAM)


@pytest.mark.parametrize(
    ("raw", "labels"),
    [
        ({"name": None, "deployments": [deployment("d1")]}, ()),
        ({"name": "", "deployments": [deployment("d1", environment="")]}, ()),
        ({"name": "chat", "deployments": []}, ()),
        ({"name": "\ud800", "deployments": [deployment("d1")]}, (("model_name", "?"),)),
    ],
)
def test_what_is_not_said_is_no_label(raw: Json, labels: Labels) -> None:
    (target,) = select(wanted(STATIC, metadata=ALL), inventory_of([{"id": "m1", **raw}]))
    assert target.metadata == labels


def test_a_trainer_has_its_base_model_and_its_sampler_has_the_trainer() -> None:
    targets = select(wanted(metadata=ALL, discovery=discovery(loops=loops())), inventory_of((), TRAINERS[:1]))
    assert [target.metadata for target in targets] == [
        (("base_model", "base-t1"),),
        (("loops_deployment_id", "t1"),),
    ]


@pytest.mark.parametrize(
    "odd", [("", "d"), ("m", ""), ("\ud800", "d"), ("m", "\ud800")], ids=["no id", "none", "odd id", "odd"]
)
def test_what_cannot_be_asked_for_is_no_target_and_costs_no_other(odd: tuple[str, str]) -> None:
    inventory = inventory_of(
        [{"id": odd[0], "deployments": [deployment(odd[1])]}, TWO_MODELS[1]],
        [trainer("t", sampler=odd), trainer("")],
    )
    targets = select(wanted(discovery=discovery(models(), loops())), inventory)
    assert names(targets) == ["model/m2/d3", "loops/t"]


# How many


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (None, {"model": None, "loops": None}),
        (discovery(models()), {"model": 3, "loops": None}),
        (discovery(models("nothing"), loops()), {"model": 0, "loops": 2}),
        (discovery(loops=loops("nothing")), {"model": None, "loops": 0}),
    ],
)
def test_each_selector_counts_what_it_finds_itself(each: Discovery | None, expected: object) -> None:
    """A sampler that comes along does not hide that the models' selector finds nothing."""
    twice = [*TWO_MODELS, {**TWO_MODELS[1], "deployments": [deployment("d3"), deployment("d3")]}]
    assert counts(wanted(STATIC, discovery=each), inventory_of(twice, TRAINERS * 2)) == expected


# What has to be listed

CHAT, OTHER = Model("m1", "chat"), Model("m9", "other")
NOTHING: Json = {"lists": False, "lists_models": False, "lists_trainers": False, "lists_prices": False}


@pytest.mark.parametrize(
    ("what", "listed"),
    [
        pytest.param(wanted(STATIC, STATIC_TRAINER), {}, id="ids alone need nothing"),
        pytest.param(wanted(metadata=ALL), {}, id="labels of nothing"),
        pytest.param(wanted(STATIC, metadata=ALL), {"lists_models": True}, id="a named model's labels"),
        pytest.param(wanted(STATIC, metadata=("environment",)), {"lists_models": True}, id="one label"),
        pytest.param(wanted(STATIC, metadata=("base_model",)), {}, id="a label that models lack"),
        pytest.param(wanted(STATIC_TRAINER, metadata=ALL), {"lists_trainers": True}, id="a trainer's labels"),
        pytest.param(wanted(STATIC_TRAINER, metadata=("model_name",)), {}, id="a label that trainers lack"),
        pytest.param(wanted(followed=(follows("production"),)), {"lists_models": True}, id="an environment"),
        pytest.param(wanted(discovery=discovery(models())), {"lists_models": True}, id="models"),
        pytest.param(wanted(discovery=discovery(None, loops())), {"lists_trainers": True}, id="trainers"),
        pytest.param(wanted(discovery=discovery(prices=True)), {"lists_prices": True}, id="prices"),
    ],
)
def test_only_what_is_needed_is_listed(what: Wanted, listed: Json) -> None:
    assert {name: getattr(what, name)() for name in NOTHING} == NOTHING | listed | {"lists": bool(listed)}


@pytest.mark.parametrize(
    ("what", "chat", "other"),
    [
        pytest.param(wanted(STATIC, metadata=ALL), (True, False), (False, False), id="named"),
        pytest.param(wanted(STATIC), (False, False), (False, False), id="named by ids alone"),
        pytest.param(
            wanted(followed=(Followed("m1", "production", CURRENT),)),
            (True, True),
            (False, False),
            id="followed",
        ),
        pytest.param(wanted(discovery=discovery(models("other"))), (False, False), (True, False), id="found"),
        pytest.param(
            wanted(STATIC, metadata=ALL, discovery=discovery(models("other"), environments=True)),
            (True, True),
            (True, True),
            id="with environments",
        ),
    ],
)
def test_only_the_models_needed_are_listed(
    what: Wanted, chat: tuple[bool, bool], other: tuple[bool, bool]
) -> None:
    """Each model: whether its deployments are listed, and its environments if so."""
    for model, (is_listed, has_environments) in ((CHAT, chat), (OTHER, other)):
        assert (what.listed([model]) == [model]) == is_listed
        assert (is_listed and what.lists_environments(model)) == has_environments


def test_an_environment_that_finds_nothing_is_missing() -> None:
    what = wanted(
        followed=tuple(Followed(CHAT.id, each, ModelOptions()) for each in ("production", "nowhere"))
    )
    listed = Environment("production", current_deployment=Reference("d"))
    inventory = Inventory({CHAT.id: ModelListing(CHAT, environments=(listed,))})
    assert list(missing_environments(what, inventory)) == [(CHAT.id, "nowhere")]
    assert len(list(missing_environments(what, Inventory()))) == 2
