"""A poll's answer turned into metrics: ours, and what one writes with json and a few gauges."""

import json
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from benchmarks.fleet import NOW, Fleet, parsed
from benchmarks.report import Row, durations, faster
from benchmarks.timing import Contender, medians
from exporter.baseten import loops_metrics
from exporter.baseten.answers import LoopsAnswer, decode
from exporter.baseten.harvest import Harvest
from exporter.exposition import Format, blocks
from exporter.model import LoopsOptions, Snapshot, Target
from exporter.polling.poller import to_snapshot

_GOAL = 2.5
_NODES = 8
_POINTS = 60
_DELAY, _STEP = 120, 30
_OPTIONS = LoopsOptions(window=(_POINTS - 1) * _STEP - _DELAY, step=_STEP, delay=_DELAY)
_SETTLED = datetime.fromtimestamp(NOW - _DELAY, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
_ANY_TIME = "~"  # sorts behind every timestamp

Json = dict[str, Any]
Found = list[tuple[Gauge, tuple[str, ...], float]]


class Peer:
    """Gauges by family; timestamps of one format and zone compare as text."""

    def __init__(self, target: Target) -> None:
        self.registry = CollectorRegistry()
        self._own = tuple(value for _, value in target.labels)
        names = tuple(name for name, _ in target.labels)
        self._gauges = {
            metric.family: Gauge(metric.family, metric.help, (*names, *metric.labels), registry=self.registry)
            for metric in loops_metrics.METRICS
        }

    def poll(self, body: bytes) -> None:
        metrics = json.loads(body)["metrics"]
        self._set("inference_requests_per_second", _newest(metrics["inference_volume"], _SETTLED))
        by_status = _newest(metrics["inference_volume_by_status"], _SETTLED)
        for status in ("2xx", "4xx", "5xx"):
            value = by_status.get(f"status_{status}")
            self._set("inference_requests_by_status_per_second", {"value": value}, status)
        times = _newest(metrics["response_time_stats"], _SETTLED)
        for field, quantile in (("p50", "0.5"), ("p95", "0.95"), ("p99", "0.99")):
            value = times.get(field)
            self._set("response_time_seconds", {"value": value and value * 0.001}, quantile)
        self._set("concurrent_requests", _newest(metrics["concurrent_requests"]))
        self._compute("leader", metrics)
        for node in metrics["per_node_metrics"]:
            self._compute("node", node, node["node_id"])

    def _compute(self, who: str, compute: Json, *labels: str) -> None:
        for rank, points in compute["gpu_memory_usage_bytes"].items():
            self._set(f"{who}_gpu_memory_usage_bytes", _newest(points), *labels, rank)
        for rank, points in compute["gpu_utilization"].items():
            self._set(f"{who}_gpu_utilization_ratio", _newest(points), *labels, rank)
        self._set(f"{who}_cpu_usage_cores", _newest(compute["cpu_usage"]), *labels)
        self._set(f"{who}_cpu_memory_usage_bytes", _newest(compute["cpu_memory_usage_bytes"]), *labels)
        storage = compute["ephemeral_storage"]
        self._set(f"{who}_ephemeral_storage_usage_bytes", _newest(storage["usage_bytes"]), *labels)
        self._set(f"{who}_ephemeral_storage_utilization_ratio", _newest(storage["utilization"]), *labels)

    def _set(self, family: str, point: Json, *labels: str) -> None:
        value = point.get("value")
        if value is not None:
            self._gauges[f"baseten_loops_{family}"].labels(*self._own, *labels).set(value)

    def found(self) -> Found:
        samples = [sample for metric in self.registry.collect() for sample in metric.samples]
        return [(self._gauges[it.name], tuple(it.labels.values()), it.value) for it in samples]

    @staticmethod
    def store(found: Found) -> None:
        for gauge, labels, value in found:
            gauge.labels(*labels).set(value)


def _newest(points: list[Json], until: str = _ANY_TIME) -> Json:
    """The newest point, in whatever order they come; an empty one if there is none."""
    newest: Json = {}
    newest_time = ""
    for point in points:
        time = point["timestamp"]
        if newest_time < time <= until:
            newest, newest_time = point, time
    return newest


def _harvest(body: bytes) -> Harvest:
    harvest = Harvest(0)
    loops_metrics.translate(decode(LoopsAnswer, body), _OPTIONS, NOW, harvest)
    return harvest


def rows(rounds: int) -> list[Row]:
    fleet = Fleet(5, nodes=_NODES)
    target = next(each for each in fleet.targets if each.kind == "loops")
    body = fleet.loops_body(target, _OPTIONS)
    assert len(json.loads(body)["metrics"]["cpu_usage"]) == _POINTS
    harvest = _harvest(body)
    peer = Peer(target)
    peer.poll(body)
    series = _same_series(to_snapshot(target, harvest), peer.registry)
    found = peer.found()
    ours, theirs, rendered, stored = medians(
        [
            Contender(lambda: to_snapshot(target, _harvest(body)), times=5),
            Contender(lambda: peer.poll(body), times=5),
            Contender(lambda: to_snapshot(target, harvest), times=20),
            Contender(lambda: peer.store(found), times=20),
        ],
        rounds,
    )
    what = f"poll of a trainer, {_POINTS} points of {series} series"
    return [
        faster(what, ours, theirs, _GOAL),
        durations("of which to leave the lines, or to set the gauges", rendered, stored),
    ]


def _same_series(snapshot: Snapshot, registry: CollectorRegistry) -> int:
    """Assert that both sides found the same values; return the number of series."""
    ours = parsed(b"".join(blocks([snapshot.pieces], Format.TEXT)))
    assert ours == parsed(generate_latest(registry))
    return len(ours)
