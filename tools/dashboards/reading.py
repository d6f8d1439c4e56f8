"""What stands in the JSON of a dashboard: panels, queries and variables. Needs nothing but the JSON."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "helm" / "baseten-exporter" / "files" / "dashboards"

Document = dict[str, Any]

_VARIABLE = re.compile(r"\$(?:\{(\w+)[^}]*\}|([a-zA-Z_]\w*))")
_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.*), (?P<label>\w+)\)")
_LEGEND = re.compile(r"\{\{(\w+)\}\}")

_BUILT_IN = MappingProxyType({"__rate_interval": "4m", "__interval": "1m", "__range": "1h"})


class Query(NamedTuple):
    """One expression of a panel, and what names its series."""

    panel: Document
    expression: str
    legend: str

    def name(self, labels: Mapping[str, str]) -> str:
        """The name Grafana gives a series; rows of a table have none, their labels are columns."""
        if not self.legend:
            return str(sorted((key, value) for key, value in labels.items() if key != "__name__"))
        return _LEGEND.sub(lambda found: labels.get(found[1], ""), self.legend)


class LabelValues(NamedTuple):
    """What the query of a variable asks for."""

    selector: str
    label: str


def documents() -> dict[str, Document]:
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def panels(document: Document) -> list[Document]:
    """The panels that show something; rows do not."""
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def queries(document: Document) -> Iterator[Query]:
    for panel in panels(document):
        for target in panel["targets"]:
            yield Query(panel, target["expr"], target.get("legendFormat", ""))


def variables(document: Document) -> dict[str, LabelValues]:
    """The variables that are asked from Prometheus, in the order of their chain."""
    return {
        variable["name"]: LabelValues(**_matched(variable["query"]).groupdict())
        for variable in document["templating"]["list"]
        if variable["type"] == "query"
    }


def substituted(text: str, values: Mapping[str, str]) -> str:
    """The text with its variables replaced; one without a value is All."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return values.get(name) or _BUILT_IN.get(name) or ".*"

    return _VARIABLE.sub(value, text)


def _matched(query: str) -> re.Match[str]:
    found = _LABEL_VALUES.fullmatch(query)
    assert found, query
    return found
