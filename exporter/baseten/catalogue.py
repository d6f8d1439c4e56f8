"""Every model metric known by name, and the rule that names those that are not.

Name, unit and help of a metric stand together: the table below is what `metrics: all` asks for,
what decides which request a name belongs to, and what `docs/metrics.md` is made from.
"""

import re
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

_GAUGE, _COUNTER, _HISTOGRAM = "GAUGE", "COUNTER", "HISTOGRAM"

_MEBIBYTE = 1024.0 * 1024.0
_RATES = ("PER_SECOND", "RATIO")


class _Unit(NamedTuple):
    suffix: str
    scale: float
    word: str


_UNITS = MappingProxyType(
    {
        "SECONDS": _Unit("_seconds", 1.0, "seconds"),
        "BYTES": _Unit("_bytes", 1.0, "bytes"),
        "MEBIBYTES": _Unit("_bytes", _MEBIBYTE, "bytes"),
        "RATIO": _Unit("_ratio", 1.0, "ratio"),
        "PER_SECOND": _Unit("_per_second", 1.0, "per second"),
    }
)
_NO_UNIT = _Unit("", 1.0, "")
_PER_SECOND = _Unit("_per_second", 1.0, "per second")
_PER_STEP = _Unit("_per_step", 1.0, "per step of unknown length")

_COVERS = MappingProxyType(
    {
        _GAUGE: "the moment of the poll (mode summary: average of the window; mode series: of one step)",
        _COUNTER: "the window, ended delay ago (mode series: one step; mode current: the answer's span)",
        _HISTOGRAM: "the window, ended delay ago (mode series: one step; mode current: as answered)",
    }
)


class Known(NamedTuple):
    """A metric known by name: what to expect of it, and what it is.

    `family` is stem and unit where the rule would read badly, used when kind and hint are as expected.
    """

    kind: str
    unit_hint: str
    what: str
    labels: tuple[str, ...] = ()
    family: tuple[str, _Unit] | None = None


CATALOGUE = MappingProxyType(
    {
        "baseten_replicas_active": Known(_GAUGE, "COUNT", "Replicas ready to serve"),
        "baseten_replicas_starting": Known(_GAUGE, "COUNT", "Replicas starting up"),
        "baseten_replicas_desired": Known(_GAUGE, "COUNT", "Replicas the autoscaler wants"),
        "baseten_inference_requests_total": Known(
            _COUNTER, "COUNT", "Inference requests by response status", ("status",)
        ),
        "baseten_end_to_end_response_time_seconds": Known(
            _HISTOGRAM, "SECONDS", "Time from receiving a request to the end of its response"
        ),
        "baseten_time_to_first_byte_seconds": Known(
            _HISTOGRAM, "SECONDS", "Time from receiving a request to the first byte of its response"
        ),
        "baseten_concurrent_requests": Known(_GAUGE, "COUNT", "Requests in progress"),
        "baseten_request_size_bytes": Known(_HISTOGRAM, "BYTES", "Size of request bodies"),
        "baseten_response_size_bytes": Known(_HISTOGRAM, "BYTES", "Size of response bodies"),
        "baseten_time_in_async_queue_seconds": Known(
            _HISTOGRAM, "SECONDS", "Time asynchronous requests waited in the queue"
        ),
        "baseten_async_queue_size": Known(_GAUGE, "COUNT", "Asynchronous requests waiting in the queue"),
        "baseten_async_webhook_requests_total": Known(
            _COUNTER, "COUNT", "Webhook calls that delivered asynchronous results"
        ),
        "baseten_async_webhook_latency_seconds": Known(
            _HISTOGRAM, "SECONDS", "Latency of webhook calls that delivered asynchronous results"
        ),
        "baseten_ongoing_websocket_connections": Known(_GAUGE, "COUNT", "Open WebSocket connections"),
        "baseten_container_cpu_usage_seconds_total": Known(
            _COUNTER,
            "RATIO",
            "CPU cores in use",
            ("replica",),
            ("baseten_model_container_cpu_usage", _Unit("_cores", 1.0, "cores")),
        ),
        "baseten_container_cpu_memory_working_set_bytes": Known(
            _GAUGE, "BYTES", "Working set of the container's memory", ("replica",)
        ),
        "baseten_container_restarts_total": Known(_COUNTER, "COUNT", "Container restarts"),
        "baseten_pod_readiness": Known(_GAUGE, "COUNT", "Pods by readiness condition", ("condition",)),
        "baseten_gpu_memory_used": Known(_GAUGE, "MEBIBYTES", "GPU memory in use", ("replica", "gpu")),
        "baseten_gpu_utilization": Known(_GAUGE, "RATIO", "GPU utilization", ("replica", "gpu")),
        "baseten_llm_input_tokens_total": Known(_COUNTER, "COUNT", "Input tokens"),
        "baseten_llm_output_tokens_total": Known(_COUNTER, "COUNT", "Output tokens"),
        "baseten_llm_input_tokens_per_request": Known(_HISTOGRAM, "COUNT", "Input tokens of a request"),
        "baseten_llm_output_tokens_per_request": Known(_HISTOGRAM, "COUNT", "Output tokens of a request"),
        "baseten_llm_tokens_per_second_per_request": Known(
            _HISTOGRAM,
            "PER_SECOND",
            "Tokens generated each second for one request",
            family=("baseten_model_llm_tokens_per_second_per_request", _Unit("", 1.0, "per second")),
        ),
        "baseten_llm_kv_cache_hit_rate": Known(
            _GAUGE,
            "RATIO",
            "Share of prompt tokens found in the KV cache",
            family=("baseten_model_llm_kv_cache_hit", _UNITS["RATIO"]),
        ),
        "baseten_llm_spec_decode_num_accepted_tokens_total": Known(
            _COUNTER, "COUNT", "Draft tokens that speculative decoding accepted"
        ),
        "baseten_llm_spec_decode_num_draft_tokens_total": Known(
            _COUNTER, "COUNT", "Draft tokens that speculative decoding proposed"
        ),
        "baseten_llm_in_flight_tokens": Known(_GAUGE, "COUNT", "Tokens of requests in progress"),
        "baseten_llm_avg_in_flight_tokens": Known(
            _GAUGE, "COUNT", "Tokens of requests in progress, averaged over the replicas"
        ),
        "baseten_llm_num_requests": Known(_GAUGE, "COUNT", "Requests the engine holds"),
        "concurrent_requests": Known(_GAUGE, "COUNT", "Requests in progress in the serving engine"),
        "tps_per_request": Known(
            _HISTOGRAM, "PER_SECOND", "Tokens per second of one request in the serving engine"
        ),
        "autoscaler_in_flight_tokens": Known(_GAUGE, "COUNT", "Tokens in flight as the autoscaler sees them"),
        "vllm:num_requests_running": Known(_GAUGE, "COUNT", "Requests running in vLLM"),
        "sglang:gen_throughput": Known(_GAUGE, "PER_SECOND", "Tokens that SGLang generates each second"),
    }
)


