"""Model deployments: the questions of each mode, and answers in, exposition text out."""

import math
from typing import Any

import pytest

from exporter.baseten import catalogue
from exporter.baseten.catalogue import CATALOGUE
from exporter.baseten.model_metrics import Question, questions
from exporter.baseten.names import MetricNames
from exporter.baseten.values import label_text
from exporter.model import Labels, ModelOptions
from tests.helpers_baseten import (
    CURRENT,
    NOW,
    SERIES,
    SUMMARY,
    Json,
    expected,
    lines,
    metric,
    model_answer,
    page,
    translated,
)

GAUGE = metric("baseten_concurrent_requests", "GAUGE", "COUNT")
COUNTER = metric("baseten_llm_input_tokens_total", "COUNTER", "COUNT")
MEBIBYTES = metric("baseten_x_total", "COUNTER", "MEBIBYTES")
PER_GPU = metric("baseten_gpu_utilization", "GAUGE", "RATIO", {"gpu": "0"}, {"gpu": "1"})
BY_STATUS = metric(
    "baseten_inference_requests_total", "COUNTER", "COUNT", {"status": "200"}, {"status": "500"}
)
HISTOGRAM = metric(
    "baseten_end_to_end_response_time_seconds",
    "HISTOGRAM",
    "SECONDS",
    *({"quantile": quantile} for quantile in ("0.5", "0.9", "0.95", "0.99")),
    {"stat": "avg"},
)


def current(values: Any, *metrics: Json, **more: Any) -> Json:
    """A CURRENT answer without a span."""
    return model_answer(metrics or (GAUGE,), [(None, values)], start_epoch_millis=None, **more)


def series(descriptor: Json, *steps: tuple[float | None, float | None], **more: Any) -> Json:
    """A SERIES answer of one plain metric: (start in seconds, value) per step."""
    return model_answer([descriptor], [(start, [[value]]) for start, value in steps], **more)


# Questions


def asked(mode: Any, metrics: Any = "all", *, now: float = NOW) -> list[Question]:
    options = ModelOptions(mode=mode, window=300, delay=120, metrics=metrics)
    return list(questions(options, now, MetricNames("").kind_of))


def test_mode_current_asks_once_without_times() -> None:
    assert asked("current", ("a", "b")) == [Question("CURRENT", ("a", "b"), None, None)]


def test_mode_summary_asks_for_a_window_that_ended_delay_ago() -> None:
    assert asked("summary", ("a",)) == [Question("SUMMARY", ("a",), (580, 880), None)]


def test_mode_series_asks_up_to_now_and_takes_settled_steps_of_counters() -> None:
    assert asked("series", ("a",)) == [Question("SERIES", ("a",), (580, 1000), None, settled_at=880)]


def test_mode_auto_parts_the_catalogue_by_kind() -> None:
    fresh, settled = asked("auto")
    assert (fresh.mode, fresh.span, fresh.settling) == ("CURRENT", None, False)
    assert (settled.mode, settled.span, settled.settling) == ("SUMMARY", (580, 880), True)
    kinds = {name: known.kind for name, known in CATALOGUE.items()}
    assert {kinds[name] for name in fresh.names or ()} == {"GAUGE"}
    assert {kinds[name] for name in settled.names or ()} == {"COUNTER", "HISTOGRAM"}
    assert {*(fresh.names or ()), *(settled.names or ())} == kinds.keys()


@pytest.mark.parametrize(
    ("metrics", "modes"),
    [
        pytest.param(("baseten_replicas_active",), ["CURRENT"], id="gauges only"),
        pytest.param(("baseten_llm_input_tokens_total",), ["SUMMARY"], id="counters only"),
        pytest.param(("never:heard_of",), ["CURRENT"], id="an unknown name counts as a gauge"),
        pytest.param("default", ["CURRENT", "SUMMARY"], id="what comes unasked may be either"),
    ],
)
def test_mode_auto_asks_only_what_has_names(metrics: Any, modes: list[str]) -> None:
    assert [question.mode for question in asked("auto", metrics)] == modes


