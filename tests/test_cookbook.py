"""The pages with queries and rules to copy: what they show works on real servers."""

import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from exporter.baseten.catalogue import CATALOGUE, name
from exporter.config import load

if TYPE_CHECKING:
    from tests.conftest import Eventually, Prometheus

SERVER = pytest.mark.xdist_group("prometheus")

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MARK = re.compile(r"\s*# empty .*$")
CONDITION = re.compile(r'(\s== \d+|\s> \d+|\{status!~"[^"]*"\})$')
"""What a query that looks for trouble ends with; without it there are series at any time."""


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(
        rf"^( *)```{language}\n(.*?)^ *```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return [textwrap.dedent(block).strip() for _, block in found]


def split(block: str) -> Iterator[str]:
    """One query begins in each line that is neither indented, nor empty, nor a comment."""
    lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
    return iter(re.split(r"\n(?! )", "\n".join(lines)))


COOKBOOK = blocks(DOCS / "cookbook.md", "promql")
README = [query for block in blocks(ROOT / "README.md", "promql") for query in split(block)]


def series(prometheus: "Prometheus", eventually: "Eventually", query: str) -> None:
    """Some, in time: subqueries look only at every 30th second, and rates at two scrapes."""
    eventually(lambda: prometheus.query(query), 60)


@SERVER
@pytest.mark.parametrize("query", COOKBOOK)
def test_a_query_of_the_cookbook_has_series_or_says_that_it_may_not(
    query: str, prometheus: "Prometheus", eventually: "Eventually"
) -> None:
    prometheus.query(query)
    plain = MARK.sub("", query)
    if plain != query:
        plain, conditions = CONDITION.subn("", plain)
        assert conditions == 1, "a query is empty because of its last comparison only"
    series(prometheus, eventually, plain)


@SERVER
@pytest.mark.parametrize("query", README)
def test_a_query_of_the_readme_has_series_but_for_its_condition(
    query: str, prometheus: "Prometheus", eventually: "Eventually"
) -> None:
    prometheus.query(query)
    series(prometheus, eventually, CONDITION.sub("", query))


def test_each_query_has_a_sentence() -> None:
    text = (DOCS / "cookbook.md").read_text("utf-8")
    assert len(re.findall(r"[.:]\n\n```promql\n", text)) == len(COOKBOOK)


def test_there_are_queries() -> None:
    assert 15 <= len(COOKBOOK) <= 25
    assert len(README) == 6


# Beside the export endpoint

YAML = blocks(DOCS / "coexistence.md", "yaml")
RULES = [block for block in YAML if block.startswith("groups:")]


def check(promtool: str, *arguments: str | Path) -> None:
    done = subprocess.run([promtool, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_scrape_config_is_valid(promtool: str, tmp_path: Path) -> None:
    (config,) = (block for block in YAML if block.startswith("scrape_configs:"))
    path = tmp_path / "prometheus.yml"
    path.write_text(config)
    check(promtool, "check", "config", "--syntax-only", path)


UNIT_TEST = """
rule_files: [rules0.yaml, rules1.yaml]
tests:
  - interval: 1m
    input_series:
      - {series: 'baseten_model_replicas_active{model_name="chat"}', values: "3 3"}
      - {series: 'baseten_model_gpu_utilization_ratio{gpu="0"}', values: "0.5 0.5"}
      - {series: 'baseten_model_inference_requests_per_second{model_name="chat",status="200"}', values: "4 4"}
      - {series: 'baseten_model_inference_requests_per_second{model_name="chat",status="500"}', values: "1 1"}
      - series: 'baseten_model_end_to_end_response_time_seconds{model_name="chat",quantile="0.95"}'
        values: "2 2"
    promql_expr_test:
      - {expr: baseten_replicas_active, eval_time: 1m, exp_samples: [
          {labels: 'baseten_replicas_active{model_name="chat"}', value: 3}]}
      - {expr: baseten_gpu_utilization, eval_time: 1m, exp_samples: [
          {labels: 'baseten_gpu_utilization{gpu="0"}', value: 50}]}
      - {expr: "team:requests:rate5m", eval_time: 1m, exp_samples: [
          {labels: 'team:requests:rate5m{model_name="chat"}', value: 5}]}
      - {expr: "team:response_time:p95", eval_time: 1m, exp_samples: [
          {labels: 'team:response_time:p95{model_name="chat"}', value: 2}]}
"""


def test_the_rules_keep_old_names(promtool: str, tmp_path: Path) -> None:
    for number, rules in enumerate(RULES):
        (tmp_path / f"rules{number}.yaml").write_text(rules)
    (tmp_path / "test.yaml").write_text(UNIT_TEST)
    check(promtool, "test", "rules", tmp_path / "test.yaml")


def test_the_names_correspond_as_the_code_says() -> None:
    page = (DOCS / "coexistence.md").read_text("utf-8")
    rows = re.findall(r"^\| `(baseten_\w+)` \| `(baseten_\w+)` \|", page, re.MULTILINE)
    assert len(rows) == 6
    for source, family in rows:
        known = CATALOGUE[source]
        assert name(source, known.kind, known.unit_hint).family == family


def test_no_family_has_a_name_of_the_endpoint() -> None:
    families = {name(source, known.kind, known.unit_hint).family for source, known in CATALOGUE.items()}
    assert families.isdisjoint(CATALOGUE)


# Scaling


def test_the_configs_that_split_a_workspace_load_and_stay_below_the_limit(tmp_path: Path) -> None:
    parts = blocks(DOCS / "scaling.md", "yaml")
    path = tmp_path / "config.yaml"
    for part in parts:
        path.write_text(part)
        assert load(path, {"BASETEN_API_KEY": "key"}).workspaces
    rates = [yaml.safe_load(part)["workspaces"][0]["requests_per_second"] for part in parts]
    assert (len(rates), sum(rates) <= 100) == (2, True)
