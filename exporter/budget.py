"""How many requests a configuration makes, and how much of its allowance that is."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from exporter.baseten.client import LOOPS_METRICS, MODEL_METRICS
from exporter.baseten.model_metrics import questions
from exporter.baseten.names import MetricNames
from exporter.config import Config, Workspace
from exporter.model import Kind, LoopsOptions, ModelOptions, Target

API_LIMIT = 100.0
"""Requests per second that the API allows a key on each of these endpoints."""

_SHARE_FOR_POLLS = 0.95
"""Of requests_per_second; the rest is for retries, and lets a backlog drain."""


class Budget(NamedTuple):
    """What one workspace asks of one endpoint. Shares are fractions of 1."""

    workspace: str
    endpoint: str
    per_minute: float
    share_of_rate: float
    share_of_limit: float

    @property
    def kind(self) -> Kind:
        """The kind of targets that are polled there."""
        return "loops" if self.endpoint == LOOPS_METRICS else "model"

    @property
    def stretch(self) -> float:
        """By how much the interval must be longer for the requests to fit; 1 if they do."""
        return max(1.0, self.share_of_rate / _SHARE_FOR_POLLS)


def polls(config: Config, targets: Iterable[Target]) -> list[Budget]:
    """What polling these targets costs, by workspace and endpoint."""
    requests: dict[str, Counter[str]] = defaultdict(Counter)
    # Few differ in their options, and a poll costs what those ask.
    alike = Counter((target.workspace, target.options) for target in targets)
    for (workspace, options), count in alike.items():
        requests[workspace][_endpoint(options)] += count * _requests_per_poll(options)
    return [
        _budget(workspace, endpoint, count / config.poll.interval)
        for workspace in config.workspaces
        for endpoint, count in requests[workspace.name].items()
    ]


def listings(workspace: Workspace, requests: Mapping[str, int], interval: float) -> list[Budget]:
    """What listing costs, given the requests of one run by endpoint and the seconds between two runs."""
    return [_budget(workspace, endpoint, count / interval) for endpoint, count in requests.items()]


def intervals(config: Config, targets: Iterable[Target]) -> dict[tuple[str, Kind], float]:
    """How often targets are polled, by workspace and kind, in seconds: all those of a kind alike.

    The interval of the config, longer where requests_per_second allows no more.
    """
    return {
        (each.workspace, each.kind): config.poll.interval * each.stretch for each in polls(config, targets)
    }


def warnings(config: Config, effective: Mapping[tuple[str, Kind], float]) -> list[str]:
    """What a person should know of intervals that had to be stretched; `effective` are what they came to."""
    lines = []
    for (workspace, kind), seconds in effective.items():
        if seconds > config.poll.interval:
            lines.append(
                f"{workspace}: {kind} targets are polled every {_above(seconds)} s instead of "
                f"{config.poll.interval:g} s, since requests_per_second allows no more: raise it, "
                "ask less or raise poll.interval"
            )
        if seconds > config.poll.stale_after:
            lines.append(
                f"{workspace}: that is longer than poll.stale_after ({config.poll.stale_after:g} s), "
                f"and series of {kind} targets will come and go: raise it, too"
            )
    return lines


def _above(seconds: float) -> int:
    """In whole seconds, not fewer: what is stretched must not look as if it were not."""
    return math.ceil(seconds - 1e-9)


def requests_per_minute(config: Config, targets: Iterable[Target]) -> float:
    return sum(budget.per_minute for budget in polls(config, targets))


def _budget(workspace: Workspace, endpoint: str, per_second: float) -> Budget:
    share_of_rate = per_second / workspace.requests_per_second
    return Budget(workspace.name, endpoint, per_second * 60, share_of_rate, per_second / API_LIMIT)


def _endpoint(options: ModelOptions | LoopsOptions) -> str:
    return LOOPS_METRICS if isinstance(options, LoopsOptions) else MODEL_METRICS


def _requests_per_poll(options: ModelOptions | LoopsOptions) -> int:
    if isinstance(options, LoopsOptions):
        return 1
    return sum(1 for _ in questions(options, 0, MetricNames("").kind_of))