@pytest.mark.parametrize("mode", ["auto", "current", "summary", "series"])
def test_default_metrics_are_asked_for_by_no_name(mode: str) -> None:
    assert {question.names for question in asked(mode, "default")} == {None}


def test_a_question_becomes_a_query_of_whole_milliseconds_and_repeated_names() -> None:
    [question] = asked("summary", ("a", "b"), now=1000.9)
    assert question.params(question.names) == [
        ("mode", "SUMMARY"),
        ("start_epoch_millis", "580000"),
        ("end_epoch_millis", "880000"),
        ("metrics", "a"),
        ("metrics", "b"),
    ]


def test_mode_current_sends_no_times() -> None:
    [question] = asked("current", "default")
    assert question.params(None) == [("mode", "CURRENT")]


# One step: CURRENT and SUMMARY


@pytest.mark.parametrize(
    ("answer", "samples"),
    [
        pytest.param(current([[3]]), "baseten_model_concurrent_requests 3.0", id="a plain gauge"),
        pytest.param(
            current([[0.25, 0.5]], PER_GPU),
            """
            baseten_model_gpu_utilization_ratio{gpu="0"} 0.25
            baseten_model_gpu_utilization_ratio{gpu="1"} 0.5
            """,
            id="a gauge per GPU",
        ),
        pytest.param(
            current([[2]], metric("baseten_gpu_memory_used", "GAUGE", "MEBIBYTES")),
            "baseten_model_gpu_memory_used_bytes 2.097152e+06",
            id="mebibytes become bytes",
        ),
        pytest.param(
            current([[7], [3]], metric("vllm:num_requests_running", "GAUGE", "COUNT"), GAUGE),
            """
            baseten_model_engine_vllm_num_requests_running 7.0
            baseten_model_concurrent_requests 3.0
            """,
            id="several metrics, by position",
        ),
        pytest.param(
            model_answer([COUNTER], [(0, [[120]])], end_epoch_millis=60_000),
            "baseten_model_llm_input_tokens_per_second 2.0",
            id="a counter is divided by the answer's span",
        ),
        pytest.param(
            model_answer([COUNTER], [(0, [[120]])], start_epoch_millis=940_000),
            "baseten_model_llm_input_tokens_per_second 2.0",
            id="which starts anywhere",
        ),
        pytest.param(
            current([[120]], COUNTER),
            "baseten_model_llm_input_tokens_per_step 120.0",
            id="without a start a counter stays raw",
        ),
        pytest.param(
            model_answer([COUNTER], [(0, [[120]])], end_epoch_millis=None),
            "baseten_model_llm_input_tokens_per_step 120.0",
            id="without an end, too",
        ),
        pytest.param(
            model_answer([COUNTER], [(0, [[120]])], start_epoch_millis=1_000_000),
            "baseten_model_llm_input_tokens_per_step 120.0",
            id="a span of no length is none",
        ),
        pytest.param(
            model_answer([COUNTER], [(0, [[120]])], start_epoch_millis=1_000_001),
            "baseten_model_llm_input_tokens_per_step 120.0",
            id="nor is a negative one",
        ),
        pytest.param(
            current([[5]], metric("baseten_x_total", "COUNTER", "PER_SECOND")),
            "baseten_model_x_per_second 5.0",
            id="a counter that is a rate needs no span",
        ),
        pytest.param(
            model_answer([MEBIBYTES], [(0, [[3]])], end_epoch_millis=2000),
            "baseten_model_x_bytes_per_second 1.572864e+06",
            id="scaled and divided",
        ),
        pytest.param(
            current([[1, 2, 3, 4, 5]], HISTOGRAM),
            """
            baseten_model_end_to_end_response_time_seconds{quantile="0.5"} 1.0
            baseten_model_end_to_end_response_time_seconds{quantile="0.9"} 2.0
            baseten_model_end_to_end_response_time_seconds{quantile="0.95"} 3.0
            baseten_model_end_to_end_response_time_seconds{quantile="0.99"} 4.0
            baseten_model_end_to_end_response_time_average_seconds 5.0
            """,
            id="quantiles, and the average apart",
        ),
        pytest.param(
            current([[1], [2], [3]], *(metric(name, kind, hint) for name, kind, hint in (
                ("a", "SUMMARY", "FURLONGS"), ("b", None, None), ("c_total", "", "")))),
            """
            baseten_model_engine_a 1.0
            baseten_model_engine_b 2.0
            baseten_model_engine_c_total 3.0
            """,
            id="unknown or missing kinds are gauges",
        ),
        pytest.param(
            model_answer([GAUGE], [(0, [[1]]), (30, [[2]])]),
            "baseten_model_concurrent_requests 1.0",
            id="of several value sets only the first counts",
        ),
        pytest.param(model_answer([GAUGE], []), "", id="no value sets"),
        pytest.param(model_answer([], [(0, [])]), "", id="no descriptors"),
        pytest.param(
            current([[], [3]], metric("x", "GAUGE", "COUNT") | {"label_sets": []}, GAUGE),
            "baseten_model_concurrent_requests 3.0",
            id="a metric without label sets has no series",
        ),
        pytest.param(
            current([[]], {"name": "x", "label_sets": None}), "", id="label sets may be null"
        ),
    ],
)  # fmt: skip
def test_one_step_becomes_gauges(answer: Json, samples: str) -> None:
    harvest = translated(answer)
    assert lines(harvest) == expected(samples)
    assert not harvest.dropped


