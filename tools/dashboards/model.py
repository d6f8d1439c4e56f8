"""Model deployment: one deployment, or the chosen ones, from requests down to GPUs and tokens."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from tools.dashboards import frame, limits
from tools.dashboards.style import (
    AMBER,
    BYTES,
    COUNT,
    DOLLARS,
    HALF,
    QUARTER,
    RATIO,
    REQUESTS,
    SECONDS,
    TOKENS,
    Query,
    figure,
    limited,
    stacked,
    states,
    steps,
    timeseries,
)

_LABELS = ["workspace", "model_name", "environment", "deployment_id"]
_ONE = ", ".join(_LABELS)
_DEPLOYMENT = "{{model_name}} {{environment}} {{deployment_id}}"


def _of(name: str, *more: str) -> str:
    return frame.chosen(f"baseten_model_{name}", _LABELS, *more)


def _each(name: str, legend: str, *labels: str) -> Query:
    """One series for each deployment and value of the labels."""
    return Query(
        f"max by ({', '.join([*_LABELS, *labels])}) ({_of(name)})", f"{_DEPLOYMENT} {legend}".rstrip()
    )


_REQUESTS = _of("inference_requests_per_second")
_ERRORS = _of("inference_requests_per_second", 'status=~"5.*"')
_PROMOTED = ["workspace", "environment"]
_PROMOTION = (
    f"{frame.chosen('baseten_model_environment_promotion_in_progress', _PROMOTED)} "
    "* on (workspace, model_id) group_left (model_name) max by (workspace, model_id, model_name) "
    f"({frame.chosen('baseten_model_deployment_info', ['workspace', 'model_name'])}) == 1"
)


def dashboard() -> Dashboard:
    listed = "baseten_model_deployment_info"
    built = frame.dashboard(
        frame.MODEL,
        "Model deployments in depth: traffic, latency, replicas, GPUs, and tokens of LLM engines.",
        [
            frame.variable("model_name", "Model", frame.chosen(listed, _LABELS[:1])),
            frame.variable("environment", "Environment", frame.chosen(listed, _LABELS[:2])),
            frame.variable("deployment_id", "Deployment", frame.chosen(listed, _LABELS[:3])),
        ],
        {
            "State": _state(),
            "Traffic": _traffic(),
            "Replicas": _replicas(),
            "GPUs and containers": _hardware(),
            "LLM engine": _tokens(),
            "Asynchronous requests and WebSockets": _queues(),
        },
    )
    title = "{{model_name}}: a promotion to {{environment}} is in progress"
    return built.annotation(frame.Annotation("Promotions", title, _PROMOTION))


def _state() -> frame.Panels:
    return [
        figure(
            *(11, "Requests", REQUESTS, "Inference requests into the chosen deployments."),
            f"sum({_REQUESTS})",
        ),
        figure(
            *(12, "Failed requests", RATIO, "Share of the requests answered with a 5xx status."),
            frame.share(_ERRORS, _REQUESTS),
        ).thresholds(limits.FAILED),
        figure(
            *(
                13,
                "Response time, p99",
                SECONDS,
                "That of the slowest of the chosen deployments, end to end.",
            ),
            f"""max({_of("end_to_end_response_time_seconds", 'quantile="0.99"')})""",
        ).thresholds(limits.LATENCY),
        figure(
            *(14, "Replicas", COUNT, "Replicas that run, as listed."),
            f"sum({_of('deployment_active_replicas')})",
        ),
        figure(
            *(15, "GPU utilization", RATIO, "Average over all GPUs of the chosen deployments."),
            f"avg({_of('gpu_utilization_ratio')})",
        ),
        figure(
            *(16, "Spend per hour", DOLLARS, "Active replicas times the price of their instance types."),
            f"sum({_of('deployment_price_dollars_per_hour')})",
        ),
        states(
            *(17, "Status", "The listed status of each deployment over time."),
            _each("deployment_status", "{{status}}", "status"),
            limits.DEPLOYMENT_STATES,
        ).height(6),
    ]


def _traffic() -> frame.Panels:
    return [
        stacked(
            timeseries(
                *(
                    21,
                    "Requests by status",
                    REQUESTS,
                    "Inference requests by HTTP status, deployments together.",
                ),
                Query(f"sum by (status) ({_REQUESTS})", "{{status}}"),
            )
        ),
        limited(
            timeseries(
                *(
                    22,
                    "Failed requests",
                    RATIO,
                    "Share of each deployment's requests answered with a 5xx status.",
                ),
                Query(frame.share(_ERRORS, _REQUESTS, _ONE), _DEPLOYMENT),
            ),
            limits.FAILED,
        ),
        timeseries(
            *(23, "Requests in progress", COUNT, "Requests worked on at the moment of the poll."),
            _each("concurrent_requests", ""),
        ),
        limited(
            timeseries(
                *(
                    24,
                    "Response time",
                    SECONDS,
                    "Quantiles from receiving a request to the end of its response.",
                ),
                _each("end_to_end_response_time_seconds", "q{{quantile}}", "quantile"),
            ),
            limits.LATENCY,
        ),
        timeseries(
            *(25, "Time to first byte", SECONDS, "Quantiles from receiving a request to its first byte."),
            _each("time_to_first_byte_seconds", "q{{quantile}}", "quantile"),
        ),
        timeseries(
            *(26, "Size of requests and responses", BYTES, "Average size of the bodies."),
            _each("request_size_average_bytes", "request"),
            _each("response_size_average_bytes", "response"),
        ),
    ]


def _replicas() -> frame.Panels:
    return [
        timeseries(
            *(
                31,
                "Replicas and their bounds",
                COUNT,
                "Replicas, between the least and most of the autoscaler.",
            ),
            _each("replicas_active", "active"),
            _each("replicas_starting", "starting"),
            _each("replicas_desired", "desired"),
            _each("deployment_autoscaling_min_replicas", "min"),
            _each("deployment_autoscaling_max_replicas", "max"),
        ).span(HALF),
        timeseries(
            *(32, "Requests per replica", COUNT, "Requests in progress per active replica, and the target."),
            Query(
                f"sum by ({_ONE}) ({_of('concurrent_requests')})"
                f" / (sum by ({_ONE}) ({_of('replicas_active')}) > 0)",
                f"{_DEPLOYMENT} now",
            ),
            _each("deployment_autoscaling_concurrency_target", "target"),
        ).span(HALF),
        limited(
            timeseries(
                *(33, "Room to scale", RATIO, "Active replicas as a share of the most that is allowed."),
                Query(
                    f"max by ({_ONE}) ({_of('deployment_active_replicas')})"
                    f" / (max by ({_ONE}) ({_of('deployment_autoscaling_max_replicas')}) > 0)",
                    _DEPLOYMENT,
                ),
            ),
            steps((1, AMBER)),
        ),
        timeseries(
            *(34, "Pods by readiness", COUNT, "Pods whose readiness condition is true, false or unknown."),
            _each("pod_readiness", "{{condition}}", "condition"),
        ),
        timeseries(
            *(
                35,
                "Container restarts per hour",
                COUNT,
                "Restarts at the present rate; 0 is what is expected.",
            ),
            Query(f"3600 * sum by ({_ONE}) ({_of('container_restarts_per_second')})", _DEPLOYMENT),
        ),
    ]


def _hardware() -> frame.Panels:
    gpu = "{{replica}} GPU {{gpu}}"
    return [
        timeseries(
            *(41, "GPU utilization", RATIO, "Of each GPU of each replica."),
            _each("gpu_utilization_ratio", gpu, "replica", "gpu"),
        )
        .max(1)
        .span(HALF),
        timeseries(
            *(42, "GPU memory", BYTES, "In use on each GPU of each replica."),
            _each("gpu_memory_used_bytes", gpu, "replica", "gpu"),
        ).span(HALF),
        timeseries(
            *(43, "CPU", "suffix: cores", "CPU cores in use of each replica's container."),
            _each("container_cpu_usage_cores", "{{replica}}", "replica"),
        ).span(HALF),
        timeseries(
            *(44, "Memory", BYTES, "Working set of each replica's container."),
            _each("container_cpu_memory_working_set_bytes", "{{replica}}", "replica"),
        ).span(HALF),
    ]


def _tokens() -> frame.Panels:
    drafts = f"sum by ({_ONE}) ({_of('llm_spec_decode_num_draft_tokens_per_second')})"
    accepted = f"sum by ({_ONE}) ({_of('llm_spec_decode_num_accepted_tokens_per_second')})"
    return [
        timeseries(
            *(51, "Tokens", TOKENS, "Input and output tokens each second, all replicas together."),
            _each("llm_input_tokens_per_second", "input"),
            _each("llm_output_tokens_per_second", "output"),
        ),
        timeseries(
            *(
                52,
                "Speed of a request",
                TOKENS,
                "Quantiles of the tokens generated each second for one request.",
            ),
            _each("llm_tokens_per_second_per_request", "q{{quantile}}", "quantile"),
        ),
        timeseries(
            *(53, "KV cache hits", RATIO, "Share of prompt tokens found in the KV cache."),
            _each("llm_kv_cache_hit_ratio", ""),
        ).max(1),
        timeseries(
            *(
                54,
                "Tokens in flight",
                COUNT,
                "Tokens of requests in progress, and as the autoscaler sees them.",
            ),
            _each("llm_in_flight_tokens", "engine"),
            _each("engine_autoscaler_in_flight_tokens", "autoscaler"),
        ),
        timeseries(
            *(55, "Tokens of a request", COUNT, "Average tokens into and out of one request."),
            _each("llm_input_tokens_per_request_average", "input"),
            _each("llm_output_tokens_per_request_average", "output"),
        ),
        timeseries(
            *(56, "Accepted drafts", RATIO, "Share of draft tokens that speculative decoding accepted."),
            Query(f"{accepted} / ({drafts} > 0)", _DEPLOYMENT),
        ).max(1),
        timeseries(
            *(57, "Requests in the engine", COUNT, "Requests the engine holds, and those running in vLLM."),
            _each("llm_num_requests", "held"),
            _each("engine_vllm_num_requests_running", "running in vLLM"),
        ).span(HALF),
        timeseries(
            *(
                58,
                "SGLang throughput",
                TOKENS,
                "Tokens that SGLang generates each second, as it says itself.",
            ),
            _each("engine_sglang_gen_throughput_per_second", ""),
        ).span(HALF),
    ]


def _queues() -> frame.Panels:
    return [
        timeseries(
            *(61, "Queue", COUNT, "Asynchronous requests that wait."),
            _each("async_queue_size", ""),
        ).span(QUARTER),
        timeseries(
            *(62, "Time in the queue", SECONDS, "Quantiles of the time asynchronous requests waited."),
            _each("time_in_async_queue_seconds", "q{{quantile}}", "quantile"),
        ).span(QUARTER),
        timeseries(
            *(63, "Webhook latency", SECONDS, "Quantiles of the calls that delivered asynchronous results."),
            _each("async_webhook_latency_seconds", "q{{quantile}}", "quantile"),
        ).span(QUARTER),
        timeseries(
            *(64, "WebSockets", COUNT, "Open WebSocket connections."),
            _each("ongoing_websocket_connections", ""),
        ).span(QUARTER),
    ]
