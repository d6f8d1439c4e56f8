"""How many requests a configuration makes, and how much of its allowance that is."""

from collections import Counter
from collections.abc import Iterable
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
    targets: int
    per_minute: float
    share_of_rate: float
    share_of_limit: float

    @property
    def exceeded(self) -> bool:
        return self.share_of_rate > 1


def budgets(config: Config, targets: Iterable[Target]) -> list[Budget]:
    """What polling these targets costs, by workspace and endpoint."""
    by_workspace: dict[str, list[Target]] = {workspace.name: [] for workspace in config.workspaces}
    for target in targets:
        by_workspace[target.workspace].append(target)
    return [
        budget
        for workspace in config.workspaces
        for budget in _budgets(workspace, by_workspace[workspace.name], config.poll.interval)
    ]


def requests_per_minute(config: Config, targets: Iterable[Target]) -> float:
    return sum(budget.per_minute for budget in budgets(config, targets))


def _budgets(workspace: Workspace, targets: list[Target], interval: float) -> Iterable[Budget]:
    counts = Counter(_endpoint(target) for target in targets)
    requests: Counter[str] = Counter()
    for target in targets:
        requests[_endpoint(target)] += _requests_per_poll(target)
    for endpoint, count in requests.items():
        per_second = count / interval
        yield Budget(
            workspace.name,
            endpoint,
            counts[endpoint],
            per_second * 60,
            per_second / workspace.requests_per_second,
            per_second / API_LIMIT,
        )


def _endpoint(target: Target) -> str:
    return LOOPS_METRICS if target.kind == "loops" else MODEL_METRICS


def _requests_per_poll(target: Target) -> int:
    if isinstance(target.options, LoopsOptions):
        return 1
    return sum(1 for _ in questions(target.options, 0, MetricNames("").kind_of))
