"""The dashboards: in step with their code, sound by themselves, and every query answered by real data."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tools.dashboards import reading
from tools.dashboards.reading import Document, LabelValues, Query
from tools.dashboards.runbooks import ALERTS

if TYPE_CHECKING:
    from tests.conftest import Eventually, Prometheus

SERVER = pytest.mark.xdist_group("prometheus")

ROOT = Path(__file__).parent.parent
RULES = ROOT / "helm" / "baseten-exporter" / "files" / "rules"

DOCUMENTS = reading.documents()
EACH = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
PANELS = [
    pytest.param(document, panel, id=f"{uid}-{panel['id']}")
    for uid, document in DOCUMENTS.items()
    for panel in reading.panels(document)
]
QUERIES = [
    pytest.param(query, id=f"{uid}-{query.panel['id']}-{number}")
    for uid, document in DOCUMENTS.items()
    for number, query in enumerate(reading.queries(document))
]

UIDS = {"baseten-overview", "baseten-model", "baseten-loops", "baseten-exporter"}
UNITS = {
    "s",
    "bytes",
    "percentunit",
    "currencyUSD",
    "short",
    "reqps",
    "cps",
    "suffix: tok/s",
    "suffix: cores",
}
UNIT_OF_SUFFIX = {
    "_seconds": "s",
    "_bytes": "bytes",
    "_ratio": "percentunit",
    "_dollars_per_hour": "currencyUSD",
    "_cores": "suffix: cores",
    "_requests_per_second": "reqps",
    "_tokens_per_second": "suffix: tok/s",
    "_replicas": "short",
}
"""For queries that show a family as it is."""

CALCULATED = re.compile(r" / |count\(|count by|3600 \*|time\(\)|rate\(|predict_linear|scrape_| \* on")

FILTERED_BY = {
    "baseten-overview": {"workspace"},
    "baseten-exporter": {"workspace"},
    "baseten-model": {"workspace", "model_name", "environment", "deployment_id"},
    "baseten-loops": {"workspace", "base_model", "deployment_id"},
}
OF_THE_PROCESS = re.compile(
    r"config_last_reload|dropped_samples|scrape_|process_|poll_interval|shard_info|web_certificate"
)
"""Families without a workspace."""

NOT_OF_THE_DEMO = {
    "baseten_exporter_api_paused_until_timestamp_seconds",
    "baseten_exporter_web_certificate_expiry_timestamp_seconds",
}
"""Families that are there once the API has answered 429, and where TLS is served."""

FAMILY = re.compile(r"\b(?:baseten|scrape|process)_\w+")


@pytest.mark.skipif(
    find_spec("grafana_foundation_sdk") is None and os.environ.get("REQUIRE_SERVERS") != "1",
    reason="grafana-foundation-sdk is not installed",
)
def test_the_files_are_what_the_code_gives() -> None:
    from tools.dashboards import writing  # noqa: PLC0415 - only this test needs the library

    written = {path.name: path.read_text("utf-8") for path in reading.FOLDER.iterdir()}
    assert written == writing.documents(), "run `python -m tools.dashboards`"


# By the JSON alone


def test_uids_stay() -> None:
    assert {document["uid"] for document in DOCUMENTS.values()} == UIDS == set(DOCUMENTS)


@EACH
def test_numbers_of_panels_and_letters_of_queries_are_unique(document: Document) -> None:
    numbers = [panel["id"] for panel in document["panels"]]
    assert [number for number, times in Counter(numbers).items() if times > 1] == []
    for panel in reading.panels(document):
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == [*"ABCDEFGHIJ"[: len(letters)]]


@EACH
def test_panels_fill_the_grid_and_do_not_overlap(document: Document) -> None:
    cells = Counter(cell for panel in document["panels"] for cell in cells_of(panel["gridPos"]))
    assert [cell for cell, times in cells.items() if times > 1] == []
    assert max(x for x, _ in cells) < 24
    lines = sorted({y for _, y in cells})
    assert all(below - above == 1 for above, below in pairwise(lines))


def cells_of(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y


@pytest.mark.parametrize(("document", "panel"), PANELS)
def test_a_panel_says_what_it_shows_in_which_unit_and_from_where(document: Document, panel: Document) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert len(panel["description"]) >= 10
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


@pytest.mark.parametrize("query", QUERIES)
def test_a_family_is_shown_in_its_unit(query: Query) -> None:
    if query.panel["type"] in ("table", "state-timeline") or CALCULATED.search(query.expression):
        return
    suffixes = {suffix for name in FAMILY.findall(query.expression) for suffix in endings(name)}
    units = {UNIT_OF_SUFFIX[suffix] for suffix in suffixes}
    assert units <= {query.panel["fieldConfig"]["defaults"]["unit"]}


def endings(family: str) -> list[str]:
    return [suffix for suffix in UNIT_OF_SUFFIX if family.endswith(suffix)]


@pytest.mark.parametrize(("document", "panel"), PANELS)
def test_every_query_is_filtered_by_what_is_chosen(document: Document, panel: Document) -> None:
    for target in panel["targets"]:
        if not OF_THE_PROCESS.search(target["expr"]):
            used = set(re.findall(r'=~"\$(\w+)"', target["expr"]))
            assert used >= FILTERED_BY[document["uid"]], target["expr"]


@EACH
def test_a_variable_is_asked_within_those_before_it(document: Document) -> None:
    assert document["templating"]["list"][0]["type"] == "datasource"
    for number, variable in enumerate(document["templating"]["list"][1:]):
        assert (variable["multi"], variable["includeAll"], variable["allValue"]) == (True, True, ".*")
        before = {each["name"] for each in document["templating"]["list"][1 : number + 1]}
        assert set(re.findall(r'=~"\$(\w+)"', variable["query"])) == before


@EACH
def test_links_lead_to_a_dashboard_that_has_the_variables(document: Document) -> None:
    own = names_of_variables(document)
    found = re.findall(r'"/d/([^?"]+)\?([^"]*)"', str(document).replace("'", '"'))
    for uid, query in found:
        passed = re.findall(r"\$\{(\w+):queryparam\}", query)
        assert set(passed) <= own
        assert {*passed, *re.findall(r"var-(\w+)=", query)} <= names_of_variables(DOCUMENTS[uid])
    assert {uid for uid, _ in found} >= UIDS - {document["uid"]}


def names_of_variables(document: Document) -> set[str]:
    return {variable["name"] for variable in document["templating"]["list"]}


RED_FROM = [
    ("baseten-overview", 15, "error_ratio"),
    ("baseten-model", 22, "error_ratio"),
    ("baseten-model", 13, "latency_p99_seconds"),
    ("baseten-loops", 16, "storage_ratio"),
    ("baseten-exporter", 13, "data_age_seconds"),
    ("baseten-exporter", 14, "discovery_age_seconds"),
]


@pytest.mark.parametrize(("uid", "number", "name"), RED_FROM)
def test_a_panel_is_red_where_its_alert_begins(uid: str, number: int, name: str) -> None:
    assert steps_of(uid, number)["red"] == threshold(name)


def test_a_rank_is_red_below_where_its_alert_begins() -> None:
    steps = steps_of("baseten-loops", 14)
    assert (steps["red"], steps["orange"]) == (None, threshold("straggler_ratio"))


def test_a_certificate_is_red_until_its_alert_ends() -> None:
    assert steps_of("baseten-exporter", 73) == {
        "red": None,
        "green": threshold("certificate_remaining_seconds"),
    }


def steps_of(uid: str, number: int) -> dict[str, float | None]:
    """The value from which each colour begins."""
    (panel,) = (panel for panel in reading.panels(DOCUMENTS[uid]) if panel["id"] == number)
    return {step["color"]: step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]}


def threshold(name: str) -> float:
    """The default of the alerts."""
    text = (RULES / "thresholds.yaml").read_text("utf-8")
    found = re.search(rf'"baseten:threshold:{name}", expr: vector\(([^)]+)\)', text)
    assert found, name
    return float(found[1])


@EACH
def test_runbooks_that_panels_link_to_exist(document: Document) -> None:
    urls = [link["url"] for panel in reading.panels(document) for link in panel.get("links", [])]
    assert urls
    runbooks = {path.name for path in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert {url.rpartition("/")[2] for url in urls} <= runbooks
    numbers = [panel["id"] for panel in reading.panels(document) if "links" in panel]
    assert sorted(numbers) == sorted(ALERTS[document["uid"]])


def test_what_the_demo_lacks_is_what_alerts_are_about() -> None:
    """So that no mistyped name hides there: those of the alerts are compared with the exporter's."""
    assert set(FAMILY.findall((RULES / "alerts.yaml").read_text("utf-8"))) >= NOT_OF_THE_DEMO


