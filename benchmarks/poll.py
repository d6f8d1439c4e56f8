"""What an answer costs until it stands in the store: ours, and what one writes with json and gauges."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Gauge

from benchmarks import wire
from benchmarks.deployments import NOW, Answers, Deployments
from benchmarks.report import Goal, Report, milliseconds, table, times
from benchmarks.timing import Turns, cpu_of_calls
from exporter.model import LoopsOptions, ModelOptions, Target
from exporter.store import Store

_GOAL = 2.5
_NODES = 8
_POINTS = 60
_DELAY, _STEP = 120, 30
_SIXTY = LoopsOptions(window=(_POINTS - 1) * _STEP - _DELAY, step=_STEP, delay=_DELAY)
_SETTLED = datetime.fromtimestamp(NOW - _DELAY, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
_ANY_TIME = "~"  # sorts behind every timestamp

Json = dict[str, Any]
Poll = Callable[[bytes], None]


class Cost(NamedTuple):
    """One kind of answer: CPU seconds for one of so many series, ours and the peer's."""

    kind: str
    series: int
    ours: float
    peer: float


class Found(NamedTuple):
    costs: list[Cost]

    @property
    def times_ours(self) -> float:
        """How many times as much a peer's polls cost, where one of five targets is a trainer."""
        current, summary, loops = self.costs
        peer = 2 * (current.peer + summary.peer) + loops.peer
        return peer / (2 * (current.ours + summary.ours) + loops.ours)


class Gauges:
    """Gauges of prometheus_client, made when their first value comes."""

    def __init__(self, target: Target) -> None:
        self.registry = CollectorRegistry()
        self._names = tuple(name for name, _ in target.labels)
        self._own = tuple(value for _, value in target.labels)
        self._gauges: dict[tuple[str, ...], Gauge] = {}

    def set(self, family: str, value: float | None, labels: Mapping[str, str]) -> None:
        if value is None:
            return
        key = (family, *labels)
        gauge = self._gauges.get(key) or self._add(key)
        gauge.labels(*self._own, *labels.values()).set(value)

    def _add(self, key: tuple[str, ...]) -> Gauge:
        family, *labels = key
        names = (*self._names, *(name for name in labels if name not in self._names))
        name = "_".join([family.replace(":", "_"), *[label for label in labels if label == "stat"]])
        return self._gauges.setdefault(key, Gauge(name, "Help.", names, registry=self.registry))

    def series(self) -> int:
        return sum(len(metric.samples) for metric in self.registry.collect())


def model_peer(gauges: Gauges) -> Poll:
    def poll(body: bytes) -> None:
        answer = json.loads(body)
        columns = answer["metric_values"][0]["values"]
        for descriptor, column in zip(answer["metric_descriptors"], columns, strict=True):
            for labels, value in zip(descriptor["label_sets"], column, strict=True):
                gauges.set(descriptor["name"], value, labels)

    return poll


def loops_peer(gauges: Gauges) -> Poll:
    """Timestamps of one format and zone compare as text."""

    def poll(body: bytes) -> None:
        metrics = json.loads(body)["metrics"]
        gauges.set("inference_requests", _newest(metrics["inference_volume"], _SETTLED).get("value"), {})
        by_status = _newest(metrics["inference_volume_by_status"], _SETTLED)
        for status in ("2xx", "4xx", "5xx"):
            gauges.set("inference_requests_by_status", by_status.get(f"status_{status}"), {"status": status})
        times = _newest(metrics["response_time_stats"], _SETTLED)
        for name, quantile in (("p50", "0.5"), ("p95", "0.95"), ("p99", "0.99")):
            value = times.get(name)
            gauges.set("response_time_seconds", value and value * 0.001, {"quantile": quantile})
        gauges.set("concurrent_requests", _newest(metrics["concurrent_requests"]).get("value"), {})
        compute("leader", metrics, {})
        for node in metrics["per_node_metrics"]:
            compute("node", node, {"node_id": node["node_id"]})

    def compute(who: str, found: Json, labels: Mapping[str, str]) -> None:
        for name in ("gpu_memory_usage_bytes", "gpu_utilization"):
            for rank, points in found[name].items():
                gauges.set(f"{who}_{name}", _newest(points).get("value"), {**labels, "gpu_rank": rank})
        for name in ("cpu_usage", "cpu_memory_usage_bytes"):
            gauges.set(f"{who}_{name}", _newest(found[name]).get("value"), labels)
        for name, points in found["ephemeral_storage"].items():
            gauges.set(f"{who}_storage_{name}", _newest(points).get("value"), labels)

    return poll


def _newest(points: list[Json], until: str = _ANY_TIME) -> Json:
    """The newest point, in whatever order they come; an empty one if there is none."""
    newest: Json = {}
    newest_time = ""
    for point in points:
        time = point["timestamp"]
        if newest_time < time <= until:
            newest, newest_time = point, time
    return newest


def report(turns: Turns) -> Report:
    found = measure(turns)
    head = ("CPU per answer, from its bytes to the store", "exporter", "json and gauges", "times ours")
    rows = [
        (
            f"{cost.kind}, {cost.series:,} series",
            milliseconds(cost.ours),
            milliseconds(cost.peer),
            times(cost.peer / cost.ours),
        )
        for cost in found.costs
    ]
    ratio = found.costs[-1].peer / found.costs[-1].ours
    goal = Goal(f"poll of {_POINTS} points: cheaper than json and gauges", ratio, "at least", _GOAL, "x")
    return Report([table(head, rows), wire.cost_table(turns)], [goal])


def measure(turns: Turns) -> Found:
    deployments = Deployments(5, nodes=_NODES)
    kinds: dict[str, ModelOptions | LoopsOptions] = {
        "model CURRENT": ModelOptions(mode="current"),
        "model SUMMARY": ModelOptions(mode="summary"),
        f"Loops, {_POINTS} points": _SIXTY,
    }
    answers = [_answers(deployments, options) for options in kinds.values()]
    gauges = [Gauges(each.target) for each in answers]
    theirs = [
        _peer(each, model_peer(own) if each.target.kind == "model" else loops_peer(own))
        for each, own in zip(answers, gauges, strict=True)
    ]
    costs = cpu_of_calls([*[_exporter(each) for each in answers], *theirs], turns)
    return Found(
        [
            Cost(kind, own.series(), ours, peer)
            for kind, own, ours, peer in zip(
                kinds, gauges, costs[: len(kinds)], costs[len(kinds) :], strict=True
            )
        ]
    )


def _answers(deployments: Deployments, options: ModelOptions | LoopsOptions) -> Answers:
    kind = "model" if isinstance(options, ModelOptions) else "loops"
    target = next(each for each in deployments.targets if each.kind == kind)
    return deployments.answers(replace(target, options=options))


def _exporter(answers: Answers) -> Callable[[], object]:
    store = Store(lambda: NOW)
    store.retarget([answers.target], inf)
    return lambda: store.succeed(answers.target, answers.snapshot(), 0.1)


def _peer(answers: Answers, poll: Poll) -> Callable[[], object]:
    _, body = answers.bodies[0]
    return lambda: poll(body)