class Naming(NamedTuple):
    """How a descriptor's values are exposed.

    `scale` turns the raw value into base units; `per_span` says that it then is a total, to be
    divided by the seconds it covers.
    """

    family: str
    help: str
    scale: float
    per_span: bool


@lru_cache(maxsize=4096)  # also makes every target share one copy of a family's HELP
def name(source: str, kind: str, unit_hint: str, *, stat: str = "", span_known: bool = True) -> Naming:
    """The family of a metric, by the table or by rule, so that unknown ones appear too.

    `stat` is the value of a `stat` label ("avg"), which becomes part of the name: averages and
    quantiles must not add up. Without a known span a counter's raw value is exposed as such.
    """
    known = CATALOGUE.get(source)
    unit = _UNITS.get(unit_hint, _NO_UNIT)
    is_total = kind == _COUNTER and unit_hint not in _RATES
    if known and known.family and (known.kind, known.unit_hint) == (kind, unit_hint):
        stem, unit = known.family
    else:
        stem = (
            _stem(source, kind).removesuffix(_PER_SECOND.suffix if is_total else "").removesuffix(unit.suffix)
        )
    rate = _PER_SECOND if span_known else _PER_STEP
    units = [unit, rate] if is_total else [unit]
    stat_word = "average" if stat == "avg" else sanitize(stat)
    family = stem + f"_{stat_word}" * bool(stat) + "".join(each.suffix for each in units)
    words = " ".join(each.word for each in units if each.word) or "count"
    subject = (known.what if known else f"Metric {source}") + f" ({stat_word})" * bool(stat)
    covers = _COVERS.get(kind, _COVERS[_GAUGE])
    help_text = f"{subject}. Source: {source}. Unit: {words}. Covers: {covers}. Latest polled value."
    return Naming(family, help_text, unit.scale, is_total and span_known)


def _stem(source: str, kind: str) -> str:
    clean = sanitize(source)
    if clean.startswith("baseten_"):
        stem = "baseten_model_" + clean.removeprefix("baseten_")
    else:
        stem = "baseten_model_engine_" + clean
    return stem.removesuffix("_total") if kind == _COUNTER else stem


@lru_cache(4096)
def sanitize(text: str) -> str:
    """Fit for a metric or label name: every other character becomes `_`."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", text)