# On a real Prometheus that scraped the demo


def ask(prometheus: "Prometheus", query: LabelValues, values: dict[str, str]) -> list[str]:
    """What Grafana asks for the values of a variable."""
    selector = {"match[]": reading.substituted(query.selector, values)}
    answer = httpx.get(f"{prometheus.url}/api/v1/label/{query.label}/values", params=selector)
    found: list[str] = answer.raise_for_status().json()["data"]
    return found


def most(prometheus: "Prometheus", expression: str) -> float:
    """As many series as the families of an expression have; a join that multiplies gives more."""
    counts = [
        value
        for family in set(FAMILY.findall(expression))
        for _, value in prometheus.query(f'count({{__name__="{family}"}})')
    ]
    return (sum if " or " in expression else max)([*counts, 1])


@SERVER
@pytest.mark.parametrize("query", QUERIES)
def test_every_query_has_series_each_with_a_name_and_no_more_than_there_are(
    query: Query, prometheus: "Prometheus", eventually: "Eventually"
) -> None:
    expression = reading.substituted(query.expression, {})
    if NOT_OF_THE_DEMO.intersection(FAMILY.findall(expression)):
        assert prometheus.query(expression) == []
        return

    def sound() -> bool:
        series = prometheus.query(expression)
        names = {query.name(labels) for labels, _ in series}
        return 0 < len(series) == len(names) <= most(prometheus, expression)

    eventually(sound)


