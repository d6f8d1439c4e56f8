"""How many requests a configuration costs."""

import pytest

from exporter.apikey import ApiKey
from exporter.baseten.client import LOOPS_METRICS, MODEL_METRICS
from exporter.budget import Budget, intervals, listings, polls, requests_per_minute, warnings
from exporter.config import Config, Poll, Workspace
from exporter.model import LoopsOptions, ModelOptions, Target

GAUGE, COUNTER = "baseten_replicas_active", "baseten_inference_requests_total"
Options = ModelOptions | LoopsOptions


def workspace(name: str, rate: float, *options: Options) -> Workspace:
    targets = tuple(
        Target(name, "" if isinstance(each, LoopsOptions) else "m", f"d{number}", each)
        for number, each in enumerate(options)
    )
    return Workspace(name, "http://api", ApiKey("test", "key"), rate, None, targets)


def config(*workspaces: Workspace, interval: float = 60) -> Config:
    return Config(Poll(interval, 10, 4, 300, 600, 20_000), workspaces)


def budgets_of(config: Config) -> list[Budget]:
    return polls(config, config.targets)


def warnings_of(config: Config) -> list[str]:
    return warnings(config, intervals(config, config.targets))


def per_minute_of(config: Config) -> float:
    return requests_per_minute(config, config.targets)


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        (ModelOptions("auto"), 2),
        (ModelOptions("auto", metrics="default"), 2),
        (ModelOptions("auto", metrics=(GAUGE, COUNTER)), 2),
        (ModelOptions("auto", metrics=(GAUGE,)), 1),
        (ModelOptions("auto", metrics=(COUNTER,)), 1),
        (ModelOptions("auto", metrics=("unheard_of",)), 1),
        (ModelOptions("current"), 1),
        (ModelOptions("summary"), 1),
        (ModelOptions("series"), 1),
        (LoopsOptions(), 1),
    ],
    ids=str,
)
def test_a_poll_costs_what_its_options_ask(options: Options, requests: int) -> None:
    assert per_minute_of(config(workspace("team", 20, options))) == requests


@pytest.mark.parametrize(("interval", "per_minute"), [(60, 2.0), (15, 8.0), (120, 1.0), (3600, 2 / 60)])
def test_the_cost_follows_the_interval(interval: float, per_minute: float) -> None:
    assert per_minute_of(config(workspace("team", 20, ModelOptions()), interval=interval)) == pytest.approx(
        per_minute
    )


def test_each_workspace_and_endpoint_has_a_budget_of_its_own() -> None:
    red = workspace("red", 10, ModelOptions(), ModelOptions("current"), LoopsOptions())
    blue = workspace("blue", 1, LoopsOptions())
    found = budgets_of(config(red, blue))
    assert [(each.workspace, each.endpoint, each.per_minute) for each in found] == [
        ("red", MODEL_METRICS, 3.0),
        ("red", LOOPS_METRICS, 1.0),
        ("blue", LOOPS_METRICS, 1.0),
    ]


def test_a_workspace_without_targets_costs_nothing() -> None:
    assert budgets_of(config(workspace("idle", 10))) == []


@pytest.mark.parametrize(
    ("targets", "rate", "share_of_rate", "share_of_limit", "interval"),
    [
        (30, 10, 0.1, 0.01, 60),
        (285, 10, 0.95, 0.095, 60),
        (300, 10, 1.0, 0.1, 60 / 0.95),
        (60, 0.5, 4.0, 0.02, 240 / 0.95),
    ],
    ids=["far below", "just fits", "leaves nothing free", "four times too much"],
)
def test_shares_are_of_the_own_rate_and_of_the_apis_limit_and_intervals_stretch_to_fit(
    targets: int, rate: float, share_of_rate: float, share_of_limit: float, interval: float
) -> None:
    polled = config(workspace("team", rate, *[ModelOptions()] * targets))
    (budget,) = budgets_of(polled)
    assert budget.share_of_rate == pytest.approx(share_of_rate)
    assert budget.share_of_limit == pytest.approx(share_of_limit)
    assert intervals(polled, polled.targets) == {("team", "model"): pytest.approx(interval)}
    assert bool(warnings_of(polled)) is (interval > 60)


def test_only_what_is_too_much_is_stretched() -> None:
    red = workspace("red", 0.1, *[ModelOptions("current")] * 12, LoopsOptions())
    polled = config(red, workspace("blue", 10, ModelOptions("current")))
    assert intervals(polled, polled.targets) == {
        ("red", "model"): pytest.approx(120 / 0.95),
        ("red", "loops"): 60,
        ("blue", "model"): 60,
    }
    assert warnings_of(polled) == [
        (
            "red: model targets are polled every 127 s instead of 60 s, since requests_per_second "
            "allows no more: raise it, ask less or raise poll.interval"
        )
    ]


def test_an_interval_stretched_beyond_stale_after_is_said() -> None:
    polled = config(workspace("red", 0.1, *[LoopsOptions()] * 60))
    (_, warning) = warnings_of(polled)
    assert "every 632 s" in warnings_of(polled)[0]
    assert warning.startswith("red: that is longer than poll.stale_after (300 s)")


def test_listing_costs_its_requests_over_its_interval() -> None:
    (models, deployments) = listings(workspace("red", 10), {"models": 1, "deployments": 600}, 300)
    assert (models.workspace, models.endpoint) == ("red", "models")
    assert models.per_minute == pytest.approx(0.2)
    assert deployments.per_minute == pytest.approx(120)
    assert deployments.share_of_rate == pytest.approx(0.2)
