"""Answers of the two metrics endpoints, as pure functions of a deployment, a window and the time."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from zlib import crc32

from exporter.simulator.catalogue import Metric, Series
from exporter.simulator.organization import Deployment, Trainer
from exporter.simulator.signals import STATUSES, Span, answered

Mode = Literal["CURRENT", "SUMMARY", "SERIES"]
MODES: tuple[Mode, ...] = ("CURRENT", "SUMMARY", "SERIES")
Json = dict[str, object]
Values = list[float | None]

CURRENT_MILLIS = 60_000  # what counters and histograms of a CURRENT answer cover
GOLDEN_ANGLE = 2.399963  # keeps the phases of numbered series apart


@dataclass(frozen=True, slots=True)
class Window:
    """Milliseconds since the epoch; `now` bounds what can be known."""

    start: int
    end: int
    now: int

    def step_seconds(self) -> int:
        """30 s for up to an hour, then in proportion: at most 120 steps."""
        return 30 * max(1, math.ceil((self.end - self.start) / 3_600_000))


def model_answer(deployment: Deployment, metrics: Sequence[Metric], mode: Mode, window: Window) -> Json:
    """What `GET .../metrics` says about the given metrics, in the order they are given."""
    step = window.step_seconds() if mode == "SERIES" else None
    start = window.start - window.start % 1000 if step else window.start
    starts = range(start, window.end, 1000 * step) if step else (start,)
    steps = zip(starts, (*starts[1:], window.end), strict=True)
    return {
        "start_epoch_millis": start,
        "end_epoch_millis": window.end,
        "mode": mode,
        "step_seconds": step,
        "metric_descriptors": [_descriptor(deployment, metric) for metric in metrics],
        "metric_values": [
            {"start_epoch_millis": a, "values": _values(deployment, metrics, mode, Window(a, b, window.now))}
            for a, b in steps
        ],
    }


def _series(deployment: Deployment, metric: Metric) -> Iterator[Series]:
    return metric.series(deployment.replica_names, deployment.instance.gpus)


def _descriptor(deployment: Deployment, metric: Metric) -> Json:
    label_sets = [labels for labels, _ in _series(deployment, metric)]
    return {"name": metric.name, "unit_hint": metric.unit, "kind": metric.kind, "label_sets": label_sets}


def _values(deployment: Deployment, metrics: Sequence[Metric], mode: Mode, step: Window) -> list[Values]:
    replicas = deployment.active_replicas
    start, end, now = step.start / 1000, step.end / 1000, step.now / 1000
    span = deployment.traffic.span(start, end, now)
    instant = deployment.traffic.span(end, end, now) if mode == "CURRENT" else span
    values = []
    for metric in metrics:
        phase = sum(deployment.traffic.phases) + crc32(metric.name.encode())
        seen = instant if metric.kind == "GAUGE" else span
        numbered = enumerate(_series(deployment, metric))
        values.append([metric.value(each, phase + GOLDEN_ANGLE * n, seen, replicas) for n, each in numbered])
    return values


def loops_answer(trainer: Trainer, window: Window, step: int | None, divisor: int) -> Json:
    """What `POST .../metrics` says about a trainer: one point per step, volumes per `divisor` seconds."""
    step = step or window.step_seconds()
    last = min(window.end, window.now) // 1000
    times = range(window.start // 1000, last + 1, step) if trainer.running else range(0)
    grid = _Grid(trainer, times[::-1] if trainer.newest_first else times, step, window.now / 1000)
    nodes = range(trainer.nodes if trainer.running and trainer.nodes > 1 else 0)
    per_node = [{"node_id": f"{trainer.id}-node-{node}", **grid.node(node)} for node in nodes]
    metrics = {**grid.service(divisor), **grid.node(0), "per_node_metrics": per_node}
    return {"deployment_id": trainer.id, "metrics": metrics}


class _Grid:
    """A trainer's traffic at the times of the points, computed once for all its series."""

    def __init__(self, trainer: Trainer, times: range, step: int, now: float) -> None:
        self.trainer = trainer
        self.step = step
        self.stamps = [datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for time in times]
        self.instants = [trainer.traffic.span(time, time, now) for time in times]
        self.steps = [trainer.traffic.span(time - step, time, now) for time in times]

    def points(self, values: Iterable[float]) -> list[Json]:
        return [{"value": value, "timestamp": at} for value, at in zip(values, self.stamps, strict=True)]

    def moving(self, low: float, high: float, number: int) -> list[Json]:
        """A gauge between `low` without traffic and `high` at the peak; `number` keeps gauges apart."""
        phase = sum(self.trainer.traffic.phases) + GOLDEN_ANGLE * number
        return self.points(round(low + (high - low) * span.shaken(phase), 4) for span in self.instants)

    def service(self, divisor: int) -> Json:
        unit = divisor / self.step
        steps = list(zip(self.stamps, self.steps, strict=True))
        return {
            "inference_volume": self.points(span.requests * unit for span in self.steps),
            "concurrent_requests": self.points(float(round(16 * span.load)) for span in self.instants),
            "response_time_stats": [{"timestamp": at, **_percentiles(span)} for at, span in steps],
            "inference_volume_by_status": [{"timestamp": at, **_by_class(span, unit)} for at, span in steps],
        }

    def node(self, node: int) -> Json:
        ranks = range(self.trainer.gpus if self.trainer.running else 0)
        tops = [0.4 if self.trainer.straggler == (node, rank) else 0.95 for rank in ranks]
        first = 100 * node
        return {
            "gpu_memory_usage_bytes": {str(rank): self.moving(62e9, 74e9, first + rank) for rank in ranks},
            "gpu_utilization": {str(rank): self.moving(0.05, tops[rank], first + rank) for rank in ranks},
            "cpu_usage": self.moving(1.5, 22, first + 90),
            "cpu_memory_usage_bytes": self.moving(80e9, 96e9, first + 91),
            "ephemeral_storage": {
                "usage_bytes": self.moving(120e9, 150e9, first + 92),
                "utilization": self.moving(0.24, 0.3, first + 92),
            },
        }


def _percentiles(span: Span) -> Json:
    """In milliseconds; null without requests."""
    median = 240 + 900 * span.load
    factors = {"p50": 1, "p95": 2.4, "p99": 4.2}
    return {name: round(median * factor, 3) if span.requests else None for name, factor in factors.items()}


def _by_class(span: Span, unit: float) -> Json:
    counts = dict.fromkeys(("status_2xx", "status_4xx", "status_5xx"), 0)
    for status in STATUSES:
        counts[f"status_{status[0]}xx"] += answered(status, span.last) - answered(status, span.first)
    return {name: count * unit for name, count in counts.items()}
