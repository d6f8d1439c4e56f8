"""Loops trainers: what to ask, and what the answer means. Pure."""

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

from exporter.baseten.answers import Compute, LoopsAnswer, Points, RankPoints, Rows
from exporter.baseten.harvest import Harvest
from exporter.baseten.values import clean_text, parse_time
from exporter.model import Labels, LoopsOptions

_NEWEST = "the newest point"
_SETTLED = "one step, the newest that ended delay ago or earlier"

_QUANTILES = MappingProxyType({"p50": "0.5", "p95": "0.95", "p99": "0.99"})
_MILLISECONDS = 1000.0


class Metric(NamedTuple):
    """A family of a Loops trainer. `per` of the unit of `source` make one of the family's."""

    family: str
    source: str
    help: str
    labels: tuple[str, ...]
    per: float


def _metric(
    family: str, source: str, unit: str, what: str, *labels: str, covers: str = _NEWEST, per: float = 1.0
) -> Metric:
    help_text = f"{what}. Source: {source}. Unit: {unit}. Covers: {covers}. Latest polled value."
    return Metric(f"baseten_loops_{family}", source, help_text, labels, per)


REQUESTS = _metric(
    "inference_requests_per_second",
    "inference_volume",
    "per second",
    "Requests into the trainer",
    covers=_SETTLED,
)
REQUESTS_BY_STATUS = _metric(
    "inference_requests_by_status_per_second",
    "inference_volume_by_status",
    "per second",
    "Requests into the trainer by class of response status",
    "status",
    covers=_SETTLED,
)
RESPONSE_TIME = _metric(
    "response_time_seconds",
    "response_time_stats",
    "seconds",
    "Response time of requests into the trainer",
    "quantile",
    covers=_SETTLED,
    per=_MILLISECONDS,
)
CONCURRENT_REQUESTS = _metric(
    "concurrent_requests", "concurrent_requests", "count", "Requests in progress in the trainer"
)


class ComputeMetrics(NamedTuple):
    """The six families that the leader and every node have alike."""

    gpu_memory: Metric
    gpu_utilization: Metric
    cpu: Metric
    cpu_memory: Metric
    storage: Metric
    storage_utilization: Metric


def _compute(prefix: str, who: str, path: str, *own: str) -> ComputeMetrics:
    def metric(family: str, source: str, unit: str, what: str, *labels: str) -> Metric:
        return _metric(f"{prefix}_{family}", path + source, unit, f"{what} of {who}", *own, *labels)

    storage = "ephemeral_storage"
    return ComputeMetrics(
        metric("gpu_memory_usage_bytes", "gpu_memory_usage_bytes", "bytes", "GPU memory in use", "gpu_rank"),
        metric("gpu_utilization_ratio", "gpu_utilization", "ratio", "GPU utilization", "gpu_rank"),
        metric("cpu_usage_cores", "cpu_usage", "cores", "CPU cores in use"),
        metric("cpu_memory_usage_bytes", "cpu_memory_usage_bytes", "bytes", "Memory in use"),
        metric(f"{storage}_usage_bytes", f"{storage}.usage_bytes", "bytes", "Ephemeral storage in use"),
        metric(
            f"{storage}_utilization_ratio", f"{storage}.utilization", "ratio", "Ephemeral storage used up"
        ),
    )


LEADER = _compute("leader", "the leader node", "")
NODE = _compute("node", "one node", "per_node_metrics[].", "node_id")

METRICS = (REQUESTS, REQUESTS_BY_STATUS, RESPONSE_TIME, CONCURRENT_REQUESTS, *LEADER, *NODE)


def body(options: LoopsOptions, now: float) -> dict[str, int]:
    """The request: from `window` + `delay` ago up to now, in steps of `step` seconds."""
    start = int(now - options.delay - options.window)
    return {
        "start_epoch_millis": start * 1000,
        "end_epoch_millis": int(now) * 1000,
        "step_seconds": options.step,
    }