@pytest.mark.parametrize(
    ("settling", "families"),
    [
        (False, {"baseten_model_concurrent_requests", "baseten_model_engine_b"}),
        (True, {"baseten_model_llm_input_tokens_per_second", "baseten_model_engine_h_seconds"}),
        (
            None,
            {
                "baseten_model_concurrent_requests",
                "baseten_model_engine_b",
                "baseten_model_llm_input_tokens_per_second",
                "baseten_model_engine_h_seconds",
            },
        ),
    ],
    ids=["CURRENT of auto: all but counters and histograms", "SUMMARY of auto: only those", "else: all"],
)
def test_of_the_two_answers_of_auto_each_gives_its_kinds(settling: bool | None, families: set[str]) -> None:  # noqa: FBT001 - a row's value
    metrics = [GAUGE, COUNTER, metric("h", "HISTOGRAM", "SECONDS"), metric("b", "NOVEL", "COUNT")]
    answer = model_answer(metrics, [(0, [[1], [2], [3], [4]])])
    harvest = translated(answer, Question("CURRENT", None, None, settling))
    assert {family.name for family in harvest.families()} == families
    assert not harvest.dropped


@pytest.mark.parametrize(
    ("end", "newest"),
    [
        pytest.param(990_500, 990.5, id="the answer's end"),
        pytest.param(None, NOW, id="without one, the poll's time"),
        pytest.param(math.nan, NOW, id="an end that is no number is none"),
        pytest.param(math.inf, NOW, id="nor is an infinite one"),
    ],
)
def test_the_time_of_a_current_value(end: float | None, newest: float) -> None:
    harvest = translated(model_answer([GAUGE, COUNTER], [(0, [[1], [2]])], end_epoch_millis=end))
    assert harvest.newest == newest
    assert len(lines(harvest)) == 2


# Bad values: each costs itself only


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param("null", "null", id="null"),
        pytest.param("true", "not_a_number", id="true"),
        pytest.param("false", "not_a_number", id="false"),
        pytest.param('"3"', "not_a_number", id="a number in quotes"),
        pytest.param("[3]", "not_a_number", id="a list"),
        pytest.param('{"value": 3}', "not_a_number", id="an object"),
        pytest.param("NaN", "not_finite", id="NaN"),
        pytest.param("Infinity", "not_finite", id="Infinity"),
        pytest.param("-Infinity", "not_finite", id="-Infinity"),
        pytest.param("1e999", "not_finite", id="a float too large"),
        pytest.param("9" * 400, "not_finite", id="an integer too large for a float"),
        pytest.param("1.7e308", "not_finite", id="too large once scaled"),
    ],
)
def test_a_bad_value_costs_one_sample(raw: str, reason: Any) -> None:
    answer = (
        '{"metric_descriptors": [{"name": "x", "unit_hint": "MEBIBYTES",'
        ' "label_sets": [{"gpu": "0"}, {"gpu": "1"}, {"gpu": "2"}]}],'
        f' "metric_values": [{{"values": [[1, {raw}, 2]]}}]}}'
    ).encode()
    harvest = translated(answer)
    assert lines(harvest) == expected(
        """
        baseten_model_engine_x_bytes{gpu="0"} 1.048576e+06
        baseten_model_engine_x_bytes{gpu="2"} 2.097152e+06
        """
    )
    assert harvest.dropped == {reason: 1}


