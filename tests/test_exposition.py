"""The bytes of a page are what `prometheus_client` writes for the same families, and it can read them."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client import generate_latest as generate_text
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.registry import Collector

from exporter.exposition import Format, accumulated, blocks, pieces
from exporter.model import Family, Labels, Sample
from exporter.telemetry import Telemetry
from tests.helpers_baseten import grouped

GENERATE: dict[Format, Callable[[Collector], bytes]] = {
    Format.TEXT: generate_text,
    Format.OPENMETRICS: generate_openmetrics,
}
READ: dict[Format, Callable[[str], Iterable[Metric]]] = {
    Format.TEXT: read_text,
    Format.OPENMETRICS: read_openmetrics,
}
EOF = b"# EOF\n"


class Polled(NamedTuple):
    """What one target brings to the page."""

    labels: Labels
    families: list[Family]


class Reference(Collector):
    """The same families in the client library's own words."""

    def __init__(self, targets: list[Polled]) -> None:
        self._targets = targets

    def collect(self) -> Iterator[Metric]:
        families = [(family, target.labels) for target in self._targets for family in target.families]
        for name in sorted({family.name for family, _ in families}):
            shares = [(family, labels) for family, labels in families if family.name == name]
            metric = GaugeMetricFamily(name, shares[0][0].help)
            for family, labels in shares:
                for sample in family.samples:
                    metric.add_sample(name, dict(labels + sample.labels), sample.value)
            yield metric


def page(targets: list[Polled], page_format: Format, only: frozenset[str] | None = None) -> bytes:
    return b"".join(
        blocks(grouped(pieces(target.families, target.labels) for target in targets), page_format, only)
    )


def reference(targets: list[Polled], page_format: Format) -> bytes:
    return GENERATE[page_format](Reference(targets)).removesuffix(EOF)


AWKWARD_TEXTS = [
    *("%", "%s", "100%d%%", '"', "\\", "\\n", "\n", "a\nb", '\\"', '\\\n"'),
    *("{}", "}", ",", "=", " x ", "\r", "\t", "\u2028", "\x00", "\ufeff", "é", "\U0001f9ea"),
]
AWKWARD_VALUES = [-0.0, 5e-324, 1.7976931348623157e308, 1e21, 123456789012.0, 0.1, 1 / 3, -1e-7, 1e6, 1e16]
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5) | st.sampled_from(
    AWKWARD_TEXTS
)
values = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(AWKWARD_VALUES)
OWN_NAMES = ["workspace", "team", "Z", "_x", "deployment_id"]
SAMPLE_NAMES = ["quantile", "gpu", "A", "a0", "status", "zz_top"]
FAMILIES = ["baseten_model_x", "baseten_model_x_bytes", "baseten_model_y_per_second", "baseten_loops_z_ratio"]


def label_sets(names: list[str]) -> st.SearchStrategy[Labels]:
    """Some of the names, in any order."""
    chosen = st.lists(st.tuples(st.sampled_from(names), texts), unique_by=lambda pair: pair[0], max_size=3)
    return chosen.map(tuple)


def families(names: list[str]) -> st.SearchStrategy[list[Family]]:
    """Some of the families; the labels of a family's series differ, whatever order they stand in."""
    series = st.lists(
        st.builds(Sample, label_sets(SAMPLE_NAMES), values),
        min_size=1,
        max_size=4,
        unique_by=lambda sample: frozenset(sample.labels),
    ).map(tuple)
    made = st.builds(Family, st.sampled_from(names), st.just(""), series)
    return st.lists(made, unique_by=lambda family: family.name, max_size=3)


@st.composite
def worlds(draw: st.DrawFn) -> list[Polled]:
    """Several targets whose labels differ, with one help text per family."""
    helps = {name: draw(texts) for name in FAMILIES}
    return [
        Polled(
            (("target", str(number)), *draw(label_sets(OWN_NAMES))),
            [replace(family, help=helps[family.name]) for family in draw(families(FAMILIES))],
        )
        for number in range(draw(st.integers(1, 3)))
    ]