@SERVER
@EACH
def test_every_variable_has_values(
    document: Document, prometheus: "Prometheus", eventually: "Eventually"
) -> None:
    for variable in reading.variables(document).values():
        eventually(lambda asked=variable: ask(prometheus, asked, {}))  # type: ignore[misc]


CHOICES = [
    pytest.param(
        *("baseten-model", {"model_name": "code-assistant"}),
        {"environment": {"production"}, "deployment_id": {"w6prod02"}},
        id="a model",
    ),
    pytest.param(
        *("baseten-model", {"model_name": "live-transcription|document-embeddings"}),
        {"deployment_id": {"w7prod03", "w8prod04"}},
        id="two models",
    ),
    pytest.param(
        *("baseten-loops", {"base_model": "Qwen/Qwen3-8B"}),
        {"deployment_id": {"tr2x4sft"}, "node_id": {"tr2x4sft-node-0", "tr2x4sft-node-1"}},
        id="a base model",
    ),
    pytest.param(
        *("baseten-loops", {"deployment_id": "tr2x4sft", "node_id": "tr2x4sft-node-1"}),
        {"node_id": {"tr2x4sft-node-0", "tr2x4sft-node-1"}},
        id="a node",
    ),
]
SAMPLER = "x3samp08"


@SERVER
@pytest.mark.parametrize(("uid", "chosen", "offered"), CHOICES)
def test_a_choice_narrows_the_variables_after_it(
    uid: str, chosen: dict[str, str], offered: dict[str, set[str]], prometheus: "Prometheus"
) -> None:
    variables = reading.variables(DOCUMENTS[uid])
    assert {name: set(ask(prometheus, variables[name], chosen)) for name in offered} == offered


@SERVER
@pytest.mark.parametrize(("uid", "chosen", "offered"), CHOICES)
def test_a_choice_narrows_every_panel(
    uid: str, chosen: dict[str, str], offered: dict[str, set[str]], prometheus: "Prometheus"
) -> None:
    """Also what a label is not chosen by, but by one before it, is narrowed."""
    allowed = offered | {name: set(value.split("|")) for name, value in chosen.items()}
    for query in reading.queries(DOCUMENTS[uid]):
        for labels, _ in prometheus.query(reading.substituted(query.expression, chosen)):
            beyond = {
                name: labels[name] for name in allowed if labels.get(name, "") not in {"", *allowed[name]}
            }
            assert beyond in ({}, {"deployment_id": SAMPLER}), query.expression


@SERVER
def test_promotions_are_marked_while_they_last(prometheus: "Prometheus", eventually: "Eventually") -> None:
    """Whether one is in progress depends on the hour; without the comparison there are all environments."""
    (mark,) = DOCUMENTS["baseten-model"]["annotations"]["list"]
    expression = reading.substituted(mark["expr"], {})
    assert expression.endswith(" == 1")
    series = eventually(lambda: prometheus.query(expression.replace(" == 1", " >= 0")))
    assert len(series) == len(prometheus.query("baseten_model_environment_promotion_in_progress"))
    assert set(re.findall(r"\{\{(\w+)\}\}", mark["titleFormat"])) <= {*series[0][0]}
    assert len(prometheus.query(expression)) <= 2


def test_every_query_is_counted() -> None:
    """So that a reader that finds nothing does not pass."""
    counted: list[Any] = [len(DOCUMENTS), len(PANELS) > 80, len(QUERIES) > 120]
    assert counted == [4, True, True]
