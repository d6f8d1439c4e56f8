"""The shipped rules: valid, tested, documented, and about metrics that exist."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from exporter.baseten import catalogue, inventory, loops_metrics
from exporter.store import HEALTH
from exporter.telemetry import Telemetry

if TYPE_CHECKING:
    from tests.conftest import Prometheus

ROOT = Path(__file__).parent.parent
RULES = ROOT / "helm" / "baseten-exporter" / "files" / "rules"
DOCS = ROOT / "docs"
RUNBOOKS = DOCS / "runbooks"
UNIT_TESTS = sorted((ROOT / "tests" / "rules").glob("*.yaml"))
BASE_URL = "https://github.com/baseten-exporter/baseten-exporter/blob/main/docs/runbooks"
NAME = re.compile(r"\bbaseten[_:][a-zA-Z0-9_:]+")
QUERY = re.compile(r"```promql\n(.*?)```", re.DOTALL)
FOREIGN = {"up", "process_start_time_seconds"}
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
OWN_BY_USER = {"baseten:threshold_by_deployment:latency_p99_seconds"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in read(RULES / name)["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules("alerts.yaml")}
THRESHOLDS = {rule["record"]: rule["expr"] for rule in rules("thresholds.yaml")}
RECORDED = {rule["record"] for rule in rules("recording.yaml")}
each_alert = pytest.mark.parametrize("alert", ALERTS)
each_runbook = pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)


def run(*command: str | Path) -> str:
    """The output, if the command succeeds."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def exposed() -> Iterator[str]:
    """Every name on the exporter's page, as far as it is known in advance."""
    for source, known in catalogue.CATALOGUE.items():
        for stat in ("", "avg") if known.kind == "HISTOGRAM" else ("",):
            yield catalogue.name(source, known.kind, known.unit_hint, stat=stat).family
    yield from (metric.family for metric in inventory.METRICS)
    yield from (metric.family for metric in loops_metrics.METRICS)
    yield from HEALTH
    telemetry = Telemetry()
    telemetry.web_config(good=True)
    telemetry.certificate(0)
    for family in telemetry.registry.collect():
        yield from (family.name + suffix for suffix in SUFFIXES.get(family.type, ("",)))


EXPOSED = set(exposed())


def unknown(text: str) -> set[str]:
    """Names in a text that nothing provides; one that ends in `_` is the start of a pattern."""
    names = set(NAME.findall(text)) - EXPOSED - RECORDED - THRESHOLDS.keys() - OWN_BY_USER
    return {name for name in names if not (name.endswith("_") and any(n.startswith(name) for n in EXPOSED))}


# Valid, and tested


def test_promtool_finds_nothing_wrong(promtool: str) -> None:
    run(promtool, "check", "rules", *RULES.glob("*.yaml"))


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_they_fire_when_they_should_and_only_then(promtool: str, path: Path) -> None:
    run(promtool, "test", "rules", path)


def cases(alert: str) -> Iterator[bool]:
    """Of each unit test of an alert, whether it is expected to fire."""
    for path in UNIT_TESTS:
        for test in read(path)["tests"]:
            for case in test["alert_rule_test"]:
                if case["alertname"] == alert:
                    yield bool(case.get("exp_alerts"))


@each_alert
def test_each_has_a_unit_test_in_which_it_fires_and_one_in_which_it_does_not(alert: str) -> None:
    assert set(cases(alert)) == {True, False}


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_unit_tests_use_series_that_exist(path: Path) -> None:
    series = {each["series"] for test in read(path)["tests"] for each in test["input_series"]}
    names = {each.partition("{")[0] for each in series}
    assert names - EXPOSED - THRESHOLDS.keys() - OWN_BY_USER - FOREIGN == set()


# Complete


@each_alert
def test_each_says_what_it_is_about_and_where_to_read_on(alert: str) -> None:
    rule = ALERTS[alert]
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"{BASE_URL}/{alert}.md"
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["for"]


@pytest.mark.parametrize(
    "rule",
    [*rules("alerts.yaml"), *rules("recording.yaml")],
    ids=lambda rule: rule.get("alert", rule["expr"]),
)
def test_every_name_they_use_exists(rule: dict[str, Any]) -> None:
    assert unknown(rule["expr"] + " ".join(rule.get("annotations", {}).values())) == set()


def test_every_threshold_is_used() -> None:
    used = "".join(rule["expr"] for rule in ALERTS.values())
    assert [name for name in THRESHOLDS if name not in used] == []
    assert [name for name in THRESHOLDS if not name.startswith("baseten:threshold:")] == []


# Documented


def test_there_is_a_runbook_for_each_alert_and_no_other() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(ALERTS)


@each_runbook
def test_a_runbook_has_what_one_looks_for_at_night(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {path.stem}\n")
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Confirm", "Do", "Ignore it when"]
    assert unknown(" ".join(QUERY.findall(text))) == set()


def test_the_index_has_every_alert_in_order_as_it_is() -> None:
    rows = [
        f"| [{name}](runbooks/{name}.md) | {rule['labels']['severity']} | {rule['for']} |"
        for name, rule in ALERTS.items()
    ]
    text = (DOCS / "alerts.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[\w+\]\(runbooks/\w+\.md\) \| \w+ \| \w+ \|", text, re.MULTILINE) == rows


def test_the_index_has_every_threshold_as_it_is() -> None:
    values = {name.split(":")[-1]: expr for name, expr in THRESHOLDS.items()}
    rows = [
        f"| `{name}` | {expr.removeprefix('vector(').removesuffix(')')} |" for name, expr in values.items()
    ]
    text = (DOCS / "alerts.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `\w+` \| [\d.e]+ \|", text, re.MULTILINE) == rows


def test_freshness_explains_every_duration() -> None:
    text = (DOCS / "freshness.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\w+) \| ([^|]*) \|", text, re.MULTILINE))
    for alert, rule in ALERTS.items():
        assert alert in rows.get(rule["for"], ""), f"{rule['for']}: {alert}"


@pytest.mark.xdist_group("prometheus")
@each_runbook
def test_the_queries_of_a_runbook_are_answered(prometheus: "Prometheus", path: Path) -> None:
    queries = QUERY.findall(path.read_text(encoding="utf-8"))
    assert queries
    for query in queries:
        prometheus.query(query)
