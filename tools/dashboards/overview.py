"""Overview: every workspace, what is there, how it does, and what it costs."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from tools.dashboards import frame, limits
from tools.dashboards.style import (
    AMBER,
    BYTES,
    COUNT,
    DOLLARS,
    HALF,
    RATIO,
    REQUESTS,
    SECONDS,
    Column,
    Names,
    Query,
    figure,
    limited,
    listing,
    stacked,
    steps,
    timeseries,
)


def _of(family: str, *more: str) -> str:
    return frame.chosen(f"baseten_{family}", ["workspace"], *more)


_ONE = "workspace, model_name, environment, deployment_id"
_TRAINER = "workspace, base_model, deployment_id"
_IN = "on (workspace, deployment_id)"

_REQUESTS = _of("model_inference_requests_per_second")
_ERRORS = _of("model_inference_requests_per_second", 'status=~"5.*"')
_P95 = _of("model_end_to_end_response_time_seconds", 'quantile="0.95"')
_STATUS = _of("model_deployment_status")
_PRICE = _of("model_deployment_price_dollars_per_hour")
_GPU = _of("model_gpu_utilization_ratio")

_NODES = _of("loops_node_gpu_utilization_ratio")
_RANKS = f"({_NODES} or ({_of('loops_leader_gpu_utilization_ratio')} unless {_IN} {_NODES}))"
_NAMED = f"{_IN} group_left (base_model) max by ({_TRAINER}) ({_of('loops_deployment_info')})"

_TROUBLE = f'status=~"{limits.TROUBLE}"'
_IDLE = f"{_PRICE} * {_IN} group_left () (1 - avg by (workspace, deployment_id) ({_GPU}))"

_MODEL = "{{workspace}} {{model_name}}"
_DEPLOYMENT = "{{model_name}} {{environment}} {{deployment_id}}"


def dashboard() -> Dashboard:
    return frame.dashboard(
        frame.OVERVIEW,
        "Every model deployment and Loops trainer of a workspace: state, traffic, GPUs and spend.",
        [],
        {
            "State": _state(),
            "Deployments": _deployments(),
            "Traffic": _traffic(),
            "GPUs": _gpus(),
            "Spend": _spend(),
        },
    )


def _state() -> frame.Panels:
    return [
        figure(
            *(11, "Deployments that serve", COUNT, "Model deployments whose listed status is ACTIVE."),
            f"""count({_of("model_deployment_status", 'status="ACTIVE"')})""",
        ),
        figure(
            *(
                12,
                "In trouble",
                COUNT,
                "Deployments and trainers that are unhealthy or have failed, as listed.",
            ),
            f"count({_of('model_deployment_status', _TROUBLE)} or {_of('loops_deployment_status', _TROUBLE)})"
            " or vector(0)",
        ).thresholds(limits.ANY),
        figure(
            *(13, "Trainers that run", COUNT, "Loops trainers whose listed status is RUNNING."),
            f"""count({_of("loops_deployment_status", 'status="RUNNING"')})""",
        ),
        figure(
            *(14, "Requests", REQUESTS, "Inference requests into all model deployments."),
            f"sum({_REQUESTS})",
        ),
        figure(
            *(15, "Failed requests", RATIO, "Share of inference requests answered with a 5xx status."),
            frame.share(_ERRORS, _REQUESTS),
        ).thresholds(limits.FAILED),
        figure(
            *(16, "Spend per hour", DOLLARS, "Active replicas times the price of their instance types."),
            f"sum({_PRICE})",
        ),
    ]


def _deployments() -> frame.Panels:
    deployment = {
        "workspace": "Workspace",
        "model_name": "Model",
        "environment": "Environment",
        "deployment_id": "Deployment",
        "status": "Status",
    }
    trainer = {
        "workspace": "Workspace",
        "base_model": "Base model",
        "deployment_id": "Trainer",
        "status": "Status",
    }
    return [
        listing(
            *(
                21,
                "Model deployments",
                "All listed deployments, also those without replicas. An id opens it.",
            ),
            Names(deployment, "deployment_id", frame.opened(frame.MODEL, "deployment_id")),
            Column("Listed", f"max by ({_ONE}, status) ({_STATUS})"),
            Column("Replicas", f"max by ({_ONE}) ({_of('model_deployment_active_replicas')})"),
            Column("Requests", f"sum by ({_ONE}) ({_REQUESTS})", REQUESTS),
            Column("5xx", frame.share(_ERRORS, _REQUESTS, _ONE), RATIO, limits.FAILED),
            Column("p95", f"max by ({_ONE}) ({_P95})", SECONDS, limits.LATENCY),
            Column("GPU", f"avg by ({_ONE}) ({_GPU})", RATIO),
            Column("Per hour", f"max by ({_ONE}) ({_PRICE})", DOLLARS),
        ),
        listing(
            *(22, "Loops trainers", "All listed trainers, also those that sleep. An id opens it."),
            Names(trainer, "deployment_id", frame.opened(frame.LOOPS, "deployment_id")),
            Column("Listed", f"max by ({_TRAINER}, status) ({_of('loops_deployment_status')} * {_NAMED})"),
            Column(
                "Requests", f"sum by ({_TRAINER}) ({_of('loops_inference_requests_per_second')})", REQUESTS
            ),
            Column("GPUs", f"count by ({_TRAINER}) ({_RANKS})"),
            Column("GPU", f"avg by ({_TRAINER}) ({_RANKS})", RATIO),
            Column("Slowest rank", f"min by ({_TRAINER}) ({_RANKS})", RATIO),
        ).height(7),
    ]


def _traffic() -> frame.Panels:
    by_model = "sum by (workspace, model_name)"
    return [
        stacked(
            timeseries(
                *(
                    31,
                    "Requests by model",
                    REQUESTS,
                    "Inference requests, all deployments of a model together.",
                ),
                Query(f"{by_model} ({_REQUESTS})", _MODEL),
            )
        ),
        limited(
            timeseries(
                *(32, "Failed requests by model", RATIO, "Share of requests answered with a 5xx status."),
                Query(frame.share(_ERRORS, _REQUESTS, "workspace", "model_name"), _MODEL),
            ),
            limits.FAILED,
        ),
        timeseries(
            *(
                33,
                "Response time, p95",
                SECONDS,
                "95 of 100 requests took no longer, end to end. A deployment each.",
            ),
            Query(f"max by ({_ONE}) ({_P95})", _DEPLOYMENT),
        ),
        timeseries(
            *(
                34,
                "Requests in progress",
                COUNT,
                "Requests that deployments work on at the moment of the poll.",
            ),
            Query(f"sum by ({_ONE}) ({_of('model_concurrent_requests')})", _DEPLOYMENT),
        ),
        timeseries(
            *(35, "Requests into trainers", REQUESTS, "Requests into Loops trainers, of all statuses."),
            Query(
                f"sum by ({_TRAINER}) ({_of('loops_inference_requests_per_second')})",
                "{{base_model}} {{deployment_id}}",
            ),
        ),
        timeseries(
            *(
                36,
                "Waiting in queues",
                COUNT,
                "Asynchronous requests that wait; only deployments that have a queue.",
            ),
            Query(f"sum by ({_ONE}) ({_of('model_async_queue_size')})", _DEPLOYMENT),
        ),
    ]


def _gpus() -> frame.Panels:
    return [
        timeseries(
            *(41, "GPU utilization by deployment", RATIO, "Average over the GPUs of all replicas."),
            Query(f"avg by ({_ONE}) ({_GPU})", _DEPLOYMENT),
        ).max(1),
        timeseries(
            *(42, "GPU utilization by trainer", RATIO, "Average over all nodes and ranks."),
            Query(f"avg by ({_TRAINER}) ({_RANKS})", "{{base_model}} {{deployment_id}}"),
        ).max(1),
        timeseries(
            *(43, "GPU memory by deployment", BYTES, "Memory in use, all GPUs of all replicas together."),
            Query(f"sum by ({_ONE}) ({_of('model_gpu_memory_used_bytes')})", _DEPLOYMENT),
        ),
    ]


def _spend() -> frame.Panels:
    return [
        stacked(
            timeseries(
                *(
                    51,
                    "Spend per hour by model",
                    DOLLARS,
                    "Active replicas times their price. Trainers have no price.",
                ),
                Query(f"sum by (workspace, model_name) ({_PRICE})", _MODEL),
            )
        ).span(HALF),
        stacked(
            timeseries(
                *(
                    52,
                    "Spend on idle GPUs per hour",
                    DOLLARS,
                    "Spend times the share of the GPUs that was not used.",
                ),
                Query(f"sum by (workspace, model_name) ({_IDLE})", _MODEL),
            ).thresholds(steps((50, AMBER)))
        ).span(HALF),
    ]
