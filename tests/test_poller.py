"""One poll: what each outcome does to the store, the counters and the log."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

import pytest

from exporter.baseten.answers import Descriptor, LoopsAnswer, LoopsMetrics, ModelAnswer, Point, ValueSet
from exporter.baseten.errors import REASONS, ApiError, CircuitOpen, EndpointPaused, Reason, Stopping
from exporter.baseten.fetch import Api, Limits
from exporter.baseten.names import MetricNames
from exporter.model import LoopsOptions, ModelOptions, Target
from exporter.polling.poller import Outcome, Poller
from exporter.store import Entry, Store
from exporter.telemetry import SKIP_REASONS, Telemetry

if TYPE_CHECKING:
    from exporter.baseten.client import Client, Spare
    from tests.conftest import Clock

CURRENT = ModelOptions("current", metrics=("baseten_replicas_active",))
MODEL = Target("team", "m1", "d1", CURRENT)
OTHER = Target("team", "m2", "d2", CURRENT)
LOOPS = Target("team", "", "l1", LoopsOptions())
KEY = "sk-verysecret"
STALE_AFTER = 300.0
Made = TypeVar("Made")


def replicas(*label_sets: dict[str, str], value: object = 2.0) -> ModelAnswer:
    sets = list(label_sets or ({},))
    descriptor = Descriptor("baseten_replicas_active", "COUNT", "GAUGE", list(sets))
    return ModelAnswer([descriptor], [ValueSet([[value] * len(sets)])])


class FakeClient:
    """Answers as told, by deployment; an exception is raised."""

    def __init__(self) -> None:
        self.answers: dict[str, object] = {}
        self.asked: list[str] = []
        self.during: Callable[[], object] = lambda: None

    def model_metrics(
        self,
        model_id: str,
        deployment_id: str,
        params: Sequence[tuple[str, str]],
        use: Callable[[ModelAnswer], Made],
        spare: "Spare",
    ) -> Made:
        return use(cast("ModelAnswer", self._answer(deployment_id, replicas())))

    def loops_metrics(
        self,
        deployment_id: str,
        question: Mapping[str, int],
        use: Callable[[LoopsAnswer], Made],
        spare: "Spare",
    ) -> Made:
        return use(cast("LoopsAnswer", self._answer(deployment_id, LoopsAnswer(LoopsMetrics()))))

    def _answer(self, deployment_id: str, usual: object) -> object:
        self.asked.append(deployment_id)
        self.during()
        answer = self.answers.get(deployment_id, usual)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Bench:
    """A poller with a fake client, a real store and real counters."""

    def __init__(self, clock: "Clock") -> None:
        self.client = FakeClient()
        self.store = Store(clock)
        self.store.retarget([MODEL, OTHER, LOOPS], STALE_AFTER)
        self.telemetry = Telemetry()
        self.telemetry.watch(["team"])
        self.stop = threading.Event()
        self.poller = Poller(
            self.store, self.telemetry, clock, self.stop, lambda text: text.replace(KEY, "<redacted>")
        )
        self.poller.limits = Limits(600, 20_000)
        self.poller.apis = {"team": Api(cast("Client", self.client), MetricNames("team"))}

    def poll(self, answer: object = None, target: Target = MODEL) -> Outcome | None:
        self.client.answers = {} if answer is None else {target.deployment_id: answer}
        return self.poller.poll(target)

    def entry(self, target: Target = MODEL) -> Entry:
        return next(entry for entry in self.store.view()[1] if entry.target.key == target.key)

    def count(self, name: str, **labels: str) -> float | None:
        where = (
            labels if name == "dropped_samples_total" else {"workspace": "team", "kind": "model", **labels}
        )
        return self.telemetry.registry.get_sample_value(f"baseten_exporter_{name}", where)


@pytest.fixture
def bench(clock: "Clock") -> Bench:
    return Bench(clock)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "exporter.polling.poller")
    return caplog


# Good polls


def test_a_good_poll_fills_the_store_and_the_counters(bench: Bench, log: pytest.LogCaptureFixture) -> None:
    outcome = bench.poll()
    assert outcome is not None
    assert (outcome.reason, outcome.error) == (None, "")
    entry = bench.entry()
    assert (entry.up, entry.snapshot) == (True, outcome.snapshot)
    assert entry.pieces["baseten_model_replicas_active"].lines == (
        b'baseten_model_replicas_active{deployment_id="d1",model_id="m1",workspace="team"} 2.0\n'
    )
    assert bench.count("polls_total") == 1
    assert bench.count("poll_duration_seconds_count") == 1
    assert log.messages == ["target is up"]


def test_a_target_that_stays_up_is_not_news(bench: Bench, log: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        bench.poll()
    assert log.messages == ["target is up"]
    assert bench.count("polls_total") == 3


def test_loops_targets_are_polled_and_counted_as_such(bench: Bench, clock: "Clock") -> None:
    point = Point(0.5, "2026-09-21T14:13:00Z")
    bench.poll(LoopsAnswer(LoopsMetrics(cpu_usage=[point])), LOOPS)
    assert "baseten_loops_leader_cpu_usage_cores" in bench.entry(LOOPS).pieces
    assert bench.entry(LOOPS).newest_sample == clock.now - 20
    assert bench.count("polls_total", kind="loops") == 1
    assert bench.count("polls_total") == 0


def test_an_answer_without_values_is_a_good_poll(bench: Bench) -> None:
    bench.poll(replicas(value=None))
    assert bench.entry().up
    assert bench.count("dropped_samples_total", reason="null") == 1


def test_what_was_dropped_is_counted(bench: Bench, clock: "Clock") -> None:
    old = Point(0.5, "2026-09-21T14:03:19Z")
    bench.poll(LoopsAnswer(LoopsMetrics(cpu_usage=[old])), LOOPS)
    assert bench.count("dropped_samples_total", reason="too_old") == 1


def test_two_values_for_one_series_are_named_once(bench: Bench, log: pytest.LogCaptureFixture) -> None:
    twice = replicas({"gpu": "0"}, {"gpu": "0"})
    for _ in range(3):
        bench.poll(twice)
    bench.poll(twice, OTHER)
    named = [record for record in log.records if record.levelno == logging.WARNING]
    assert [vars(record)["target"] for record in named] == ["team/model/m1/d1", "team/model/m2/d2"]
    assert bench.count("dropped_samples_total", reason="duplicate") == 4


def test_more_series_than_allowed_are_dropped_and_said_once(
    bench: Bench, log: pytest.LogCaptureFixture
) -> None:
    bench.poller.limits = Limits(600, 2)
    for _ in range(2):
        bench.poll(replicas({"gpu": "0"}, {"gpu": "1"}, {"gpu": "2"}))
    assert bench.count("dropped_samples_total", reason="series_limit") == 2
    snapshot = bench.entry().snapshot
    assert snapshot is not None
    assert snapshot.series == 2
    (record,) = (record for record in log.records if record.levelno == logging.WARNING)
    assert vars(record).items() >= {"target": str(MODEL), "limit": 2, "dropped": 1}.items()


# Failures


@pytest.mark.parametrize("reason", REASONS)
def test_a_failure_reaches_the_store_the_counters_and_the_log(
    bench: Bench, log: pytest.LogCaptureFixture, reason: Reason
) -> None:
    bench.poll()
    snapshot = bench.entry().snapshot
    log.clear()
    outcome = bench.poll(ApiError(reason, "what happened"))
    assert outcome is not None
    assert (outcome.reason, outcome.error, outcome.snapshot) == (reason, "what happened", None)
    entry = bench.entry()
    assert (entry.up, entry.reason, entry.error) == (False, reason, "what happened")
    assert entry.snapshot is (None if reason == "not_found" else snapshot)
    assert bench.count("poll_failures_total", reason=reason) == 1
    assert bench.count("polls_total") == 2
    (record,) = log.records
    assert record.levelno == logging.WARNING
    assert vars(record).items() >= {"target": str(MODEL), "reason": reason, "error": "what happened"}.items()


def test_a_state_is_logged_when_it_changes_and_not_while_it_stays(
    bench: Bench, log: pytest.LogCaptureFixture
) -> None:
    def polled(answer: object) -> list[str]:
        log.clear()
        for _ in range(3):
            bench.poll(answer)
        return [f"{record.levelname} {vars(record).get('reason', '')}".strip() for record in log.records]

    assert polled(ApiError("auth", "no")) == ["WARNING auth"]
    assert polled(ApiError("timeout", "slow")) == ["WARNING timeout"]
    assert polled(None) == ["INFO"]
    assert polled(ApiError("auth", "no")) == ["WARNING auth"]


def test_a_bug_becomes_a_failure_of_one_target_with_its_traceback_in_the_log(
    bench: Bench, log: pytest.LogCaptureFixture
) -> None:
    outcome = bench.poll(ZeroDivisionError("oops"))
    assert outcome is not None
    assert (outcome.reason, outcome.error) == ("invalid_response", "unexpected ZeroDivisionError")
    assert bench.entry().reason == "invalid_response"
    assert bench.count("poll_failures_total", reason="invalid_response") == 1
    assert log.records[0].exc_info is not None
    bench.poll(target=OTHER)
    assert bench.entry(OTHER).up


def test_secrets_are_taken_out_of_errors(bench: Bench, log: pytest.LogCaptureFixture) -> None:
    outcome = bench.poll(ApiError("server_error", f"HTTP 500: {KEY}"))
    assert outcome is not None
    assert outcome.error == bench.entry().error == "HTTP 500: <redacted>"
    assert KEY not in str([vars(record) for record in log.records])


# Polls that are none


def nothing_happened(bench: Bench, log: pytest.LogCaptureFixture) -> bool:
    counts = [
        bench.count("polls_total"),
        *(bench.count("poll_failures_total", reason=each) for each in REASONS),
    ]
    return bench.entry() == Entry(MODEL) and set(counts) == {0} and not log.records


def test_a_pause_the_api_asked_for_skips_the_poll(bench: Bench, log: pytest.LogCaptureFixture) -> None:
    bench.poll()
    before, pause = bench.entry(), EndpointPaused("model_metrics", 10)
    log.clear()
    assert bench.poll(pause) == Outcome(MODEL, 0.0, asked=False, reason="rate_limited", error=str(pause))
    assert bench.count("polls_skipped_total", reason="paused") == 1
    assert bench.count("polls_total") == 1
    assert bench.entry() == before
    assert not log.records


def test_a_pause_before_the_first_poll_is_its_outcome(bench: Bench) -> None:
    bench.poll(EndpointPaused("model_metrics", 10))
    assert (bench.entry().up, bench.entry().reason) == (False, "rate_limited")
    assert bench.entry().last_poll is None


def test_a_pause_beyond_stale_after_takes_a_target_down_with_its_series(bench: Bench, clock: "Clock") -> None:
    bench.poll()
    bench.poll(ApiError("not_found", "no such model"), OTHER)
    clock.now += STALE_AFTER
    for target in (MODEL, OTHER):
        bench.poll(EndpointPaused("model_metrics", 10), target)
    assert (bench.entry().up, bench.entry().reason, bench.entry().snapshot) == (False, "rate_limited", None)
    assert bench.entry(OTHER).reason == "not_found"


def test_with_an_open_circuit_a_target_is_no_longer_up(bench: Bench, log: pytest.LogCaptureFixture) -> None:
    bench.poll()
    log.clear()
    bench.poll(CircuitOpen(ApiError("auth", f"no such key: {KEY}")))
    entry = bench.entry()
    assert (entry.up, entry.reason) == (False, "auth")
    assert entry.error == "not asked, since nothing gets through to this workspace: no such key: <redacted>"
    assert entry.snapshot is not None
    assert bench.count("polls_skipped_total", reason="circuit_open") == 1
    assert not log.records, "one line for the workspace is enough"


def test_a_stop_on_the_way_leaves_nothing(bench: Bench, log: pytest.LogCaptureFixture) -> None:
    assert bench.poll(Stopping()) is None
    assert {bench.count("polls_skipped_total", reason=reason) for reason in SKIP_REASONS} == {0}
    assert nothing_happened(bench, log)


def test_nothing_is_asked_once_it_stops(bench: Bench, log: pytest.LogCaptureFixture) -> None:
    bench.stop.set()
    assert bench.poll() is None
    assert bench.client.asked == []
    assert nothing_happened(bench, log)


def test_nothing_is_asked_for_a_workspace_that_went(bench: Bench, log: pytest.LogCaptureFixture) -> None:
    bench.poller.apis = {}
    assert bench.poll() is None
    assert bench.client.asked == []
    assert nothing_happened(bench, log)


@pytest.mark.parametrize("answer", [None, ApiError("timeout", "slow")])
def test_a_target_removed_during_its_poll_leaves_nothing_and_no_log_line(
    bench: Bench, log: pytest.LogCaptureFixture, answer: object
) -> None:
    bench.client.during = lambda: bench.store.retarget([OTHER], 300)
    bench.poll(answer)
    assert [entry.target for entry in bench.store.view()[1]] == [OTHER]
    assert log.records == []


def test_a_target_changed_during_its_poll_waits_for_the_next(bench: Bench) -> None:
    changed = replace(MODEL, options=ModelOptions("summary"))
    bench.client.during = lambda: bench.store.retarget([changed], 300)
    bench.poll()
    assert bench.entry(changed).up is None
