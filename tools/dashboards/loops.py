"""Loops trainer: every node and GPU rank of a training job, those that lag, and the sampler beside it."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink
from grafana_foundation_sdk.builders.timeseries import Panel

from tools.dashboards import frame, limits
from tools.dashboards.style import (
    BYTES,
    COUNT,
    HALF,
    QUARTER,
    RATIO,
    REQUESTS,
    SECONDS,
    TOKENS,
    Column,
    Names,
    Query,
    figure,
    grid,
    history,
    limited,
    listing,
    stacked,
    states,
    timeseries,
)

_LABELS = ["workspace", "base_model", "deployment_id"]
_NODE = [*_LABELS, "node_id"]
_IN = "on (workspace, deployment_id)"
_TRAINER = "{{base_model}} {{deployment_id}}"
_RANK = "{{node_id}} rank {{gpu_rank}}"


def _of(name: str, *more: str) -> str:
    return frame.chosen(f"baseten_loops_{name}", _LABELS, *more)


def _nodes(name: str, labels: Sequence[str] = _NODE) -> str:
    """The chosen nodes; for a trainer that has no nodes apart what is known of its leader."""
    leader = f"{_of(f'leader_{name}')} unless {_IN} {_of(f'node_{name}')}"
    named = f'label_replace({leader}, "node_id", "$1-leader", "deployment_id", "(.*)")'
    return f"({frame.chosen(f'baseten_loops_node_{name}', labels)} or {named})"


_INFO = f"max by ({', '.join(_LABELS)}) ({_of('deployment_info')})"
_UTILIZATION = f"sum by ({', '.join(_NODE)}, gpu_rank) ({_nodes('gpu_utilization_ratio')})"
_MEMORY = f"sum by ({', '.join(_NODE)}, gpu_rank) ({_nodes('gpu_memory_usage_bytes')})"
_PEERS = _nodes("gpu_utilization_ratio", _LABELS)
_LAG = f"{_UTILIZATION} / {_IN} group_left () (quantile by (workspace, deployment_id) (0.5, {_PEERS}) > 0)"
_STORAGE = f"sum by ({', '.join(_NODE)}) ({_nodes('ephemeral_storage_utilization_ratio')})"


def _status(name: str) -> str:
    """A status of the chosen trainers, which does not say their base model itself."""
    listed = frame.chosen(f"baseten_loops_{name}", ["workspace", "deployment_id"])
    return f"max by ({', '.join(_LABELS)}, status) ({listed} * {_IN} group_left (base_model) {_INFO})"


def _sampler(name: str, *labels: str) -> str:
    """A metric of the samplers of the chosen trainers."""
    series = frame.chosen(f"baseten_model_{name}", ["workspace"], 'loops_deployment_id=~"$deployment_id"')
    trainers = f'label_replace({_INFO}, "loops_deployment_id", "$1", "deployment_id", "(.*)")'
    own = ", ".join(["workspace", "loops_deployment_id", "deployment_id", *labels])
    return f"sum by ({own}) ({series} and on (workspace, loops_deployment_id) {trainers})"


def dashboard() -> Dashboard:
    listed = "baseten_loops_deployment_info"
    return frame.dashboard(
        frame.LOOPS,
        "Loops trainers node by node and rank by rank: who lags, what fills up, what is asked of them.",
        [
            frame.variable("base_model", "Base model", frame.chosen(listed, _LABELS[:1])),
            frame.variable("deployment_id", "Trainer", frame.chosen(listed, _LABELS[:2])),
            frame.variable(
                "node_id", "Node", frame.chosen("baseten_loops_node_gpu_utilization_ratio", _LABELS)
            ),
        ],
        {
            "State": _state(),
            "Nodes and ranks": _ranks(),
            "Stragglers": _stragglers(),
            "Hosts": _hosts(),
            "Requests": _requests(),
            "Sampler": _samplers(),
        },
    )


def _state() -> frame.Panels:
    return [
        figure(
            *(11, "Nodes", COUNT, "Nodes that report; a trainer without nodes apart counts as one."),
            f"count(count by ({', '.join(_NODE)}) ({_UTILIZATION}))",
        ),
        figure(*(12, "GPUs", COUNT, "GPU ranks that report."), f"count({_UTILIZATION})"),
        figure(
            *(13, "GPU utilization", RATIO, "Average over the chosen nodes and their ranks."),
            f"avg({_UTILIZATION})",
        ),
        figure(
            *(14, "Slowest rank", RATIO, "The lowest utilization as a share of the median of its trainer."),
            f"min({_LAG})",
        ).thresholds(limits.LAG),
        figure(
            *(15, "Requests", REQUESTS, "Requests into the chosen trainers."),
            f"sum({_of('inference_requests_per_second')})",
        ),
        figure(
            *(16, "Fullest storage", RATIO, "Ephemeral storage in use on the fullest node."),
            f"max({_STORAGE})",
        ).thresholds(limits.STORAGE),
        states(
            *(17, "Status", "The listed status of each trainer over time."),
            Query(_status("deployment_status"), f"{_TRAINER} {{{{status}}}}"),
            limits.TRAINER_STATES,
        ).height(6),
    ]


def _ranks() -> frame.Panels:
    return [
        grid(
            *(21, "GPU utilization now", RATIO, "A node down, a rank across; blue is idle, red is busy."),
            *(_UTILIZATION, "node_id", "gpu_rank"),
        ).max(1),
        grid(
            *(22, "GPU memory now", BYTES, "A node down, a rank across; blue is empty, red is the fullest."),
            *(_MEMORY, "node_id", "gpu_rank"),
        ),
        history(
            *(23, "GPU utilization", RATIO, "A rank in each row; blue is idle, red is busy."),
            Query(_UTILIZATION, _RANK),
        ).max(1),
        history(
            *(24, "GPU memory", BYTES, "A rank in each row; blue is empty, red is the fullest."),
            Query(_MEMORY, _RANK),
        ),
    ]


def _stragglers() -> frame.Panels:
    rank = {"base_model": "Base model", "deployment_id": "Trainer", "node_id": "Node", "gpu_rank": "Rank"}
    return [
        limited(
            timeseries(
                *(
                    31,
                    "Utilization beside the median",
                    RATIO,
                    "1 is the median of all ranks of the trainer.",
                ),
                Query(_LAG, _RANK),
            ),
            limits.LAG,
        ).span(HALF),
        listing(
            *(32, "Slowest ranks", "The ten ranks that lag most; below half of the median is a straggler."),
            Names({**rank, "workspace": "Workspace"}),
            Column("Beside the median", f"bottomk(10, {_LAG})", RATIO, limits.LAG),
        )
        .span(HALF)
        .height(8),
    ]


def _hosts() -> frame.Panels:
    storage = "baseten_loops_node_ephemeral_storage_utilization_ratio"
    by_node = f"by ({', '.join(_NODE)})"
    return [
        limited(
            timeseries(
                *(41, "Ephemeral storage", RATIO, "Share in use on each node; a full one ends the training."),
                Query(_STORAGE, "{{node_id}}"),
            ).max(1),
            limits.STORAGE,
        ).span(QUARTER),
        limited(
            timeseries(
                *(
                    42,
                    "Storage in four hours",
                    RATIO,
                    "Share in use in four hours if it goes on as in the last one.",
                ),
                Query(
                    f"clamp(sum {by_node} (predict_linear({frame.chosen(storage, _NODE)}[1h], 14400)), 0, 1)",
                    "{{node_id}}",
                ),
            ).max(1),
            limits.STORAGE,
        ).span(QUARTER),
        timeseries(
            *(43, "CPU", "suffix: cores", "CPU cores in use on each node."),
            Query(f"sum {by_node} ({_nodes('cpu_usage_cores')})", "{{node_id}}"),
        ).span(QUARTER),
        timeseries(
            *(44, "Memory", BYTES, "Memory in use on each node."),
            Query(f"sum {by_node} ({_nodes('cpu_memory_usage_bytes')})", "{{node_id}}"),
        ).span(QUARTER),
    ]


def _requests() -> frame.Panels:
    statuses = _of("inference_requests_by_status_per_second")
    return [
        stacked(
            timeseries(
                *(
                    51,
                    "Requests by status",
                    REQUESTS,
                    "Requests into the chosen trainers by class of status.",
                ),
                Query(f"sum by (status) ({statuses})", "{{status}}"),
            )
        ),
        timeseries(
            *(52, "Response time", SECONDS, "Quantiles of the response time of requests into each trainer."),
            Query(
                f"max by ({', '.join(_LABELS)}, quantile) ({_of('response_time_seconds')})",
                f"{_TRAINER} q{{{{quantile}}}}",
            ),
        ),
        timeseries(
            *(53, "Requests in progress", COUNT, "Requests worked on at the newest point."),
            Query(f"max by ({', '.join(_LABELS)}) ({_of('concurrent_requests')})", _TRAINER),
        ),
    ]


def _opens_sampler(panel: Panel) -> Panel:
    """The panel whose series lead to the dashboard of the sampler, which is a model deployment."""
    url = frame.opened(frame.MODEL, "deployment_id", "__field.labels.deployment_id")
    return panel.span(QUARTER).data_links([DashboardLink("Open the sampler").url(url)])


def _samplers() -> frame.Panels:
    sampler = "sampler {{deployment_id}} of {{loops_deployment_id}}"
    gpu = "{{replica}} GPU {{gpu}}"
    return [
        states(
            *(61, "Status of samplers", "The listed status of the half of a Loops deployment that serves."),
            Query(_status("sampler_status"), f"sampler of {_TRAINER} {{{{status}}}}"),
            limits.DEPLOYMENT_STATES,
        ).height(4),
        _opens_sampler(
            timeseries(
                *(62, "Requests", REQUESTS, "Requests into the samplers of the chosen trainers by status."),
                Query(_sampler("inference_requests_per_second", "status"), f"{sampler} {{{{status}}}}"),
            )
        ),
        _opens_sampler(
            timeseries(
                *(63, "Response time", SECONDS, "Quantiles of the samplers' response time, end to end."),
                Query(
                    _sampler("end_to_end_response_time_seconds", "quantile"), f"{sampler} q{{{{quantile}}}}"
                ),
            )
        ),
        _opens_sampler(
            timeseries(
                *(64, "Output tokens", TOKENS, "Tokens that the samplers generate each second."),
                Query(_sampler("llm_output_tokens_per_second"), sampler),
            )
        ),
        _opens_sampler(
            timeseries(
                *(65, "GPU utilization", RATIO, "Of each GPU of the samplers' replicas."),
                Query(_sampler("gpu_utilization_ratio", "replica", "gpu"), f"{sampler} {gpu}"),
            ).max(1)
        ),
    ]
