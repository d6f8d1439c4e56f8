"""Whatever an answer holds: an ApiError or a page that both parsers read, and nothing else.

Answers are made from the JSON Schemas of the API, or true ones are taken, and both are changed at
random. `FUZZ_EXAMPLES` says how many are tried over all.
"""

import json
import logging
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jsonschema import Draft202012Validator

from exporter import exposition
from exporter.baseten import listings, loops_metrics, model_metrics
from exporter.baseten.answers import LoopsAnswer, ModelAnswer, decode
from exporter.baseten.drift import Drift, Unknown
from exporter.baseten.errors import REASONS, ApiError
from exporter.baseten.harvest import Harvest
from exporter.baseten.inventory import Inventory, ModelListing, harvest
from exporter.baseten.names import MetricNames
from exporter.baseten.replies import Reply, refusal
from exporter.baseten.selection import Wanted, counts, missing_environments, select
from exporter.baseten.throttle import MAX_PAUSE, Throttle
from exporter.exposition import Format
from exporter.model import (
    Discovery,
    Family,
    Followed,
    Labels,
    LoopsOptions,
    LoopsSelector,
    Mode,
    ModelOptions,
    ModelSelector,
    Piece,
    Sample,
    Target,
)
from exporter.simulator import Request, World
from exporter.simulator.api import Api
from exporter.simulator.organization import Promotion
from tests.helpers_baseten import grouped
from tests.helpers_pages import Series, read
from tests.helpers_schema import BLOWS, CHANGES, JUNK, TEXTS, Blow, Change, changed, documents, struck

NOW = 1_790_000_000.0
OWN: Labels = (("workspace", "100%"), ("deployment_id", 'a"\\\n'))
MODEL_IDS, TRAINER_ID = ("q7chat32", "w5prod01"), "tr1solo8"

DEMO = World.demo()
CHAT = replace(DEMO.models[0], promotion=Promotion("production", "w4stag00", 25))
TRAINER = replace(DEMO.trainers[2], gpus=2, sampler=MODEL_IDS)
WORLD = replace(DEMO, models=(CHAT,), trainers=(TRAINER, DEMO.trainers[3]))
"""Small: every example is parsed twice over."""

IN_CI = "true" in os.environ.get("CI", "") or os.environ.get("REQUIRE_SERVERS") == "1"
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "20400" if IN_CI else "1100"))

SHARES = MappingProxyType(
    {
        **{f"model answers, {mode}": 0.11 for mode in get_args(Mode)},
        "Loops answers": 0.1,
        "listings": 0.1,
        "broken bytes": 0.24,
        "refusals": 0.12,
    }
)
"""How the examples are shared out, so that the tests can run beside one another."""


Fuzz = Callable[..., None]


