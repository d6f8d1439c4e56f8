"""Reading answers: leniently where a value is odd; an ApiError, nothing else, where there is no answer."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as text_families

from exporter.baseten.answers import ModelAnswer, decode
from exporter.baseten.errors import ApiError
from exporter.baseten.harvest import Harvest
from exporter.exposition import Format
from exporter.model import Labels
from exporter.simulator import Request, TargetId, World
from exporter.simulator.api import Api
from tests.helpers_baseten import SERIES, encoded, lines, loops_translated, page, translated

LIVE = 1_000_000.0
QUESTION = replace(SERIES, settled_at=LIVE - 30)
openmetrics_families: Callable[[str], Iterator[Metric]] = openmetrics_parser.text_string_to_metric_families
OWN: Labels = (("workspace", "100%"), ("deployment_id", 'a"\\\n'))


def values(raw: str) -> bytes:
    """An answer of one gauge per value, written as raw JSON."""
    label_sets = ", ".join(f'{{"n": "{number}"}}' for number in range(raw.count(",") + 1))
    return (
        f'{{"metric_descriptors": [{{"name": "x", "label_sets": [{label_sets}]}}],'
        f' "metric_values": [{{"values": [[{raw}]]}}]}}'
    ).encode()


# What is no answer


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "not JSON", id="nothing"),
        pytest.param(b"  ", "not JSON", id="blanks"),
        pytest.param(b"<!doctype html><title>Sign in</title>", "not JSON", id="HTML"),
        pytest.param(values("1")[:-7], "not JSON", id="truncated"),
        pytest.param(values("1") + b"}", "not JSON", id="something behind it"),
        pytest.param(values("1,"), "not JSON", id="a comma too many"),
        pytest.param(values("nope"), "not JSON", id="a word"),
        pytest.param(b"\xef\xbb\xbf" + values("1"), "not JSON", id="a byte order mark"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, "not JSON", id="deep nesting"),
        pytest.param(values("[" * 100_000 + "]" * 100_000), "not JSON", id="deep nesting in a value"),
        pytest.param(b"null", "not the documented answer: Expected `object`, got `null`", id="null"),
        pytest.param(b"[]", "not the documented answer: Expected `object`, got `array`", id="a list"),
        pytest.param(b"{}", "missing required field `metric_descriptors`", id="an empty object"),
        pytest.param(b'{"metric_descriptors": []}', "missing required field `metric_values`", id="no values"),
        pytest.param(
            b'{"metric_descriptors": [{}], "metric_values": []}', "`$.metric_descriptors[0]`", id="no name"
        ),
        pytest.param(
            b'{"metric_descriptors": [], "metric_values": [{"values": null}]}',
            "`$.metric_values[0].values`", id="null for a step's values",
        ),
        pytest.param(
            b'{"metric_descriptors": [], "metric_values": [], "end_epoch_millis": "soon"}',
            "`$.end_epoch_millis`", id="a word for a time",
        ),
        pytest.param(
            b'{"metric_descriptors": [], "metric_values": [], "step_seconds": 1%b}' % (b"0" * 400),
            "`$.step_seconds`", id="a time too large for a float",
        ),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_an_api_error(body: bytes, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode(ModelAnswer, body)
    assert caught.value.reason == "invalid_response"
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


# What is odd, yet an answer


@pytest.mark.parametrize(
    ("body", "dropped"),
    [
        pytest.param(values("1, NaN"), {"not_finite": 1}, id="the literal NaN"),
        pytest.param(values("1, -Infinity"), {"not_finite": 1}, id="the literal -Infinity"),
        pytest.param(values("1, " + "9" * 400), {"not_finite": 1}, id="a huge integer"),
        pytest.param(values('1, "?"').replace(b"?", b"\xff"), {"not_a_number": 1}, id="invalid UTF-8"),
        pytest.param(values(r'1, "\ud800"'), {"not_a_number": 1}, id="a lone surrogate"),
        pytest.param(values("1").replace(b'"name"', b'"name": "y", "name"'), {}, id="a key twice: the last"),
        pytest.param(values("1").replace(b"{", b' {\n\t"new": [{}],', 1), {}, id="fields never heard of"),
    ],
)
def test_what_is_odd_costs_itself_only(body: bytes, dropped: dict[str, int]) -> None:
    harvest = translated(body)
    assert lines(harvest) == ['baseten_model_engine_x{n="0"} 1.0']
    assert harvest.dropped == dropped


def test_names_of_broken_text_become_legal_ones() -> None:
    body = b'{"metric_descriptors": [{"name": "a\\ud800", "label_sets": [{"b\\ud800": "c\\ud800\xff"}]}],'
    harvest = translated(body + b' "metric_values": [{"values": [[NaN]]}, {"values": []}]}')
    assert harvest.dropped == {"not_finite": 1}
    harvest = translated(body + b' "metric_values": [{"values": [[1]]}]}')
    assert lines(harvest) == ['baseten_model_engine_a_{b_="c?\ufffd"} 1.0']


# Whatever comes


def example(target: TargetId, query: str = "") -> Any:
    """A true answer, small enough to be mutated often."""
    kind, model_id, deployment_id = target
    path = f"/v1/models/{model_id}" if kind == "model" else "/v1/loops"
    method = "GET" if kind == "model" else "POST"
    body = b'{"start_epoch_millis": 999940000, "end_epoch_millis": 1000000000}' if kind == "loops" else b""
    request = Request(
        method, f"{path}/deployments/{deployment_id}/metrics{query}", {"authorization": "Bearer k"}, body
    )
    return json.loads(Api(World.demo(), "k", limit=None).answer(request, LIVE)[1].body)


MODEL = example(
    TargetId("model", "q7chat32", "w5prod01"),
    "?mode=SERIES&start_epoch_millis=999910000&end_epoch_millis=1000000000"
    "&metrics=baseten_inference_requests_total&metrics=baseten_time_to_first_byte_seconds"
    "&metrics=baseten_gpu_memory_used&metrics=vllm:num_requests_running",
)
LOOPS = example(TargetId("loops", "", "tr2x4sft"))
LOOPS["metrics"]["per_node_metrics"] = LOOPS["metrics"]["per_node_metrics"][:1]

TEXTS = st.text(st.characters(codec=None, exclude_categories=[])) | st.sampled_from(
    [
        "",
        "stat",
        "avg",
        "quantile",
        "le",
        "__name__",
        "status_",
        "timestamp",
        "1970-01-12T13:46:00Z",
        "COUNTER",
    ]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**19, 10**400, 5e-324, 1.7e308])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def paths(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every value within a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, *path, key)


def mutated(answer: Any, changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    """The answer with other values in some places, or one value less where it says `...`."""
    result = deepcopy(answer)
    for path, replacement in changes:
        spot = result
        try:
            for key in path[:-1]:
                spot = spot[key]
            if replacement is ...:
                del spot[path[-1]]
            else:
                spot[path[-1]] = replacement
        except (TypeError, KeyError, IndexError):  # an earlier change took this place away
            continue
    return result


def mutations(answer: Any) -> st.SearchStrategy[Any]:
    change = st.tuples(st.sampled_from(list(paths(answer))), JSON | st.just(...))
    return st.lists(change, min_size=1, max_size=4).map(lambda changes: mutated(answer, changes))


def parses(harvest: Harvest) -> None:
    """Both formats of the page are read by the library's parsers, series for series."""
    series = sum(len(family.samples) for family in harvest.families())
    text = list(text_families(page(harvest, OWN)))
    openmetrics = list(openmetrics_families(page(harvest, OWN, Format.OPENMETRICS) + "# EOF\n"))
    for families in (text, openmetrics):
        assert sum(len(family.samples) for family in families) == series
        assert len({str(sample) for family in families for sample in family.samples}) == series