@pytest.mark.parametrize(
    ("values", "lost"),
    [
        pytest.param([[1]], 2, id="fewer values than label sets"),
        pytest.param([[1, 2, 3]], 2, id="more values than label sets"),
        pytest.param([[]], 2, id="no values"),
        pytest.param([None], 2, id="null for values"),
        pytest.param([7], 2, id="a number for values"),
        pytest.param([], 3, id="fewer lists than descriptors"),
    ],
)
def test_values_that_do_not_line_up_cost_their_descriptor(values: list[Any], lost: int) -> None:
    harvest = translated(current([*values, [3]] if values else [], BY_STATUS, GAUGE))
    assert lines(harvest) == (["baseten_model_concurrent_requests 3.0"] if values else [])
    assert harvest.dropped == {"misaligned": lost}


def test_values_without_label_sets_count_as_one_loss() -> None:
    assert translated(current([[1]], {"name": "x"})).dropped == {"misaligned": 1}


def test_more_lists_than_descriptors_do_no_harm() -> None:
    assert lines(translated(current([[3], [4]]))) == ["baseten_model_concurrent_requests 3.0"]


def test_two_sources_on_one_series_keep_the_first_and_name_the_second() -> None:
    harvest = translated(current([[1], [2]], metric("a.b", "GAUGE", ""), metric("a:b", "GAUGE", "")))
    assert lines(harvest) == ["baseten_model_engine_a_b 1.0"]
    assert harvest.dropped == {"duplicate": 1}
    assert harvest.duplicate == "baseten_model_engine_a_b{}"


@pytest.mark.parametrize(("oldest", "kept"), [(990, True), (990.1, False)])
def test_a_value_older_than_max_sample_age_is_absent(oldest: float, *, kept: bool) -> None:
    harvest = translated(current([[3]], end_epoch_millis=990_000), oldest=oldest)
    assert bool(lines(harvest)) is kept
    assert harvest.dropped == ({} if kept else {"too_old": 1})


# Labels

OWN: Labels = (("model_id", "m1"), ("team", "search"), ("exported_team", "x"))


@pytest.mark.parametrize(
    ("label_set", "labels"),
    [
        pytest.param({"b": "2", "a": "1"}, 'a="1",b="2"', id="in order of their names"),
        pytest.param({"model_id": "m1"}, "", id="one of ours that says the same is dropped"),
        pytest.param({"model_id": "m2"}, 'exported_model_id="m2"', id="one of ours that says otherwise"),
        pytest.param({"model.id": "m2"}, 'exported_model_id="m2"', id="ours once made legal"),
        pytest.param({"team": "ads"}, 'exported_exported_team="ads"', id="renamed until it is free"),
        pytest.param({"__name__": "up"}, 'exported___name__="up"', id="__name__"),
        pytest.param({"__meta": "x"}, 'exported___meta="x"', id="reserved by Prometheus"),
        pytest.param({"9lives": "x"}, 'exported_9lives="x"', id="a digit first"),
        pytest.param({"": "x"}, 'exported_="x"', id="no name"),
        pytest.param({"gpu-id.µ": "x"}, 'gpu_id__="x"', id="odd characters"),
        pytest.param({"le": "0.5"}, 'le="0.5"', id="le is a label like any other"),
        pytest.param({"a.b": "1", "a_b": "2"}, 'a_b="1"', id="two names alike: the first"),
        pytest.param({"a": ""}, "", id="an empty value is no label"),
        pytest.param({"a": None}, "", id="nor is null"),
        pytest.param({"a": 3}, 'a="3"', id="an integer"),
        pytest.param({"a": 0.5}, 'a="0.5"', id="a float"),
        pytest.param({"a": True}, 'a="true"', id="a boolean"),
        pytest.param({"a": 'q"\\\n%s'}, r'a="q\"\\\n%s"', id="escaped"),
        pytest.param({"a": "\ud800x"}, 'a="?x"', id="a lone surrogate"),
        pytest.param({"a": "ü€😀"}, 'a="ü€😀"', id="unicode"),
    ],
)
def test_labels_are_kept_legal_and_ours_win(label_set: Json, labels: str) -> None:
    harvest = translated(current([[1]], metric("x", "GAUGE", "", label_set)), own=OWN)
    assert lines(harvest) == [
        f"baseten_model_engine_x{{{labels}}} 1.0" if labels else "baseten_model_engine_x 1.0"
    ]
    assert not harvest.dropped


