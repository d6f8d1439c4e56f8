"""The names of model metrics: by rule, by the table of exceptions, and legal whatever comes."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter import exposition
from exporter.baseten import catalogue
from exporter.baseten.catalogue import CATALOGUE, sanitize
from exporter.model import Family, Sample
from tests.helpers_baseten import grouped

MIB = 1048576.0

KINDS = st.sampled_from(["GAUGE", "COUNTER", "HISTOGRAM", "SUMMARY", ""])
HINTS = st.sampled_from(["COUNT", "SECONDS", "BYTES", "MEBIBYTES", "RATIO", "PER_SECOND", "FURLONGS", ""])


@pytest.mark.parametrize(
    ("source", "kind", "hint", "family"),
    [
        pytest.param("baseten_up", "GAUGE", "COUNT", "model_up", id="the prefix gives way to ours"),
        pytest.param("tps", "GAUGE", "COUNT", "model_engine_tps", id="no prefix: from the serving engine"),
        pytest.param("vllm:running", "GAUGE", "COUNT", "model_engine_vllm_running", id="a colon"),
        pytest.param("größe.µ-x y", "GAUGE", "COUNT", "model_engine_gr__e___x_y", id="odd characters"),
        pytest.param("9lives", "GAUGE", "COUNT", "model_engine_9lives", id="a digit first"),
        pytest.param("", "GAUGE", "COUNT", "model_engine_", id="an empty name"),
        pytest.param("baseten_", "GAUGE", "COUNT", "model_", id="nothing but the prefix"),
        pytest.param("Baseten_x", "GAUGE", "COUNT", "model_engine_Baseten_x", id="the prefix heeds case"),
        pytest.param("baseten_x_total", "GAUGE", "COUNT", "model_x_total", id="a gauge keeps _total"),
        pytest.param("baseten_x", "GAUGE", "SECONDS", "model_x_seconds", id="seconds"),
        pytest.param("baseten_x", "GAUGE", "BYTES", "model_x_bytes", id="bytes"),
        pytest.param("baseten_x", "GAUGE", "MEBIBYTES", "model_x_bytes", id="mebibytes"),
        pytest.param("baseten_x", "GAUGE", "RATIO", "model_x_ratio", id="a ratio"),
        pytest.param("baseten_x", "GAUGE", "PER_SECOND", "model_x_per_second", id="per second"),
        pytest.param("baseten_x", "GAUGE", "FURLONGS", "model_x", id="an unknown hint adds nothing"),
        pytest.param("baseten_x", "GAUGE", "", "model_x", id="no hint adds nothing"),
        pytest.param("baseten_x_seconds", "GAUGE", "SECONDS", "model_x_seconds", id="_seconds once"),
        pytest.param("baseten_x_bytes", "GAUGE", "MEBIBYTES", "model_x_bytes", id="_bytes once"),
        pytest.param("baseten_x_ratio", "GAUGE", "RATIO", "model_x_ratio", id="_ratio once"),
        pytest.param("x_per_second", "GAUGE", "PER_SECOND", "model_engine_x_per_second", id="rate once"),
        pytest.param("baseten_x_seconds", "GAUGE", "RATIO", "model_x_seconds_ratio", id="hint beats name"),
        pytest.param("baseten_x", "HISTOGRAM", "SECONDS", "model_x_seconds", id="histogram as gauge"),
        pytest.param(
            "baseten_x_total", "SUMMARY", "BYTES", "model_x_total_bytes", id="unknown kind as gauge"
        ),
        pytest.param("baseten_x_total", "", "COUNT", "model_x_total", id="no kind as gauge"),
    ],
)
def test_a_value_is_named_after_its_source_and_unit(source: str, kind: str, hint: str, family: str) -> None:
    naming = catalogue.name(source, kind, hint)
    assert naming.family == f"baseten_{family}"
    assert naming.scale == (MIB if hint == "MEBIBYTES" else 1)
    assert not naming.per_span


@pytest.mark.parametrize(
    ("source", "hint", "family", "per_span"),
    [
        pytest.param("baseten_x_total", "COUNT", "model_x_per_second", True, id="a count"),
        pytest.param("baseten_x_total", "", "model_x_per_second", True, id="no hint: a total"),
        pytest.param("baseten_x_total", "FURLONGS", "model_x_per_second", True, id="unknown hint: a total"),
        pytest.param("baseten_x", "COUNT", "model_x_per_second", True, id="without _total"),
        pytest.param("x_total", "COUNT", "model_engine_x_per_second", True, id="an engine's count"),
        pytest.param("baseten_x_bytes_total", "BYTES", "model_x_bytes_per_second", True, id="bytes"),
        pytest.param("baseten_x_total", "BYTES", "model_x_bytes_per_second", True, id="bytes not so named"),
        pytest.param("baseten_x_total", "MEBIBYTES", "model_x_bytes_per_second", True, id="mebibytes"),
        pytest.param("baseten_x_seconds_total", "SECONDS", "model_x_seconds_per_second", True, id="seconds"),
        pytest.param("baseten_x_total", "PER_SECOND", "model_x_per_second", False, id="a rate already"),
        pytest.param("x_per_second", "PER_SECOND", "model_engine_x_per_second", False, id="named a rate"),
        pytest.param("baseten_x_total", "RATIO", "model_x_ratio", False, id="a ratio is a rate already"),
    ],
)
def test_a_counter_becomes_a_rate(source: str, hint: str, family: str, *, per_span: bool) -> None:
    naming = catalogue.name(source, "COUNTER", hint)
    assert naming.family == f"baseten_{family}"
    assert naming.scale == (MIB if hint == "MEBIBYTES" else 1)
    assert naming.per_span is per_span


@pytest.mark.parametrize(
    ("hint", "family"),
    [
        pytest.param("COUNT", "baseten_model_x_per_step", id="a count"),
        pytest.param("BYTES", "baseten_model_x_bytes_per_step", id="bytes"),
        pytest.param("PER_SECOND", "baseten_model_x_per_second", id="a rate needs no span"),
    ],
)
def test_a_counter_of_unknown_span_stays_raw_and_says_so(hint: str, family: str) -> None:
    naming = catalogue.name("baseten_x_total", "COUNTER", hint, span_known=False)
    assert naming.family == family
    assert not naming.per_span
    assert ("per step of unknown length" in naming.help) == family.endswith("_per_step")


CPU = "baseten_container_cpu_usage_seconds_total"
HIT_RATE = "baseten_llm_kv_cache_hit_rate"
SPEED = "baseten_llm_tokens_per_second_per_request"


@pytest.mark.parametrize(
    ("source", "kind", "hint", "family"),
    [
        pytest.param(CPU, "COUNTER", "RATIO", "container_cpu_usage_cores", id="CPU"),
        pytest.param(CPU, "GAUGE", "RATIO", "container_cpu_usage_seconds_total_ratio", id="CPU, other kind"),
        pytest.param(
            CPU, "COUNTER", "SECONDS", "container_cpu_usage_seconds_per_second", id="CPU, other hint"
        ),
        pytest.param(HIT_RATE, "GAUGE", "RATIO", "llm_kv_cache_hit_ratio", id="hit rate"),
        pytest.param(HIT_RATE, "GAUGE", "COUNT", "llm_kv_cache_hit_rate", id="hit rate, other hint"),
        pytest.param(SPEED, "HISTOGRAM", "PER_SECOND", "llm_tokens_per_second_per_request", id="speed"),
        pytest.param(
            SPEED,
            "GAUGE",
            "PER_SECOND",
            "llm_tokens_per_second_per_request_per_second",
            id="speed, other kind",
        ),
    ],
)
def test_an_exception_holds_while_kind_and_hint_are_as_expected(
    source: str, kind: str, hint: str, family: str
) -> None:
    assert catalogue.name(source, kind, hint).family == f"baseten_model_{family}"


@pytest.mark.parametrize(
    ("source", "hint", "stat", "family"),
    [
        pytest.param("baseten_x_seconds", "SECONDS", "avg", "x_average_seconds", id="before the unit"),
        pytest.param("baseten_x", "COUNT", "avg", "x_average", id="without a unit"),
        pytest.param("baseten_x", "SECONDS", "max", "x_max_seconds", id="another statistic by its name"),
        pytest.param("baseten_x", "SECONDS", "p99.9", "x_p99_9_seconds", id="made legal"),
        pytest.param(SPEED, "PER_SECOND", "avg", f"{SPEED[8:]}_average", id="behind an exception's name"),
        pytest.param(HIT_RATE, "COUNT", "avg", "llm_kv_cache_hit_rate_average", id="known, other kind"),
    ],
)  # fmt: skip
def test_a_statistic_is_a_family_of_its_own(source: str, hint: str, stat: str, family: str) -> None:
    assert catalogue.name(source, "HISTOGRAM", hint, stat=stat).family == f"baseten_model_{family}"


def test_a_statistic_stands_before_the_rate() -> None:
    naming = catalogue.name("baseten_x_bytes_total", "COUNTER", "BYTES", stat="max")
    assert naming.family == "baseten_model_x_max_bytes_per_second"


@pytest.mark.parametrize(
    ("source", "kind", "hint", "stat", "subject", "unit", "covers"),
    [
        pytest.param(
            "baseten_gpu_memory_used", "GAUGE", "MEBIBYTES", "",
            "GPU memory in use", "bytes", "the moment of the poll", id="a known gauge",
        ),
        pytest.param(
            "baseten_llm_input_tokens_total", "COUNTER", "COUNT", "",
            "Input tokens", "per second", "the window", id="a known counter",
        ),
        pytest.param(
            "x", "COUNTER", "BYTES", "",
            "Metric x", "bytes per second", "the window", id="an unknown counter",
        ),
        pytest.param(
            CPU, "COUNTER", "RATIO", "",
            "CPU cores in use", "cores", "the window", id="an exception",
        ),
        pytest.param(
            "vllm:e2e", "HISTOGRAM", "SECONDS", "avg",
            "Metric vllm:e2e (average)", "seconds", "the window", id="an average",
        ),
        pytest.param(
            "x", "", "", "max",
            "Metric x (max)", "count", "the moment of the poll", id="nothing known",
        ),
    ],
)  # fmt: skip
def test_help_says_source_unit_and_window(
    source: str, kind: str, hint: str, stat: str, subject: str, unit: str, covers: str
) -> None:
    text = catalogue.name(source, kind, hint, stat=stat).help
    assert text.startswith(f"{subject}. Source: {source}. Unit: {unit}. Covers: {covers}")
    assert text.endswith(" Latest polled value.")


@settings(deadline=None)
@given(
    source=st.text() | st.sampled_from(sorted(CATALOGUE)), kind=KINDS, hint=HINTS, stat=st.text(), known=...
)
def test_whatever_comes_the_name_is_legal_and_the_help_one_line(
    source: str,
    kind: str,
    hint: str,
    stat: str,
    known: bool,  # noqa: FBT001 - drawn, not passed
) -> None:
    naming = catalogue.name(source, kind, hint, stat=stat, span_known=known)
    assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", naming.family)
    family = Family(naming.family, naming.help, (Sample((), 1.0),))
    blocks = exposition.blocks(grouped([exposition.pieces([family], ())]), exposition.Format.TEXT)
    page = b"".join(blocks).decode()
    assert page.count("\n") == 3
    assert [each.documentation for each in text_string_to_metric_families(page)] == [naming.help]


def test_known_metrics_have_families_of_their_own() -> None:
    families = [
        catalogue.name(source, known.kind, known.unit_hint).family for source, known in CATALOGUE.items()
    ]
    assert len(set(families)) == len(CATALOGUE) == 36


@pytest.mark.parametrize("source", CATALOGUE)
def test_no_family_takes_a_name_of_the_older_export(source: str) -> None:
    known = CATALOGUE[source]
    assert catalogue.name(source, known.kind, known.unit_hint).family not in CATALOGUE


def test_sanitize_replaces_each_character_that_is_not_legal() -> None:
    assert sanitize("a.b:c-dé_9") == "a_b_c_d__9"
