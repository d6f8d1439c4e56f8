"""What `once` tells a person about one poll."""

from typing import Literal

import pytest

from exporter.baseten.errors import REASONS, Reason
from exporter.baseten.harvest import DROP_REASONS, DropReason, Harvest
from exporter.baseten.names import MetricNames
from exporter.diagnosis import diagnose
from exporter.model import LoopsOptions, ModelOptions, Target
from exporter.polling.poller import Outcome, to_snapshot

NOW = 1_790_000_000.0
MODEL = Target("team", "m", "d", ModelOptions())
Options = ModelOptions | LoopsOptions


def told(outcome: Outcome) -> list[str]:
    return [line.strip() for line in diagnose(outcome, NOW, MetricNames("team"))]


def good(harvest: Harvest, target: Target = MODEL) -> list[str]:
    return told(Outcome(target, 0.5, harvest=harvest, snapshot=to_snapshot(target, harvest)))


def harvest(*families: str, dropped: dict[DropReason, int] | None = None) -> Harvest:
    harvest = Harvest(0)
    for name in families:
        harvest.add(name, "Help.", (), 1.0, NOW - 90)
    for reason, count in (dropped or {}).items():
        harvest.drop(reason, count)
    return harvest


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (
            ModelOptions("auto", metrics=("baseten_replicas_active", "baseten_inference_requests_total")),
            ["CURRENT, 1 metrics", "SUMMARY, 1 metrics, 300 s ended 120 s ago"],
        ),
        (
            ModelOptions("auto", metrics="default"),
            ["CURRENT, the default metrics", "SUMMARY, the default metrics, 300 s ended 120 s ago"],
        ),
        (ModelOptions("current", metrics=("a", "b")), ["CURRENT, 2 metrics"]),
        (ModelOptions("summary", 600, 60, ("a",)), ["SUMMARY, 1 metrics, 600 s ended 60 s ago"]),
        (ModelOptions("series", 600, 60, ("a",)), ["SERIES, 1 metrics, 660 s ended 0 s ago"]),
        (LoopsOptions(300, 30, 120), ["420 s up to now in steps of 30 s, traffic as of 120 s ago"]),
    ],
    ids=str,
)
def test_it_says_what_was_asked(options: Options, asked: list[str]) -> None:
    lines = good(harvest("a"), Target("team", "m", "d", options))
    assert [line.removeprefix("asked: ") for line in lines if line.startswith("asked: ")] == asked


def test_a_good_poll_is_told_in_full() -> None:
    lines = good(
        harvest("a", "b", dropped={"null": 3}),
        Target("team", "m", "d", ModelOptions("current", metrics=("a",))),
    )
    assert lines == [
        "team/model/m/d: ok in 0.50 s",
        "asked: CURRENT, 1 metrics",
        "got: 2 families, 2 series, the newest value 90 s old",
        "left out: 3 null (no data, as of an idle deployment)",
    ]


@pytest.mark.parametrize("reason", REASONS)
def test_every_failure_comes_with_its_error_and_an_advice(reason: Reason) -> None:
    lines = told(Outcome(MODEL, 10.0, reason=reason, error="what the API said"))
    assert lines[0] == f"team/model/m/d: failed: {reason} in 10.00 s"
    assert "error: what the API said" in lines
    assert len([line for line in lines if line.startswith("advice: ")]) == 1
    assert not [line for line in lines if line.startswith("got: ")]


@pytest.mark.parametrize("reason", DROP_REASONS)
def test_every_kind_of_lost_value_is_explained(reason: DropReason) -> None:
    (line,) = [line for line in good(harvest("a", dropped={reason: 2})) if line.startswith("left out: ")]
    assert line.startswith(f"left out: 2 {reason} (")


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        (harvest("a"), []),
        (harvest("a", dropped={"null": 5}), []),
        (harvest("a", dropped={"too_old": 5}), []),
        (harvest("x_per_step"), ["use mode: summary"]),
        (harvest(), ["the deployment is idle"]),
        (harvest(dropped={"null": 5}), ["the deployment is idle"]),
        (harvest(dropped={"too_old": 5}), ["raise poll.max_sample_age"]),
        (harvest("a", dropped={"misaligned": 1}), ["please report it"]),
        (harvest("a", dropped={"not_a_number": 1}), ["please report it"]),
        (harvest(dropped={"misaligned": 1}), ["the deployment is idle", "please report it"]),
    ],
)
def test_advice_fits_what_was_found(found: Harvest, advice: list[str]) -> None:
    lines = [line for line in good(found) if line.startswith("advice: ")]
    assert len(lines) == len(advice)
    assert all(words in line for words, line in zip(advice, lines, strict=True))


def test_an_answer_without_values_has_no_age() -> None:
    assert "got: 0 families, 0 series" in good(harvest())


def test_a_poll_that_was_held_back_says_why_and_no_more() -> None:
    outcome = Outcome(MODEL, 0.0, asked=False, reason="rate_limited", error="paused for 9 s")
    assert list(diagnose(outcome, 0.0, MetricNames("team"))) == [f"{MODEL}: not polled: paused for 9 s"]


@pytest.mark.parametrize(
    ("metrics", "rejected"),
    [
        pytest.param(("a", "made_up"), ["made_up"], id="names"),
        pytest.param("all", ["baseten_replicas_active"], id="all that are known"),
        pytest.param("default", [], id="those the API chooses"),
    ],
)
def test_of_the_names_that_the_api_rejects_those_are_said_that_were_asked_for(
    metrics: Literal["all", "default"] | tuple[str, ...], rejected: list[str]
) -> None:
    names = MetricNames("team")
    for name in ("made_up", "baseten_replicas_active"):
        names.reject((name,), 0.0)
    target = Target("team", "m", "d", ModelOptions(metrics=metrics))
    lines = [line for line in diagnose(Outcome(target, 0.1), NOW, names) if "rejected" in line]
    assert lines == [f"  rejected: the API does not know the metric {name}" for name in rejected]