@pytest.mark.parametrize("bad", [["x"], {"x": "y"}, []], ids=["a list", "an object", "an empty list"])
def test_a_label_that_is_no_text_costs_its_series(bad: object) -> None:
    descriptor = metric("x", "GAUGE", "", {"gpu": "0"}, {"gpu": bad}, {"gpu": "2"})
    harvest = translated(current([[1, 2, 3]], descriptor))
    assert lines(harvest) == ['baseten_model_engine_x{gpu="0"} 1.0', 'baseten_model_engine_x{gpu="2"} 3.0']
    assert harvest.dropped == {"bad_label": 1}


@pytest.mark.parametrize(
    ("stat", "family"),
    [
        pytest.param("avg", "x_average_seconds", id="avg"),
        pytest.param("max", "x_max_seconds", id="another"),
        pytest.param(99, "x_99_seconds", id="a number"),
        pytest.param(None, "x_seconds", id="null is none"),
        pytest.param("\ud800", "x___seconds", id="a lone surrogate"),
    ],
)
def test_stat_is_no_label_but_part_of_the_name(stat: object, family: str) -> None:
    descriptor = metric("x", "HISTOGRAM", "SECONDS", {"stat": stat, "replica": "r"})
    assert lines(translated(current([[1]], descriptor))) == [
        f'baseten_model_engine_{family}{{replica="r"}} 1.0'
    ]


def test_the_targets_labels_stand_on_every_series() -> None:
    own = (("workspace", "w"), ("model_id", 'm"1'))
    harvest = translated(current([[1, 2]], BY_STATUS), own=own)
    assert lines(harvest, own) == expected(
        r"""
        baseten_model_inference_requests_per_step{model_id="m\"1",status="200",workspace="w"} 1.0
        baseten_model_inference_requests_per_step{model_id="m\"1",status="500",workspace="w"} 2.0
        """
    )


@pytest.mark.parametrize(
    ("raw", "text"),
    [("a", "a"), (None, ""), (True, "true"), (1, "1"), (1.5, "1.5"), ([], None), ({}, None)],
)
def test_label_text(raw: object, text: str | None) -> None:
    assert label_text(raw) == text


CATALOGUE_HELP = catalogue.name("baseten_concurrent_requests", "GAUGE", "COUNT").help


def test_the_page_has_one_header_per_family() -> None:
    assert page(translated(current([[3]]))).splitlines() == [
        f"# HELP baseten_model_concurrent_requests {CATALOGUE_HELP}",
        "# TYPE baseten_model_concurrent_requests gauge",
        "baseten_model_concurrent_requests 3.0",
    ]


# Many steps: SERIES. Now is 1000, counters and histograms are settled at 880.


