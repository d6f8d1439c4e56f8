"""Draw the main panels of each dashboard from the answers of a Prometheus, for the documentation.

    python -m tools.dashboards.render http://localhost:9090 docs/images

There is no Grafana in this: the pictures show what the queries return, and say so. Needs matplotlib.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tools.dashboards import reading
from tools.dashboards.reading import Document, Query

SHOWN = MappingProxyType(
    {
        "baseten-overview": (31, 33, 42, 51),
        "baseten-model": (21, 24, 31, 53),
        "baseten-loops": (21, 23, 31, 41),
        "baseten-exporter": (31, 33, 43, 54),
    }
)
"""Panels of each dashboard, by number."""

CHOSEN = MappingProxyType(
    {"baseten-model": {"model_name": "qwen3-32b-chat"}, "baseten-loops": {"deployment_id": "tr4x8rl0"}}
)
"""Values of variables; the others are All."""

LABEL = "Rendered from query results on the demo, not a Grafana screenshot"

_STEP, _POINTS = 5, 60
_LEGENDS = 6
_WIDTH, _HEIGHT, _DPI = 12, 7, 75

_UNITS: MappingProxyType[str, tuple[float, str]] = MappingProxyType(
    {
        "s": (1, "s"),
        "bytes": (2**30, "GiB"),
        "percentunit": (0.01, "%"),
        "currencyUSD": (1, "$"),
        "reqps": (1, "req/s"),
        "suffix: cores": (1, "cores"),
        "suffix: tok/s": (1, "tok/s"),
    }
)


class Series(NamedTuple):
    name: str
    labels: dict[str, str]
    times: list[float]
    values: list[float]


def render(url: str, folder: Path) -> None:
    """Write a picture for each dashboard."""
    documents = reading.documents()
    for uid, numbers in SHOWN.items():
        panels = {panel["id"]: panel for panel in reading.panels(documents[uid])}
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        figure.suptitle(f"{documents[uid]['title']}\n{LABEL}", fontsize=11)
        for axes, number in zip(figure.subplots(2, 2).flat, numbers, strict=True):
            _draw(axes, panels[number], _series(url, documents[uid], panels[number]))
        figure.savefig(folder / f"{uid}.png", dpi=_DPI)


def _series(url: str, document: Document, panel: Document) -> list[Series]:
    queries = [query for query in reading.queries(document) if query.panel is panel]
    chosen = CHOSEN.get(document["uid"], {})
    return [series for query in queries for series in _answer(url, query, chosen)]


def _answer(url: str, query: Query, chosen: dict[str, str]) -> list[Series]:
    now = time.time()
    window = {"start": now - _POINTS * _STEP, "end": now, "step": _STEP}
    expression = reading.substituted(query.expression, chosen)
    answer = httpx.get(f"{url}/api/v1/query_range", params={"query": expression, **window})
    results: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
    return [_one(query, result) for result in results]


def _one(query: Query, result: dict[str, Any]) -> Series:
    times, values = zip(*result["values"], strict=True)
    labels = result["metric"]
    return Series(
        query.name(labels), labels, [float(each) for each in times], [float(each) for each in values]
    )


def _draw(axes: Axes, panel: Document, series: Sequence[Series]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    scale, unit = _UNITS.get(defaults["unit"], (1, ""))
    axes.set_title(f"{panel['title']}  [{unit}]" if unit else panel["title"], fontsize=9, loc="left")
    axes.tick_params(labelsize=7)
    scaled = [each._replace(values=[value / scale for value in each.values]) for each in series]
    _drawing(panel)(axes, scaled)
    for cells in axes.images:
        cells.set_clim(0, defaults.get("max", max(cells.get_clim()) * scale) / scale)


def _drawing(panel: Document) -> Callable[[Axes, Sequence[Series]], None]:
    if panel["type"] == "table":
        return _grid
    return _history if panel["type"] == "status-history" else _lines


def _lines(axes: Axes, series: Sequence[Series]) -> None:
    largest = sorted(series, key=lambda each: -each.values[-1])
    for place, each in enumerate(largest):
        minutes = [(moment - time.time()) / 60 for moment in each.times]
        axes.plot(minutes, each.values, linewidth=1, label=each.name if place < _LEGENDS else None)
    axes.set_ylim(0, 1.4 * max([max(each.values) for each in series], default=1) or 1)
    axes.set_xlabel("minutes", fontsize=7)
    axes.grid(alpha=0.2)
    axes.legend(fontsize=6, loc="upper left", ncols=2)


def _history(axes: Axes, series: Sequence[Series]) -> None:
    rows = sorted(series)
    length = min(len(each.values) for each in rows)
    axes.imshow([each.values[-length:] for each in rows], aspect="auto", cmap="RdYlBu_r")
    axes.set_yticks(range(len(rows)), [each.name for each in rows], fontsize=4)
    axes.set_xticks([])


def _grid(axes: Axes, series: Sequence[Series]) -> None:
    cells = {(each.labels["node_id"], each.labels["gpu_rank"]): each.values[-1] for each in series}
    down, across = (sorted({cell[place] for cell in cells}) for place in (0, 1))
    table = [[cells.get((node, rank), float("nan")) for rank in across] for node in down]
    axes.imshow(table, aspect="auto", cmap="RdYlBu_r")
    axes.set_yticks(range(len(down)), down, fontsize=6)
    axes.set_xticks(range(len(across)), [f"rank {rank}" for rank in across], fontsize=6)
    for y, row in enumerate(table):
        for x, value in enumerate(row):
            axes.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=7)


if __name__ == "__main__":
    render(sys.argv[1], Path(sys.argv[2]))