@settings(deadline=None)
@given(JSON | st.fixed_dictionaries({"metric_descriptors": JSON, "metric_values": JSON}) | mutations(MODEL))
def test_whatever_a_model_answer_holds_it_gives_a_page_or_an_api_error(answer: Any) -> None:
    try:
        harvest = translated(answer, QUESTION, OWN, now=LIVE)
    except ApiError as error:
        assert error.reason == "invalid_response"  # noqa: PT017 - either outcome is fine
    else:
        parses(harvest)


@settings(deadline=None)
@given(JSON | st.fixed_dictionaries({"metrics": JSON}) | mutations(LOOPS))
def test_whatever_a_loops_answer_holds_it_gives_a_page_or_an_api_error(answer: Any) -> None:
    try:
        harvest = loops_translated(answer, now=LIVE, delay=30)
    except ApiError as error:
        assert error.reason == "invalid_response"  # noqa: PT017 - either outcome is fine
    else:
        parses(harvest)


@settings(deadline=None)
@given(st.binary() | st.tuples(st.integers(0, 2000), st.binary(max_size=3)))
def test_whatever_the_bytes_are_there_is_an_answer_or_an_api_error(change: Any) -> None:
    body = encoded(MODEL)
    if isinstance(change, bytes):
        body = change
    else:
        place, junk = change
        body = body[:place] + junk + body[place + 1 :]
    try:
        decode(ModelAnswer, body)
    except ApiError as error:
        assert error.reason == "invalid_response"  # noqa: PT017 - either outcome is fine


def test_the_examples_that_are_mutated_are_good_ones() -> None:
    for harvest in (translated(MODEL, QUESTION, OWN, now=LIVE), loops_translated(LOOPS, now=LIVE, delay=30)):
        assert len(lines(harvest)) > 10
        parses(harvest)