@pytest.mark.parametrize(
    ("steps", "more", "value", "time"),
    [
        pytest.param([(900, 1), (930, 2), (960, 3)], {"step_seconds": 30}, 3, 990, id="the newest step"),
        pytest.param([(960, 3), (900, 1), (930, 2)], {"step_seconds": 30}, 3, 990, id="in any order"),
        pytest.param([(940, 1), (970, 2)], {"step_seconds": 30}, 2, 1000, id="one that ends with the window"),
        pytest.param([(950, 1), (980, 2)], {"step_seconds": 30}, 1, 980, id="an incomplete one is not yet"),
        pytest.param([(980, 2)], {"step_seconds": 30}, None, None, id="nothing but an incomplete one"),
        pytest.param([(900, 1), (930, None), (960, None)], {"step_seconds": 30}, 1, 930, id="with a value"),
        pytest.param([(900, 1), (930, 0)], {"step_seconds": 30}, 0, 960, id="zero is a value"),
        pytest.param([(900, 1), (930, 2)], {}, 2, 1000, id="no step length: until the window ends"),
        pytest.param([(900, 1), (930, None)], {}, 1, 930, id="no step length: until the next step"),
        pytest.param([(900, 1), (930, 2)], {"step_seconds": 0}, 2, 1000, id="a step of zero seconds is none"),
        pytest.param([(900, 1)], {"step_seconds": -30}, None, None, id="a step backwards"),
        pytest.param([(900, 1)], {"step_seconds": math.nan}, None, None, id="a step of NaN seconds"),
        pytest.param([(900, 1), (900, 2)], {}, 1, 1000, id="two steps at once: the first"),
        pytest.param([(900, 1), (None, 2)], {"step_seconds": 30}, 1, 930, id="a step without a start"),
        pytest.param([(900, 1), (math.nan, 2)], {"step_seconds": 30}, 1, 930, id="one that starts at NaN"),
        pytest.param([(1000, 1), (1030, 2)], {}, None, None, id="steps beyond the window"),
        pytest.param(
            [(900, 1), (930, 2)], {"step_seconds": 30, "end_epoch_millis": 940_000}, 1, 930,
            id="the window is the answer's",
        ),
        pytest.param(
            [(900, 1), (970, 2), (980, 3)], {"step_seconds": 30, "end_epoch_millis": None}, 2, 1000,
            id="no window: until the poll",
        ),
        pytest.param([], {"step_seconds": 30}, None, None, id="no steps"),
    ],
)  # fmt: skip
def test_a_gauge_takes_the_newest_complete_step_with_a_value(
    steps: Any, more: Json, value: float | None, time: float | None
) -> None:
    harvest = translated(series(GAUGE, *steps, **more), SERIES)
    assert lines(harvest) == ([] if value is None else [f"baseten_model_concurrent_requests {value:.1f}"])
    assert harvest.newest == time
    assert not harvest.dropped


@pytest.mark.parametrize(
    ("steps", "more", "samples", "time"),
    [
        pytest.param(
            [(850, 60), (880, 90)], {"step_seconds": 30}, "_per_second 2.0", 880, id="settled just now"
        ),
        pytest.param([(851, 60)], {"step_seconds": 30}, "", None, id="not settled yet"),
        pytest.param(
            [(790, 30), (820, None), (850, None)], {"step_seconds": 30}, "_per_second 1.0", 820, id="a value"
        ),
        pytest.param(
            [(790, 30), (850, 0)], {"step_seconds": 30}, "_per_second 0.0", 880, id="zero is a value"
        ),
        pytest.param([(800, 60), (860, 9), (885, 9)], {}, "_per_second 1.0", 860, id="no step length"),
    ],
)
def test_a_counter_takes_the_newest_settled_step_with_a_value(
    steps: Any, more: Json, samples: str, time: float | None
) -> None:
    harvest = translated(series(COUNTER, *steps, **more), SERIES)
    assert lines(harvest) == ([f"baseten_model_llm_input_tokens{samples}"] if samples else [])
    assert harvest.newest == time


def test_of_two_steps_at_once_the_second_has_no_length() -> None:
    harvest = translated(series(COUNTER, (800, None), (800, 60), (850, None), (870, 1)), SERIES)
    assert not lines(harvest)
    assert harvest.dropped == {"null": 1}


