"""The model metrics the simulator knows: what each is, who serves it, and how its values come about."""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from exporter.simulator.signals import STATUSES, Span, answered

Kind = Literal["GAUGE", "COUNTER", "HISTOGRAM"]
Unit = Literal["PER_SECOND", "SECONDS", "BYTES", "MEBIBYTES", "COUNT", "RATIO"]
Trait = Literal["", "gpu", "async", "websocket", "llm", "speculation", "bis", "vllm", "sglang"]
"""What a deployment must have for a metric to apply to it; nothing for the metrics of every deployment."""

# The shape of every distribution: its quantiles and average, in multiples of the median.
SHAPE = (
    ({"quantile": "0.5"}, 1.0),
    ({"quantile": "0.9"}, 1.9),
    ({"quantile": "0.95"}, 2.4),
    ({"quantile": "0.99"}, 4.2),
    ({"stat": "avg"}, 1.2),
)
DEFAULT = (
    "baseten_replicas_active",
    "baseten_inference_requests_total",
    "baseten_end_to_end_response_time_seconds",
)

Series = tuple[dict[str, str], float]
"""A label set, and a factor to its values."""


class Metric(NamedTuple):
    """One metric, moving from `low` without traffic to `high` at the peak.

    Those are a gauge's value, the median of a histogram, and for a counter what one request adds (`high`).
    A gauge that counts things over the whole deployment is given per replica.
    """

    name: str
    kind: Kind
    unit: Unit
    low: float
    high: float
    needs: Trait = ""
    per: Literal["", "status", "condition", "replica", "gpu"] = ""

    def series(self, replicas: tuple[str, ...], gpus: int) -> Iterator[Series]:
        if self.kind == "HISTOGRAM":
            yield from SHAPE
        elif self.per == "status":
            yield from (({"status": status}, 1) for status in STATUSES)
        elif self.per == "condition":
            yield from (({"condition": "true"}, 1), ({"condition": "false"}, 0))
        elif self.per == "replica":
            yield from (({"replica": name}, 1) for name in replicas)
        elif self.per == "gpu":
            yield from (({"replica": name, "gpu": str(gpu)}, 1) for name in replicas for gpu in range(gpus))
        else:
            yield {}, 1

    def value(self, series: Series, phase: float, span: Span, replicas: int) -> float | None:
        """The value of one series over the span; None where there is no data."""
        labels, factor = series
        level = factor * (self.low + (self.high - self.low) * span.shaken(phase))
        if self.kind == "HISTOGRAM":
            return round(level, 6) if span.requests else None
        if self.kind == "COUNTER" and self.unit == "COUNT":
            return float(self._count(labels, span.last) - self._count(labels, span.first))
        if self.kind == "COUNTER":
            return round(level * span.arrived, 6)
        return self._gauge(level, span, replicas)

    def _count(self, labels: dict[str, str], requests: int) -> int:
        return answered(labels["status"], requests) if labels else int(self.high * requests)

    def _gauge(self, level: float, span: Span, replicas: int) -> float | None:
        if self.per in {"", "condition"} and self.unit in {"COUNT", "PER_SECOND"}:
            level *= replicas
        elif not replicas:
            return None
        return float(round(level)) if span.instant and self.unit == "COUNT" else round(level, 6)


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("baseten_replicas_active", "GAUGE", "COUNT", 1, 1),
        Metric("baseten_replicas_starting", "GAUGE", "COUNT", 0, 0),
        Metric("baseten_replicas_desired", "GAUGE", "COUNT", 1, 1),
        Metric("baseten_inference_requests_total", "COUNTER", "COUNT", 0, 1, per="status"),
        Metric("baseten_end_to_end_response_time_seconds", "HISTOGRAM", "SECONDS", 0.35, 1.4),
        Metric("baseten_time_to_first_byte_seconds", "HISTOGRAM", "SECONDS", 0.08, 0.4),
        Metric("baseten_concurrent_requests", "GAUGE", "COUNT", 0, 12),
        Metric("baseten_request_size_bytes", "HISTOGRAM", "BYTES", 2_100, 2_900),
        Metric("baseten_response_size_bytes", "HISTOGRAM", "BYTES", 5_200, 7_400),
        Metric("baseten_time_in_async_queue_seconds", "HISTOGRAM", "SECONDS", 0.2, 9, "async"),
        Metric("baseten_async_queue_size", "GAUGE", "COUNT", 0, 30, "async"),
        Metric("baseten_async_webhook_requests_total", "COUNTER", "COUNT", 0, 0.98, "async"),
        Metric("baseten_async_webhook_latency_seconds", "HISTOGRAM", "SECONDS", 0.05, 0.09, "async"),
        Metric("baseten_ongoing_websocket_connections", "GAUGE", "COUNT", 0, 25, "websocket"),
        Metric("baseten_container_cpu_usage_seconds_total", "COUNTER", "RATIO", 0.2, 5.5, per="replica"),
        Metric("baseten_container_cpu_memory_working_set_bytes", "GAUGE", "BYTES", 11e9, 14e9, per="replica"),
        Metric("baseten_container_restarts_total", "COUNTER", "COUNT", 0, 0.00002),
        Metric("baseten_pod_readiness", "GAUGE", "COUNT", 1, 1, per="condition"),
        Metric("baseten_gpu_memory_used", "GAUGE", "MEBIBYTES", 61_400, 71_200, "gpu", "gpu"),
        Metric("baseten_gpu_utilization", "GAUGE", "RATIO", 0.03, 0.92, "gpu", "gpu"),
        Metric("baseten_llm_input_tokens_total", "COUNTER", "COUNT", 0, 1_180, "llm"),
        Metric("baseten_llm_output_tokens_total", "COUNTER", "COUNT", 0, 310, "llm"),
        Metric("baseten_llm_input_tokens_per_request", "HISTOGRAM", "COUNT", 900, 1_060, "llm"),
        Metric("baseten_llm_output_tokens_per_request", "HISTOGRAM", "COUNT", 230, 280, "llm"),
        Metric("baseten_llm_tokens_per_second_per_request", "HISTOGRAM", "PER_SECOND", 95, 38, "llm"),
        Metric("baseten_llm_kv_cache_hit_rate", "GAUGE", "RATIO", 0.2, 0.75, "llm"),
        Metric(
            "baseten_llm_spec_decode_num_accepted_tokens_total", "COUNTER", "COUNT", 0, 228, "speculation"
        ),
        Metric("baseten_llm_spec_decode_num_draft_tokens_total", "COUNTER", "COUNT", 0, 341, "speculation"),
        Metric("baseten_llm_in_flight_tokens", "GAUGE", "COUNT", 0, 17_500, "llm"),
        Metric("baseten_llm_avg_in_flight_tokens", "GAUGE", "COUNT", 0, 17_000, "llm"),
        Metric("baseten_llm_num_requests", "GAUGE", "COUNT", 0, 12, "llm"),
        Metric("concurrent_requests", "GAUGE", "COUNT", 0, 12, "bis"),
        Metric("tps_per_request", "HISTOGRAM", "PER_SECOND", 95, 38, "bis"),
        Metric("autoscaler_in_flight_tokens", "GAUGE", "COUNT", 0, 17_500, "bis"),
        Metric("vllm:num_requests_running", "GAUGE", "COUNT", 0, 11, "vllm"),
        Metric("sglang:gen_throughput", "GAUGE", "PER_SECOND", 0, 2_600, "sglang"),
    )
}