AWKWARD = [
    Polled(
        (("workspace", '50% "off"\n\\'),),
        [
            Family(
                "baseten_model_x", 'say "50%"\\\nor %s', (Sample((("a", "%s%%d"),), -0.0), Sample((), 1e300))
            )
        ],
    )
]


@settings(max_examples=300, deadline=None)
@given(targets=worlds())
@example(targets=AWKWARD)
def test_a_page_is_what_the_client_library_writes_and_reads(targets: list[Polled]) -> None:
    for page_format in Format:
        assert page(targets, page_format) == reference(targets, page_format)
        assert read_back(targets, page_format) == sorted(
            (family.name, sorted(target.labels + sample.labels), repr(sample.value))
            for target in targets
            for family in target.families
            for sample in family.samples
        )


def read_back(targets: list[Polled], page_format: Format) -> list[tuple[str, list[tuple[str, str]], str]]:
    end = EOF if page_format is Format.OPENMETRICS else b""
    text = (page(targets, page_format) + end).decode()
    return sorted(
        (sample.name, sorted(sample.labels.items()), repr(float(sample.value)))
        for family in READ[page_format](text)
        for sample in family.samples
    )


def family(name: str, value: float = 1.0, text: str = "Help.") -> Family:
    return Family(name, text, (Sample((), value),))


TWO = [
    Polled((("t", "1"),), [family("b"), family("a", 2)]),
    Polled((("t", "2"),), [family("a", 3), family("c")]),
]


def test_the_lines_of_a_family_stand_together_under_one_header_in_order_of_names() -> None:
    assert page(TWO, Format.TEXT).decode().splitlines() == [
        *("# HELP a Help.", "# TYPE a gauge", 'a{t="1"} 2.0', 'a{t="2"} 3.0'),
        *("# HELP b Help.", "# TYPE b gauge", 'b{t="1"} 1.0'),
        *("# HELP c Help.", "# TYPE c gauge", 'c{t="2"} 1.0'),
    ]


@pytest.mark.parametrize(
    ("only", "found"),
    [({"a"}, ["a"]), ({"c", "b"}, ["b", "c"]), ({"nope"}, []), ({"a", "nope"}, ["a"]), (set(), [])],
)
def test_a_filter_keeps_whole_families(only: set[str], found: list[str]) -> None:
    text = page(TWO, Format.TEXT, frozenset(only)).decode()
    assert re.findall("# TYPE (.) gauge", text) == found


def test_two_help_texts_under_one_name_become_one_whatever_the_order_of_targets() -> None:
    targets = [Polled((("t", text),), [family("a", text=text)]) for text in ("two", "one")]
    for order in (targets, targets[::-1]):
        assert re.findall("# HELP a (.*)", page(order, Format.TEXT).decode()) == ["one"]


def test_a_sample_without_any_label_has_no_braces() -> None:
    assert page([Polled((), [family("a")])], Format.TEXT).endswith(b"\na 1.0\n")


def test_a_page_of_nothing_is_empty() -> None:
    assert page([], Format.TEXT) == b""


class WithoutCreated(Collector):
    """A registry as the client library collects it, without the samples that we leave out."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics:
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


@settings(deadline=None)
@given(workspace=st.text(min_size=1), seconds=st.floats(0, 1e9))
@example(workspace='50% "off"\n\\', seconds=0.1)
@pytest.mark.parametrize("page_format", Format)
def test_own_metrics_are_what_the_client_library_writes(
    page_format: Format, workspace: str, seconds: float
) -> None:
    telemetry = Telemetry()
    telemetry.watch([workspace])
    telemetry.polled(workspace, "model", seconds, "timeout")
    telemetry.requested(workspace, "model_metrics", "200", seconds)
    metrics = list(telemetry.registry.collect())
    expected = GENERATE[page_format](WithoutCreated(metrics)).removesuffix(EOF)
    assert accumulated(metrics, page_format) == expected
