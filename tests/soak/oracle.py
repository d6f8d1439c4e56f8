"""What answers mean, told a second time and without the exporter's own code: names as they are documented.

A series is its family and its own labels, without those that say which target it belongs to.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

Series = tuple[str, frozenset[tuple[str, str]]]
Value = tuple[str, dict[str, str], float | None]
Json = dict[str, Any]

WINDOW = 300
"""Seconds; the default of the config, which no target here changes."""

MIB = 1024 * 1024

# By the name that Baseten gives it: family without unit, unit, and how many base units make one of its own.
GAUGES = MappingProxyType(
    {
        "baseten_replicas_active": ("baseten_model_replicas_active", 1),
        "baseten_replicas_starting": ("baseten_model_replicas_starting", 1),
        "baseten_replicas_desired": ("baseten_model_replicas_desired", 1),
        "baseten_concurrent_requests": ("baseten_model_concurrent_requests", 1),
        "baseten_async_queue_size": ("baseten_model_async_queue_size", 1),
        "baseten_ongoing_websocket_connections": ("baseten_model_ongoing_websocket_connections", 1),
        "baseten_container_cpu_memory_working_set_bytes": (
            "baseten_model_container_cpu_memory_working_set_bytes",
            1,
        ),
        "baseten_pod_readiness": ("baseten_model_pod_readiness", 1),
        "baseten_gpu_memory_used": ("baseten_model_gpu_memory_used_bytes", MIB),
        "baseten_gpu_utilization": ("baseten_model_gpu_utilization_ratio", 1),
        "baseten_llm_kv_cache_hit_rate": ("baseten_model_llm_kv_cache_hit_ratio", 1),
        "baseten_llm_in_flight_tokens": ("baseten_model_llm_in_flight_tokens", 1),
        "baseten_llm_avg_in_flight_tokens": ("baseten_model_llm_avg_in_flight_tokens", 1),
        "baseten_llm_num_requests": ("baseten_model_llm_num_requests", 1),
        "concurrent_requests": ("baseten_model_engine_concurrent_requests", 1),
        "autoscaler_in_flight_tokens": ("baseten_model_engine_autoscaler_in_flight_tokens", 1),
        "vllm:num_requests_running": ("baseten_model_engine_vllm_num_requests_running", 1),
        "sglang:gen_throughput": ("baseten_model_engine_sglang_gen_throughput_per_second", 1),
    }
)
TOTALS = MappingProxyType(
    {
        "baseten_inference_requests_total": "baseten_model_inference_requests_per_second",
        "baseten_async_webhook_requests_total": "baseten_model_async_webhook_requests_per_second",
        "baseten_container_restarts_total": "baseten_model_container_restarts_per_second",
        "baseten_llm_input_tokens_total": "baseten_model_llm_input_tokens_per_second",
        "baseten_llm_output_tokens_total": "baseten_model_llm_output_tokens_per_second",
        "baseten_llm_spec_decode_num_accepted_tokens_total": (
            "baseten_model_llm_spec_decode_num_accepted_tokens_per_second"
        ),
        "baseten_llm_spec_decode_num_draft_tokens_total": (
            "baseten_model_llm_spec_decode_num_draft_tokens_per_second"
        ),
    }
)
"""Counts over a span, exposed per second of it."""

RATES = MappingProxyType(
    {"baseten_container_cpu_usage_seconds_total": "baseten_model_container_cpu_usage_cores"}
)
"""Counters by kind that are rates already."""

DISTRIBUTIONS = MappingProxyType(
    {
        "baseten_end_to_end_response_time_seconds": (
            "baseten_model_end_to_end_response_time_seconds",
            "baseten_model_end_to_end_response_time_average_seconds",
        ),
        "baseten_time_to_first_byte_seconds": (
            "baseten_model_time_to_first_byte_seconds",
            "baseten_model_time_to_first_byte_average_seconds",
        ),
        "baseten_request_size_bytes": (
            "baseten_model_request_size_bytes",
            "baseten_model_request_size_average_bytes",
        ),
        "baseten_response_size_bytes": (
            "baseten_model_response_size_bytes",
            "baseten_model_response_size_average_bytes",
        ),
        "baseten_time_in_async_queue_seconds": (
            "baseten_model_time_in_async_queue_seconds",
            "baseten_model_time_in_async_queue_average_seconds",
        ),
        "baseten_async_webhook_latency_seconds": (
            "baseten_model_async_webhook_latency_seconds",
            "baseten_model_async_webhook_latency_average_seconds",
        ),
        "baseten_llm_input_tokens_per_request": (
            "baseten_model_llm_input_tokens_per_request",
            "baseten_model_llm_input_tokens_per_request_average",
        ),
        "baseten_llm_output_tokens_per_request": (
            "baseten_model_llm_output_tokens_per_request",
            "baseten_model_llm_output_tokens_per_request_average",
        ),
        "baseten_llm_tokens_per_second_per_request": (
            "baseten_model_llm_tokens_per_second_per_request",
            "baseten_model_llm_tokens_per_second_per_request_average",
        ),
        "tps_per_request": (
            "baseten_model_engine_tps_per_request_per_second",
            "baseten_model_engine_tps_per_request_average_per_second",
        ),
    }
)
"""Quantiles, and their average apart."""

COMPUTE = MappingProxyType(
    {
        "cpu_usage": "cpu_usage_cores",
        "cpu_memory_usage_bytes": "cpu_memory_usage_bytes",
        "gpu_memory_usage_bytes": "gpu_memory_usage_bytes",
        "gpu_utilization": "gpu_utilization_ratio",
    }
)
STORAGE = MappingProxyType(
    {"usage_bytes": "ephemeral_storage_usage_bytes", "utilization": "ephemeral_storage_utilization_ratio"}
)
QUANTILES = MappingProxyType({"p50": "0.5", "p95": "0.95", "p99": "0.99"})


class Answer(NamedTuple):
    """A good answer as it was sent, the request it belongs to, and when (seconds since the epoch)."""

    at: float
    target: str
    question: bytes
    body: bytes


def series(answers: Sequence[Answer], mode: str) -> dict[Series, float]:
    """All that one poll should have left; `mode` is the target's, "loops" for a trainer."""
    found: dict[Series, float] = {}
    for answer in answers:
        told = json.loads(answer.body)
        if mode == "loops":
            found |= _loops(told["metrics"], json.loads(answer.question))
        else:
            query = parse_qs(urlsplit(answer.target).query)
            found |= _model(told, query, settled_apart=mode == "auto")
    return found


