"""Write docs/metrics.md from the tables the exporter itself uses: `make docs`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric

from exporter.baseten import catalogue, inventory
from exporter.baseten.drift import Unknown
from exporter.baseten.loops_metrics import METRICS
from exporter.store import HEALTH
from exporter.telemetry import Telemetry

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"

_INTRODUCTION = """\
# Metrics

Every family the exporter exposes. This page is generated (`make docs`) from the tables the code itself uses.

Every series of a deployment carries `workspace`, its ids (`model_id` and `deployment_id`; a Loops trainer
has no `model_id`), the `labels` of its entry in the config and, as far as they are known, `model_name`,
`environment`, `base_model` (of a trainer) and `loops_deployment_id` (of a trainer's sampler);
`metadata_labels` in the config is the choice of these. All are gauges that hold the latest polled value. A
value the API does not have is an absent series: never 0, never NaN. Units are base units: seconds, bytes,
ratios from 0 to 1, rates per second.
"""

_MODELS = """\
## Models

Names follow a rule, so that a metric Baseten adds tomorrow appears tomorrow: list it under `metrics:` in the
config.

1. `baseten_X` becomes `baseten_model_X`; any other name comes from the serving engine and becomes
   `baseten_model_engine_X`. Characters that Prometheus does not allow become `_`.
2. A counter becomes a rate: `_total` goes, `_per_second` comes last. Where the API does not say which span
   a total covers there is no rate, and the raw value appears under `_per_step` (then use `mode: summary`).
3. The unit becomes the suffix: `_seconds`, `_bytes` (also for mebibytes, converted), `_ratio`, `_per_second`.
4. Labels stay as they are. `stat="avg"` becomes part of the name, `_average` before the unit, since averages
   and quantiles must not add up. A label that clashes with one of the exporter's is renamed
   `exported_<label>`.
"""

_LOOPS = """\
## Loops trainers

Traffic and response times are those of the newest point that is at least `delay` old, everything else is the
newest point. The leader families are what the API reports for the leader node; a trainer on a single node may
have only those.
"""

_INVENTORY = """\
## What is listed

These say what there is, what state it is in and what it costs, as of the last listing. They exist for every
listed deployment, also one that is scaled to zero or has no metrics. While listing fails, what was last
listed stays, for however long: `baseten_exporter_discovery_last_success_timestamp_seconds` says since when.
"""

_EXPORTER = """\
## The exporter itself

`baseten_exporter_target_*` carry `workspace`, `kind` (`model` or `loops`) and the ids of the target. Besides
these there are the process and Python metrics of the Prometheus client library.
"""


class Row(NamedTuple):
    family: str
    labels: Iterable[str]
    text: str


def page() -> str:
    return "\n".join(
        [
            _INTRODUCTION,
            _MODELS,
            _table("labels", _model_rows()),
            _LOOPS,
            _table("labels", (Row(metric.family, metric.labels, metric.help) for metric in METRICS)),
            _INVENTORY,
            _table("labels", (Row(each.family, each.labels, each.help) for each in inventory.METRICS)),
            _EXPORTER,
            _table("type and labels", _exporter_rows()),
        ]
    )


def _model_rows() -> Iterator[Row]:
    for source, known in catalogue.CATALOGUE.items():
        histogram = known.kind == "HISTOGRAM"
        naming = catalogue.name(source, known.kind, known.unit_hint)
        yield Row(naming.family, (*known.labels, *["quantile"] * histogram), naming.help)
        if histogram:
            average = catalogue.name(source, known.kind, known.unit_hint, stat="avg")
            yield Row(average.family, known.labels, average.help)


def _exporter_rows() -> Iterator[Row]:
    yield from (Row(name, ["gauge"], text) for name, text in HEALTH.items())
    telemetry = Telemetry()
    telemetry.watch(["workspace"])
    telemetry.requested("workspace", "model_metrics", "200", 0)
    telemetry.shard(0, 1)
    telemetry.discovered("workspace", "model", 0)
    telemetry.discovery_succeeded("workspace", 0)
    telemetry.paused("workspace", "model_metrics", 0)
    telemetry.unknown("model_metrics", Unknown("field", "$"))
    telemetry.intervals(0, {("workspace", "model"): 0})
    telemetry.web_config(good=True)
    telemetry.certificate(0)
    for metric in telemetry.registry.collect():
        if metric.name.startswith("baseten_exporter_"):
            name = metric.name + ("_total" if metric.type == "counter" else "")
            yield Row(name, [metric.type, *_labels(metric)], metric.documentation)


def _labels(metric: Metric) -> list[str]:
    return sorted({name for sample in metric.samples for name in sample.labels} - {"le"})


def _table(second: str, rows: Iterable[Row]) -> str:
    lines = [f"| family | {second} | what it is |", "|---|---|---|"]
    lines += [f"| `{row.family}` | {', '.join(row.labels)} | {row.text} |" for row in sorted(rows)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
