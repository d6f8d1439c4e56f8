"""The page of all keys says what the schema and the rules between keys do."""

import copy
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from exporter import diagnosis
from exporter.config import ConfigError, load, rules, schema
from tools import config_page

Raw = dict[str, Any]

GOOD: Raw = {
    "poll": {},
    "workspaces": [
        {
            "name": "team",
            "api_key_env": "KEY",
            "models": [{"model_id": "m1", "deployment_id": "d1"}],
            "loops": [{"deployment_id": "t1"}],
            "discovery": {"models": {}},
        }
    ],
}


def _poll(**keys: object) -> Callable[[Raw], object]:
    return lambda raw: raw["poll"].update(keys)


def _workspace(**keys: object) -> Callable[[Raw], object]:
    return lambda raw: raw["workspaces"][0].update(keys)


def _model(**keys: object) -> Callable[[Raw], object]:
    return lambda raw: raw["workspaces"][0]["models"][0].update(keys)


def _loops(**keys: object) -> Callable[[Raw], object]:
    return lambda raw: raw["workspaces"][0]["loops"][0].update(keys)


def _again(name: str) -> Callable[[Raw], object]:
    return lambda raw: raw["workspaces"][0][name].append(raw["workspaces"][0][name][0])


# For every rule of the page, in its order, files that break it and the place that is named.
BROKEN: list[list[tuple[Callable[[Raw], object], str]]] = [
    [
        (lambda raw: raw.update(workspaces=[]), "workspaces"),
        (
            lambda raw: raw.update(workspaces=[{"name": "team", "api_key_env": "KEY"}]),
            "workspaces",
        ),
    ],
    [(lambda raw: raw["workspaces"].append(raw["workspaces"][0]), "workspaces[1].name")],
    [
        (_workspace(api_key_file="key"), "workspaces[0].api_key_file"),
        (_workspace(api_key_env="UNSET"), "workspaces[0].api_key_env"),
        (_workspace(api_key="secret"), "workspaces[0].api_key"),
    ],
    [(_poll(timeout="2m"), "poll.timeout")],
    [(_poll(stale_after="30s"), "poll.stale_after")],
    [
        (_model(window="8d"), "workspaces[0].models[0].window"),
        (_poll(interval="0s", timeout="0s"), "poll.interval"),
        (_poll(stale_after="2y"), "poll.stale_after"),
        (_workspace(discovery={"models": {}, "interval": "0s"}), "workspaces[0].discovery.interval"),
    ],
    [
        (_model(environment="production"), "workspaces[0].models[0].environment"),
        (_workspace(models=[{"model_id": "m1"}]), "workspaces[0].models[0].deployment_id"),
    ],
    [
        (_again("models"), "workspaces[0].models[1]"),
        (_workspace(models=[{"model_id": "m1", "environment": "e"}] * 2), "workspaces[0].models[1]"),
        (_model(metrics=["a", "a"]), "workspaces[0].models[0].metrics[1]"),
        (_workspace(metadata_labels=["model_name"] * 2), "workspaces[0].metadata_labels[1]"),
    ],
    [
        (_model(mode="current", window="1m"), "workspaces[0].models[0].window"),
        (_model(mode="current", delay="1m"), "workspaces[0].models[0].delay"),
    ],
    [(_model(delay="10m"), "workspaces[0].models[0].delay")],
    [
        (_model(mode="series", window="7d"), "workspaces[0].models[0].window"),
        (_loops(window="7d"), "workspaces[0].loops[0].window"),
    ],
    [
        (_loops(step="500ms"), "workspaces[0].loops[0].step"),
        (_loops(step="6m"), "workspaces[0].loops[0].step"),
    ],
    [(_workspace(discovery={}), "workspaces[0].discovery")],
    [
        (_model(metrics=[]), "workspaces[0].models[0].metrics"),
        (_workspace(discovery={"models": {"statuses": []}}), "workspaces[0].discovery.models.statuses"),
    ],
    [
        (_model(labels={"__a": "b"}), "workspaces[0].models[0].labels.__a"),
        (_model(labels={"quantile": "b"}), "workspaces[0].models[0].labels.quantile"),
    ],
    [
        (
            _workspace(discovery={"models": {"include": ["["]}}),
            "workspaces[0].discovery.models.include[0]",
        ),
        (
            _workspace(discovery={"models": {"include": ["[[:alpha:]]"]}}),
            "workspaces[0].discovery.models.include[0]",
        ),
    ],
    [
        (_workspace(ca_file="missing.pem"), "workspaces[0].ca_file"),
        (_workspace(api_url="https://api.example:99999"), "workspaces[0].api_url"),
    ],
]
CASES = [
    (rule, change, place)
    for rule, cases in zip(config_page.RULES, BROKEN, strict=True)
    for change, place in cases
]


def _load(raw: Raw, folder: Path) -> rules.Config:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return load(path, {"KEY": "key"})


def test_configuration_page_is_the_one_the_schema_gives() -> None:
    assert config_page.PAGE.read_text(encoding="utf-8") == config_page.page(), (
        "run `python -m tools.config_page`"
    )


def test_every_mapping_of_the_schema_has_a_section() -> None:
    structs = {
        each
        for _, each in inspect.getmembers(schema, inspect.isclass)
        if issubclass(each, msgspec.Struct) and each.__module__ == schema.__name__
    }
    assert {shape for _, shape in config_page.sections()} == structs - {schema.Entry}


def test_every_link_within_the_page_leads_to_a_heading() -> None:
    page = config_page.page()
    headings = {config_page._anchor(each) for each in re.findall(r"^## (.*)$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= headings


def test_the_labels_that_are_taken_are_named() -> None:
    (rule,) = (each for each in config_page.RULES if each.startswith("`labels`"))
    assert set(re.findall(r"`([a-z_]+)`", rule)) - {"labels", "__"} == rules._TAKEN_LABELS


@pytest.mark.parametrize(("rule", "change", "place"), CASES)
def test_a_file_that_breaks_a_rule_is_refused(
    rule: str, change: Callable[[Raw], object], place: str, tmp_path: Path
) -> None:
    raw = copy.deepcopy(GOOD)
    (tmp_path / "key").write_text("key")
    change(raw)
    with pytest.raises(ConfigError) as caught:
        _load(raw, tmp_path)
    assert place in [problem.path for problem in caught.value.problems], rule


def test_a_file_that_keeps_them_is_taken(tmp_path: Path) -> None:
    raw = copy.deepcopy(GOOD)
    _model(delay="0s")(raw)
    assert len(_load(raw, tmp_path).targets) == 2


def test_troubleshooting_has_a_section_with_the_advice_for_every_failure() -> None:
    page = (config_page.PAGE.parent / "troubleshooting.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### `(\w+)`\n\n> (.*)\n", page, re.MULTILINE)
    assert dict(sections) == diagnosis.ADVICE


@pytest.mark.parametrize("name", ["troubleshooting", "security"])
def test_every_link_within_a_page_leads_to_a_heading(name: str) -> None:
    page = (config_page.PAGE.parent / f"{name}.md").read_text(encoding="utf-8")
    headings = {config_page._anchor(each) for each in re.findall(r"^##+ (.*)$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= headings