def translate(answer: LoopsAnswer, options: LoopsOptions, now: float, harvest: Harvest) -> None:
    """Add what the answer says: gauges as of the newest point, traffic as of the newest settled one."""
    metrics = answer.metrics
    settled = Reader(harvest, now - options.delay)
    newest = Reader(harvest, math.inf)
    settled.points(REQUESTS, metrics.inference_volume)
    settled.columns(REQUESTS_BY_STATUS, metrics.inference_volume_by_status, _status_label)
    settled.columns(RESPONSE_TIME, metrics.response_time_stats, _quantile_label)
    newest.points(CONCURRENT_REQUESTS, metrics.concurrent_requests)
    newest.compute(LEADER, metrics)
    for node in metrics.per_node_metrics or ():
        newest.compute(NODE, node, (("node_id", clean_text(node.node_id)),))


def _status_label(field: str) -> Labels | None:
    return (("status", clean_text(field.removeprefix("status_"))),) if field.startswith("status_") else None


def _quantile_label(field: str) -> Labels | None:
    return (("quantile", _QUANTILES[field]),) if field in _QUANTILES else None


class Reader:
    """Reads the newest value that is not newer than `limit` from lists of points in any order."""

    def __init__(self, harvest: Harvest, limit: float) -> None:
        self._harvest = harvest
        self._find = Finder(limit)

    def compute(self, metrics: ComputeMetrics, compute: Compute, labels: Labels = ()) -> None:
        self.ranks(metrics.gpu_memory, compute.gpu_memory_usage_bytes, labels)
        self.ranks(metrics.gpu_utilization, compute.gpu_utilization, labels)
        self.points(metrics.cpu, compute.cpu_usage, labels)
        self.points(metrics.cpu_memory, compute.cpu_memory_usage_bytes, labels)
        if compute.ephemeral_storage:
            self.points(metrics.storage, compute.ephemeral_storage.usage_bytes, labels)
            self.points(metrics.storage_utilization, compute.ephemeral_storage.utilization, labels)

    def ranks(self, metric: Metric, ranks: RankPoints, labels: Labels) -> None:
        for rank, points in (ranks or {}).items():
            self.points(metric, points, (("gpu_rank", clean_text(rank)), *labels))

    def points(self, metric: Metric, points: Points, labels: Labels = ()) -> None:
        newest = self._newest([point.timestamp for point in points or ()])
        if points and newest is not None:
            raw, time = points[newest.position].value, newest.time
            self._harvest.add(metric.family, metric.help, labels, raw, time, per=metric.per)

    def columns(self, metric: Metric, rows: Rows, labels_of: Callable[[str], Labels | None]) -> None:
        """Rows of several values each; `labels_of` gives a field's labels, None where it is no value."""
        newest = self._newest([row.get("timestamp") for row in rows or ()])
        if rows and newest is not None:
            for field, raw in rows[newest.position].items():
                labels = labels_of(field)
                if labels is not None:
                    self._harvest.add(metric.family, metric.help, labels, raw, newest.time, per=metric.per)

    def _newest(self, timestamps: list[object]) -> "Newest | None":
        newest, bad = self._find(timestamps)
        if bad:
            self._harvest.drop("bad_timestamp", bad)
        return newest


class Newest(NamedTuple):
    """The newest of some points; of two at the same time, the later one in the list."""

    time: float
    position: int


class Finder:
    """Finds the newest of some timestamps that is not newer than `limit`, and counts the unreadable.

    All series of an answer have the same timestamps, as a rule: they are read once.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._last: tuple[list[object], tuple[Newest | None, int]] = ([], (None, 0))

    def __call__(self, timestamps: list[object]) -> tuple[Newest | None, int]:
        known, found = self._last
        if timestamps != known:
            found = self._find(timestamps)
            self._last = (timestamps, found)
        return found

    def _find(self, timestamps: list[object]) -> tuple[Newest | None, int]:
        times = [parse_time(timestamp) for timestamp in timestamps]
        readable = [Newest(time, position) for position, time in enumerate(times) if time is not None]
        due = [newest for newest in readable if newest.time <= self._limit]
        return max(due, default=None), len(times) - len(readable)