@pytest.fixture
def fuzz(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Fuzz:
    """Runs a property on its share of the examples; how many there were stands in the test report."""
    caplog.set_level(logging.ERROR)

    def run(name: str, check: Callable[..., None], *inputs: SearchStrategy[Any]) -> None:
        wanted, ran = round(EXAMPLES * SHARES[name]), 0

        @settings(max_examples=wanted, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(st.tuples(*inputs))
        def property_(values: tuple[Any, ...]) -> None:
            nonlocal ran
            ran += 1
            check(*values)

        property_()
        request.node.user_properties.append(("examples", ran))
        assert ran >= wanted

    return run


def test_the_shares_are_all_there_is() -> None:
    assert math.isclose(sum(SHARES.values()), 1)
    assert (20_000 if IN_CI else 100) <= EXAMPLES


# Where documents come from


def _schema(file: str, name: str = "") -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((Path(__file__).parent / "schemas" / f"{file}.json").read_text())
    return schema | ({"$ref": f"#/$defs/{name}"} if name else {})


def _asked(method: str, path: str) -> bytes:
    """What the simulator answers: true, and kept small."""
    body = json.dumps({"start_epoch_millis": int(NOW - 60) * 1000, "end_epoch_millis": int(NOW) * 1000})
    request = Request(method, path, {"authorization": "Bearer k"}, body.encode() if method == "POST" else b"")
    return Api(WORLD, "k", limit=None).answer(request, NOW)[1].body


def _model_path(mode: str, *names: str) -> str:
    span = f"&start_epoch_millis={int(NOW - 90) * 1000}&end_epoch_millis={int(NOW) * 1000}"
    metrics = "".join(f"&metrics={name}" for name in names)
    return "/v1/models/{}/deployments/{}/metrics?mode={}{}{}".format(
        *MODEL_IDS, mode, span * (mode != "CURRENT"), metrics
    )


def _aligned(answer: Any) -> Any:
    """The answer with as many values as label sets: what the API promises, and no schema can say."""
    sets = [len(descriptor["label_sets"]) for descriptor in answer["metric_descriptors"]]
    for step in answer["metric_values"]:
        spare = [value for row in step["values"] for value in row] or [None, 1, 0.5]
        step["values"] = [
            [spare[(row + column) % len(spare)] for column in range(n)] for row, n in enumerate(sets)
        ]
    return answer


MODEL_SCHEMA, LOOPS_SCHEMA = _schema("model_metrics"), _schema("loops_metrics")
MODEL_TRUE = [
    _asked("GET", _model_path("CURRENT", "baseten_gpu_memory_used", "baseten_inference_requests_total")),
    _asked("GET", _model_path("SERIES", "baseten_time_to_first_byte_seconds", "vllm:num_requests_running")),
]
LOOPS_TRUE = [
    _asked("POST", f"/v1/loops/deployments/{trainer}/metrics") for trainer in ("tr1solo8", "tr0sleep")
]

_MODEL_DOCUMENTS = documents(MODEL_SCHEMA)
MODEL = _MODEL_DOCUMENTS | _MODEL_DOCUMENTS.map(_aligned) | st.sampled_from(MODEL_TRUE).map(json.loads)
LOOPS = st.one_of(documents(LOOPS_SCHEMA), *(st.just(body).map(json.loads) for body in LOOPS_TRUE))

LISTINGS: dict[str, tuple[type[Any], str]] = {
    "models": (listings.Models, "/v1/models"),
    "deployments": (listings.Deployments, "/v1/models/q7chat32/deployments"),
    "environments": (listings.Environments, "/v1/models/q7chat32/environments"),
    "loops_deployments": (listings.Trainers, "/v1/loops/deployments?scope=org"),
    "instance_type_prices": (listings.Prices, "/v1/instance_type_prices"),
}
TRUE_LISTINGS = {name: _asked("GET", path) for name, (_, path) in LISTINGS.items()}
LISTED = st.one_of(
    [
        st.tuples(st.just(name), documents(_schema("listings", name)) | st.just(body).map(json.loads))
        for name, body in TRUE_LISTINGS.items()
    ]
)


@pytest.mark.parametrize(
    ("schema", "strategy"),
    [(MODEL_SCHEMA, _MODEL_DOCUMENTS), (LOOPS_SCHEMA, documents(LOOPS_SCHEMA))]
    + [(_schema("listings", name), documents(_schema("listings", name))) for name in LISTINGS],
    ids=["model", "Loops", *LISTINGS],
)
def test_documents_keep_to_their_schema_but_for_what_depends_on_something_else(
    schema: dict[str, Any], strategy: SearchStrategy[Any]
) -> None:
    rules = {name: rule for name, rule in schema.items() if name != "allOf"}

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def keeps(document: Any) -> None:
        Draft202012Validator(rules).validate(document)

    keeps()


# What must hold


def encoded(document: Any, changes: list[Change]) -> bytes:
    return json.dumps(changed(document, changes)).encode()


def answered(answer_type: type[Any], body: bytes) -> Any:
    """The answer, None where it is refused; what is unknown in it is looked for as after every answer."""
    try:
        answer = decode(answer_type, body)
    except ApiError as error:
        assert error.reason == "invalid_response"  # noqa: PT017 - either outcome is fine
        return None
    Drift("w", lambda _, item: _is_text(item), lambda: 0.0).look("endpoint", body, answer_type)
    return answer


def _is_text(item: Unknown) -> None:
    assert item.path.startswith("$")


def polled_model(mode: Mode, body: bytes, oldest: float = -math.inf) -> None:
    """As a poll takes it: every question of the mode gets this answer."""
    answer = answered(ModelAnswer, body)
    if answer is None:
        return
    names, harvest = MetricNames("w"), Harvest(oldest, NOW + 300, 1000)
    for question in model_metrics.questions(ModelOptions(mode=mode), NOW, names.kind_of):
        names.learn(answer)
        model_metrics.translate(answer, question, OWN, NOW, harvest)
    assert_shown(harvest.families())


def polled_loops(body: bytes, oldest: float = -math.inf) -> None:
    answer = answered(LoopsAnswer, body)
    if answer is not None:
        harvest = Harvest(oldest, NOW + 300, 1000)
        loops_metrics.translate(answer, LoopsOptions(delay=30), NOW, harvest)
        assert_shown(harvest.families())


def assert_shown(families: list[Family]) -> None:
    """Both parsers find every sample, once, under the target's own labels, and with a finite value."""
    values = sorted(sample.value for family in families for sample in family.samples)
    found = page([exposition.pieces(families, OWN)])
    assert all(map(math.isfinite, values))
    assert sorted(found.values()) == values
    assert all(series.has(**dict(OWN)) for series in found)


def page(shares: list[dict[str, Piece]]) -> dict[Series, float]:
    text, openmetrics = (b"".join(exposition.blocks(grouped(shares), form)).decode() for form in Format)
    found = read(text)
    assert read(f"{openmetrics}# EOF\n", Format.OPENMETRICS) == found
    return found


EVERYTHING = Wanted(
    "w",
    (
        Target("w", *MODEL_IDS, ModelOptions(), (("team", "search"),)),
        Target("w", "", TRAINER_ID, LoopsOptions()),
    ),
    (Followed("q7chat32", "production", ModelOptions()),),
    Discovery(
        300.0,
        ModelSelector((), (re.compile("none.*"),), (), ("ACTIVE", "UPDATING")),
        LoopsSelector("org", (re.compile(".*"),)),
        environments=True,
        prices=True,
    ),
    ("model_name", "environment", "base_model", "loops_deployment_id"),
)


def listed(name: str, body: bytes) -> None:
    """As a run through the listings takes it, the others being true."""
    if answered(LISTINGS[name][0], body) is None:
        return
    answers = {each: decode(LISTINGS[each][0], text) for each, text in (TRUE_LISTINGS | {name: body}).items()}
    deployments = tuple(answers["deployments"].deployments)
    environments = tuple(answers["environments"].environments)
    models = EVERYTHING.listed(answers["models"].models)
    inventory = Inventory(
        {model.id: ModelListing(model, deployments, environments) for model in models},
        tuple(answers["loops_deployments"].deployments),
        {price.instance_type.name: price for price in answers["instance_type_prices"].instance_types},
    )
    described = harvest(inventory, EVERYTHING.metadata).families()
    targets = select(EVERYTHING, inventory)
    counts(EVERYTHING, inventory)
    list(missing_environments(EVERYTHING, inventory))
    polled = [exposition.pieces([Family("x", "X.", (Sample((), 1.0),))], target.labels) for target in targets]
    found = page([exposition.pieces(described, (("workspace", "w"),)), *polled])
    assert all(map(math.isfinite, found.values()))
    assert all(series.has(workspace="w") for series in found)
    assert len(found) == sum(len(family.samples) for family in described) + len(targets)


def refused(code: int, body: bytes, header: str | None) -> None:
    error = refusal(Reply(code, body, retry_after=header))
    assert error.reason in REASONS
    assert len(str(error)) < 300
    assert error.retry_after is None or not math.isnan(error.retry_after)
    assert 0 <= Throttle("endpoint", 1, lambda: 0.0).pause(error.retry_after) <= MAX_PAUSE


# The fuzz itself

AGES = st.sampled_from([-math.inf, NOW - 600])


@pytest.mark.parametrize("mode", get_args(Mode))
def test_model_answers(fuzz: Fuzz, mode: Mode) -> None:
    def check(document: Any, changes: list[Change], oldest: float) -> None:
        polled_model(mode, encoded(document, changes), oldest)

    fuzz(f"model answers, {mode}", check, MODEL, CHANGES, AGES)


def test_loops_answers(fuzz: Fuzz) -> None:
    def check(document: Any, changes: list[Change], oldest: float) -> None:
        polled_loops(encoded(document, changes), oldest)

    fuzz("Loops answers", check, LOOPS, CHANGES, AGES)


def test_listings(fuzz: Fuzz) -> None:
    def check(named: tuple[str, Any], changes: list[Change]) -> None:
        name, document = named
        listed(name, encoded(document, changes))

    fuzz("listings", check, LISTED, CHANGES)


def test_broken_bytes(fuzz: Fuzz) -> None:
    checks: dict[str, tuple[Callable[[bytes], None], bytes]] = {
        "model": (lambda body: polled_model("auto", body), MODEL_TRUE[0]),
        "series": (lambda body: polled_model("series", body), MODEL_TRUE[1]),
        "Loops": (polled_loops, LOOPS_TRUE[0]),
        **{name: (partial(listed, name), text) for name, text in TRUE_LISTINGS.items()},
    }

    def check(name: str, blows: list[Blow]) -> None:
        checked, text = checks[name]
        checked(struck(text, blows))

    fuzz("broken bytes", check, st.sampled_from(list(checks)), BLOWS)


def test_refusals(fuzz: Fuzz) -> None:
    fields = dict.fromkeys(("error", "message", "code", "retry_after"), JUNK)
    bodies = st.binary(max_size=50) | st.fixed_dictionaries({}, optional=fields).map(
        lambda body: json.dumps(body).encode()
    )
    dates = st.datetimes().map(lambda moment: f"{moment:%a, %d %b %Y %H:%M:%S GMT}")
    numbers = st.sampled_from(["nan", "inf", "-1", "1e400", "37"]) | st.floats().map(str)
    headers = st.none() | TEXTS | dates | numbers
    fuzz("refusals", refused, st.integers(300, 599), bodies, headers)