def _model(told: Json, query: Mapping[str, list[str]], *, settled_apart: bool) -> dict[Series, float]:
    mode = query["mode"][0]
    found = {}
    for index, descriptor in enumerate(told["metric_descriptors"]):
        gauge = descriptor["kind"] == "GAUGE"
        if settled_apart and gauge != (mode == "CURRENT"):
            continue
        columns = list(_columns(told, query, index, gauge=gauge))
        for position, labels in enumerate(descriptor["label_sets"]):
            values = ((column[position], span) for column, span in columns)
            value, span = next((each for each in values if each[0] is not None), (None, 0.0))
            if value is not None:
                one, number = _model_series(descriptor["name"], dict(labels), value, span)
                found[one] = number
    return found


def _columns(
    told: Json, query: Mapping[str, list[str]], index: int, *, gauge: bool
) -> Iterator[tuple[list[float | None], float]]:
    """A metric's values with the seconds they cover: of SERIES every step that is over, newest first."""
    steps = told["metric_values"]
    if query["mode"] != ["SERIES"]:
        yield steps[0]["values"][index], (told["end_epoch_millis"] - told["start_epoch_millis"]) / 1000
        return
    settled = int(query["start_epoch_millis"][0]) / 1000 + WINDOW
    latest = told["end_epoch_millis"] / 1000 if gauge else settled
    for step in reversed(steps):
        if step["start_epoch_millis"] / 1000 + told["step_seconds"] <= latest:
            yield step["values"][index], told["step_seconds"]


def _model_series(name: str, labels: dict[str, str], value: float, span: float) -> tuple[Series, float]:
    if name in GAUGES:
        family, scale = GAUGES[name]
        return _series(family, labels), value * scale
    if name in TOTALS:
        return _series(TOTALS[name], labels), value / span
    if name in RATES:
        return _series(RATES[name], labels), value
    quantiles, average = DISTRIBUTIONS[name]
    return _series(average if labels.pop("stat", "") == "avg" else quantiles, labels), value


def _loops(metrics: Json, question: Json) -> dict[Series, float]:
    settled = question["start_epoch_millis"] / 1000 + WINDOW
    told = [*_traffic(metrics, settled), *_compute("leader", {}, metrics)]
    for node in metrics["per_node_metrics"]:
        told += _compute("node", {"node_id": node["node_id"]}, node)
    return {
        _series(f"baseten_loops_{family}", labels): value
        for family, labels, value in told
        if value is not None
    }


def _traffic(metrics: Json, settled: float) -> Iterator[Value]:
    for point in _newest(metrics["inference_volume"], settled):
        yield "inference_requests_per_second", {}, point["value"]
    for point in _newest(metrics["concurrent_requests"]):
        yield "concurrent_requests", {}, point["value"]
    for row in _newest(metrics["inference_volume_by_status"], settled):
        for status in ("2xx", "4xx", "5xx"):
            yield "inference_requests_by_status_per_second", {"status": status}, row[f"status_{status}"]
    for row in _newest(metrics["response_time_stats"], settled):
        for field, quantile in QUANTILES.items():
            value = row[field]
            yield "response_time_seconds", {"quantile": quantile}, value and value / 1000


def _compute(who: str, labels: dict[str, str], told: Json) -> Iterator[Value]:
    for field, family in COMPUTE.items():
        ranks = told[field] if isinstance(told[field], dict) else {"": told[field]}
        for rank, points in ranks.items():
            for point in _newest(points):
                yield f"{who}_{family}", labels | ({"gpu_rank": rank} if rank else {}), point["value"]
    for field, family in STORAGE.items():
        for point in _newest(told["ephemeral_storage"][field]):
            yield f"{who}_{family}", labels, point["value"]


def _newest(points: Sequence[Json], latest: float | None = None) -> Sequence[Json]:
    """The newest point not after `latest`, none where there is none."""
    times = [datetime.fromisoformat(point["timestamp"]).timestamp() for point in points]
    due = [
        (time, point) for time, point in zip(times, points, strict=True) if latest is None or time <= latest
    ]
    return [max(due, key=lambda each: each[0])[1]] if due else []


def _series(family: str, labels: Mapping[str, str]) -> Series:
    return family, frozenset(labels.items())
