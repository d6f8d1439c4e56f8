"""How many requests a configuration makes, and how much of its allowance that is."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from exporter.baseten.client import LOOPS_METRICS, MODEL_METRICS
from exporter.baseten.model_metrics import questions
from exporter.baseten.names import MetricNames
from exporter.config import Config, Workspace
from exporter.model import LoopsOptions, Target

API_LIMIT = 100.0
"""Requests per second that the API allows a key on each of these endpoints."""


class Budget(NamedTuple):
    """What one workspace asks of one endpoint. Shares are fractions of 1."""

    workspace: str
    endpoint: str
    per_minute: float
    share_of_rate: float
    share_of_limit: float

    @property
    def exceeded(self) -> bool:
        return self.share_of_rate > 1


def polls(config: Config, targets: Iterable[Target]) -> list[Budget]:
    """What polling these targets costs, by workspace and endpoint."""
    requests: dict[str, Counter[str]] = defaultdict(Counter)
    for target in targets:
        requests[target.workspace][_endpoint(target)] += _requests_per_poll(target)
    return [
        _budget(workspace, endpoint, count / config.poll.interval)
        for workspace in config.workspaces
        for endpoint, count in requests[workspace.name].items()
    ]


def listings(workspace: Workspace, requests: Mapping[str, int], interval: float) -> list[Budget]:
    """What listing costs, given the requests of one run by endpoint and the seconds between two runs."""
    return [_budget(workspace, endpoint, count / interval) for endpoint, count in requests.items()]


def requests_per_minute(config: Config, targets: Iterable[Target]) -> float:
    return sum(budget.per_minute for budget in polls(config, targets))


def _budget(workspace: Workspace, endpoint: str, per_second: float) -> Budget:
    share_of_rate = per_second / workspace.requests_per_second
    return Budget(workspace.name, endpoint, per_second * 60, share_of_rate, per_second / API_LIMIT)


def _endpoint(target: Target) -> str:
    return LOOPS_METRICS if target.kind == "loops" else MODEL_METRICS


def _requests_per_poll(target: Target) -> int:
    if isinstance(target.options, LoopsOptions):
        return 1
    return sum(1 for _ in questions(target.options, 0, MetricNames("").kind_of))