def test_a_series_without_any_value_is_counted_once() -> None:
    harvest = translated(series(GAUGE, (900, None), (930, None), step_seconds=30), SERIES)
    assert not lines(harvest)
    assert harvest.dropped == {"null": 1}


def test_a_bad_newest_value_is_not_replaced_by_an_older_one() -> None:
    harvest = translated(series(GAUGE, (900, 1), (930, math.nan), step_seconds=30), SERIES)
    assert not lines(harvest)
    assert harvest.dropped == {"not_finite": 1}


def test_every_series_finds_its_own_step() -> None:
    steps: Any = [(790, [[30, 3], [4]]), (820, [[None, 6], [5]]), (850, [[None, None], [None]])]
    harvest = translated(model_answer([BY_STATUS, GAUGE], steps, step_seconds=30), SERIES)
    assert lines(harvest) == expected(
        """
        baseten_model_inference_requests_per_second{status="200"} 1.0
        baseten_model_inference_requests_per_second{status="500"} 0.2
        baseten_model_concurrent_requests 5.0
        """
    )
    assert harvest.newest == 850


def test_one_misaligned_step_costs_its_descriptor_only() -> None:
    steps: Any = [(790, [[30, 3], [4]]), (820, [[30], [5]])]
    harvest = translated(model_answer([BY_STATUS, GAUGE], steps, step_seconds=30), SERIES)
    assert lines(harvest) == ["baseten_model_concurrent_requests 5.0"]
    assert harvest.dropped == {"misaligned": 2}


def test_the_age_of_a_step_is_that_of_its_end() -> None:
    answer = series(COUNTER, (790, 30), step_seconds=30)
    assert lines(translated(answer, SERIES, oldest=820))
    assert translated(answer, SERIES, oldest=821).dropped == {"too_old": 1}


# Two live answers, rebuilt from their published descriptions


def test_a_quiet_summary_over_six_hours() -> None:
    requests = metric("baseten_inference_requests_total", "COUNTER", "COUNT", {"status": "200"})
    replicas = metric("baseten_replicas_active", "GAUGE", "COUNT")
    values = [[0.098], [19.0], [None] * 5]
    answer = model_answer(
        [replicas, requests, HISTOGRAM], [(0, values)], end_epoch_millis=21_600_000, mode="SUMMARY"
    )
    harvest = translated(answer, SUMMARY, now=21_720)
    assert lines(harvest) == expected(
        f"""
        baseten_model_replicas_active 0.098
        baseten_model_inference_requests_per_second{{status="200"}} {19 / 21_600}
        """
    )
    assert harvest.dropped == {"null": 5}
    assert harvest.newest == 21_600


BURSTS = {12: 2.0, 27: 5.0}
"""Requests by number of the step, of 41 steps of 30 s; the other steps hold null or 0."""


@pytest.mark.parametrize("idle", [None, 0.0], ids=["idle is null", "idle is 0"])
@pytest.mark.parametrize(("step", "requests"), BURSTS.items())
def test_a_burst_in_a_series_is_seen_while_its_step_is_the_newest_settled(
    step: int, requests: float, idle: float | None
) -> None:
    start = 1_800_000_000
    counter = metric("baseten_inference_requests_total", "COUNTER", "COUNT", {"status": "200"})
    values = [[[BURSTS.get(number, idle)], [None] * 5] for number in range(41)]
    answer = model_answer(
        [counter, HISTOGRAM],
        [(start + 30 * number, value) for number, value in enumerate(values)],
        start_epoch_millis=start * 1000,
        end_epoch_millis=(start + 41 * 30) * 1000,
        step_seconds=30,
        mode="SERIES",
    )
    settled = start + 30 * (step + 1)
    question = Question("SERIES", None, (start, settled + 120), None, settled_at=settled)
    harvest = translated(answer, question, now=settled + 120)
    assert lines(harvest) == [f'baseten_model_inference_requests_per_second{{status="200"}} {requests / 30}']
    assert harvest.dropped == {"null": 5}
    assert harvest.newest == settled


def test_current_is_the_question_of_the_tables_above() -> None:
    assert asked("current", "default") == [CURRENT]
