"""When polls happen: on their phase, never twice at once for a target, never held up by another."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import KINDS, LoopsOptions, ModelOptions, Target
from exporter.polling.scheduler import Intervals, PhaseTrigger, Scheduler

if TYPE_CHECKING:
    from tests.conftest import Eventually

HOUR = 3600.0
SHORT = 0.1
A, B, C = (Target("team", f"m{letter}", "d", ModelOptions()) for letter in "abc")
ELSEWHERE = Target("other", "", "l", LoopsOptions())


# The trigger


@pytest.mark.parametrize(
    ("interval", "phase", "previous", "expected"),
    [
        (60, 0, 600, 660),
        (60, 0, 600.001, 660),
        (60, 0, 629.9, 660),
        (60, 0, 630, 720),
        (60, 0, 630.1, 720),
        (60, 0, 659.9, 720),
        (60, 25, 625, 685),
        (60, 25, 620, 685),
        (60, 25, 640, 685),
        (60, 25, 656, 745),
        (0.5, 0.2, 10.2, 10.7),
        (86400, 1000, 87400, 173800),
    ],
)
def test_the_next_time_is_on_the_phase_and_half_an_interval_away_or_more(
    interval: float, phase: float, previous: float, expected: float
) -> None:
    assert PhaseTrigger(interval, phase).after(previous) == pytest.approx(expected)


intervals = st.floats(0.1, 7 * 86400)
shares = st.floats(0, 1, exclude_max=True)
times = st.floats(1e9, 3e9)


@given(intervals, shares, times)
def test_the_first_gap_is_between_half_and_one_and_a_half_intervals(
    interval: float, share: float, previous: float
) -> None:
    gap = PhaseTrigger(interval, share * interval).after(previous) - previous
    assert 0.5 * interval - 1e-5 <= gap <= 1.5 * interval + 1e-5


@given(intervals, shares, times)
def test_it_never_drifts(interval: float, share: float, previous: float) -> None:
    """Fed with its own answers, rounded to microseconds as APScheduler does, it stays on the phase."""
    trigger = PhaseTrigger(interval, share * interval)
    now = datetime.fromtimestamp(previous, UTC)
    fired = [trigger.get_next_fire_time(None, now)]
    for _ in range(100):
        fired.append(trigger.get_next_fire_time(fired[-1], now))
    length = (fired[-1] - fired[0]).total_seconds()
    assert length == pytest.approx(100 * interval, abs=1e-4)
    off = (fired[-1].timestamp() / interval - share) % 1
    assert min(off, 1 - off) * interval < 1e-3


@given(intervals, shares, times, st.floats(0, 0.4))
def test_a_late_poll_does_not_move_the_next(
    interval: float, share: float, previous: float, lateness: float
) -> None:
    trigger = PhaseTrigger(interval, share * interval)
    due = trigger.after(previous)
    assert trigger.after(due + lateness * interval) == pytest.approx(trigger.after(due), abs=1e-4)


def test_a_clock_that_was_set_is_followed_at_once() -> None:
    """As on a machine that starts in 1970: nobody counts the polls of fifty years."""
    trigger = PhaseTrigger(60, 7)
    now = datetime.fromtimestamp(1_790_000_000.5, UTC)
    assert trigger.get_next_fire_time(datetime.fromtimestamp(7, UTC), now) > now
    slept = now - timedelta(hours=100)
    assert trigger.get_next_fire_time(slept, now) < slept + timedelta(seconds=91)


# The scheduler


class Recorder:
    """Polls that note when they run, and wait where they are told to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Target, threading.Event] = {}
        self.polls: Counter[Target] = Counter()
        self.skips: Counter[Target] = Counter()
        self.running: Counter[tuple[str, ...]] = Counter()
        self.most: Counter[tuple[str, ...]] = Counter()
        self.most_at_once = 0

    def poll(self, target: Target) -> None:
        with self._lock:
            self.polls[target] += 1
            self.running[target.key] += 1
            self.most |= self.running
            self.most_at_once = max(self.most_at_once, self.running.total())
            held = self._held.get(target)
        if held is not None:
            held.wait()
        with self._lock:
            self.running[target.key] -= 1

    def skipped(self, target: Target) -> None:
        self.skips[target] += 1

    def hold(self, *targets: Target) -> Callable[[], None]:
        """Let the polls of these targets wait until the returned function is called."""
        gate = threading.Event()
        with self._lock:
            self._held |= dict.fromkeys(targets, gate)
        return gate.set

    def release_all(self) -> None:
        for gate in list(self._held.values()):
            gate.set()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def scheduler(recorder: Recorder) -> Iterator[Scheduler]:
    scheduler = Scheduler(recorder.poll, recorder.skipped, time.time)
    scheduler.retarget([], HOUR, {}, {"team": 2})
    scheduler.start()
    yield scheduler
    recorder.release_all()
    scheduler.stop()


def run(scheduler: Scheduler, targets: Iterable[Target], interval: float = SHORT, threads: int = 2) -> None:
    scheduler.retarget(targets, interval, all_at(interval), {"team": threads})


def all_at(interval: float) -> Intervals:
    return {(workspace, kind): interval for workspace in ("team", "other") for kind in KINDS}


def first_polls(count: int) -> list[float]:
    """Seconds until the first polls of so many targets; nothing runs yet, so that none is over already."""
    scheduler = Scheduler(lambda _: None, lambda _: None, lambda: 1000.0)
    targets = [replace(A, deployment_id=str(number)) for number in range(count)]
    run(scheduler, targets, HOUR)
    return [planned - 1000 for target in targets if (planned := scheduler.next_poll(target))]


def test_first_polls_come_within_seconds_and_spread() -> None:
    seconds = first_polls(300)
    assert Counter(map(int, seconds)).keys() == {0, 1, 2}
    assert min(Counter(map(int, seconds)).values()) > 60


def test_first_polls_come_within_an_interval_that_is_shorter() -> None:
    scheduler = Scheduler(lambda _: None, lambda _: None, lambda: 1000.0)
    run(scheduler, [A, B, C], 0.5)
    assert all(1000 <= (scheduler.next_poll(target) or 0) <= 1000.5 for target in (A, B, C))


def test_a_started_scheduler_polls_at_once(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    run(scheduler, [A, B, C], HOUR)
    eventually(lambda: recorder.polls.keys() == {A, B, C})


def test_every_target_is_polled_again_and_again(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    run(scheduler, [A, B, C])
    eventually(lambda: all(recorder.polls[target] >= 3 for target in (A, B, C)))


def test_polls_wait_for_a_thread_and_none_is_lost(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    """All threads are busy when the others fall due; they run once a thread is free."""
    targets = [replace(C, deployment_id=str(number)) for number in range(20)]
    release = recorder.hold(A)
    run(scheduler, [A], threads=1)
    eventually(lambda: recorder.running[A.key])
    run(scheduler, [A, *targets], interval=HOUR, threads=1)
    eventually(lambda: all((scheduler.next_poll(target) or 0) > time.time() + 60 for target in targets))
    assert recorder.polls.keys() == {A}
    release()
    eventually(lambda: all(recorder.polls[target] == 1 for target in targets))
    assert recorder.most_at_once == 1


def test_a_slow_target_is_skipped_and_never_polled_twice_at_once(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    release = recorder.hold(A)
    run(scheduler, [A])
    eventually(lambda: recorder.skips[A] >= 3)
    assert recorder.polls[A] == 1
    release()
    eventually(lambda: recorder.polls[A] >= 3)
    assert recorder.most[A.key] == 1


def test_a_slow_target_delays_nobody_else(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    recorder.hold(A)
    run(scheduler, [A, B])
    eventually(lambda: recorder.running[A.key])
    seen = recorder.polls[B]
    eventually(lambda: recorder.polls[B] >= seen + 3)
    assert recorder.skips[B] == 0


def test_polls_that_come_due_together_are_one_poll_and_the_rest_are_counted(
    recorder: Recorder, eventually: "Eventually"
) -> None:
    """As after a machine that slept: nothing that was due goes without being told."""
    scheduler = Scheduler(recorder.poll, recorder.skipped, lambda: time.time() - 10 * HOUR)
    run(scheduler, [A], HOUR)
    scheduler.start()
    eventually(lambda: recorder.polls[A] and recorder.skips[A])
    scheduler.stop()
    assert recorder.polls[A] == 1
    assert 9 <= recorder.skips[A] <= 10


def test_a_slow_workspace_delays_no_other(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    recorder.hold(A)
    scheduler.retarget([A, ELSEWHERE], SHORT, all_at(SHORT), {"team": 1, "other": 1})
    eventually(lambda: recorder.running[A.key])
    seen = recorder.polls[ELSEWHERE]
    eventually(lambda: recorder.polls[ELSEWHERE] >= seen + 3)


def test_a_poll_that_raises_is_polled_again(eventually: "Eventually") -> None:
    polls: list[Target] = []

    def poll(target: Target) -> None:
        polls.append(target)
        raise RuntimeError("a bug")

    scheduler = Scheduler(poll, lambda _: None, time.time)
    run(scheduler, [A])
    scheduler.start()
    eventually(lambda: len(polls) >= 3)
    scheduler.stop()


# Retargeting


def test_targets_that_stay_keep_their_schedule(scheduler: Scheduler, eventually: "Eventually") -> None:
    run(scheduler, [A, B], HOUR)
    eventually(lambda: (scheduler.next_poll(B) or 0) > time.time() + HOUR / 4)
    before = scheduler.next_poll(B)
    changed = replace(B, options=ModelOptions("summary"))
    run(scheduler, [changed, C], HOUR)
    assert scheduler.next_poll(changed) == before


def test_a_removed_target_is_polled_no_more(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    run(scheduler, [A, B])
    eventually(lambda: recorder.polls[A])
    run(scheduler, [B])
    assert scheduler.next_poll(A) is None
    eventually(lambda: not recorder.running[A.key])
    seen = recorder.polls[A], recorder.polls[B]
    eventually(lambda: recorder.polls[B] >= seen[1] + 3)
    assert recorder.polls[A] == seen[0]


def test_a_target_can_come_back(scheduler: Scheduler, recorder: Recorder, eventually: "Eventually") -> None:
    run(scheduler, [A])
    eventually(lambda: recorder.polls[A])
    run(scheduler, [B])
    eventually(lambda: recorder.polls[B])
    seen = recorder.polls[A]
    run(scheduler, [A])
    eventually(lambda: recorder.polls[A] >= seen + 2)


def test_changed_options_are_used_next_time(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    run(scheduler, [A])
    eventually(lambda: recorder.polls[A])
    changed = replace(A, options=ModelOptions("summary"))
    run(scheduler, [changed])
    eventually(lambda: recorder.polls[changed] >= 2)
    assert recorder.most[A.key] == 1


def test_a_shorter_interval_does_not_wait_out_the_longer_one(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    run(scheduler, [A], HOUR)
    eventually(lambda: recorder.polls[A])
    run(scheduler, [A], SHORT)
    eventually(lambda: recorder.polls[A] >= 3)


def test_a_longer_interval_holds_from_the_next_poll_on(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    run(scheduler, [A], SHORT)
    eventually(lambda: recorder.polls[A])
    run(scheduler, [A], HOUR)
    eventually(lambda: (scheduler.next_poll(A) or 0) > time.time() + HOUR / 4)


def test_more_threads_poll_more_targets_at_once(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    recorder.hold(A, B, C)
    run(scheduler, [A], threads=1)
    eventually(lambda: recorder.running[A.key])
    run(scheduler, [A, B, C], threads=2)
    eventually(lambda: recorder.running.total() == 3)


def test_a_change_of_threads_polls_no_target_twice_at_once(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    """Neither the one in flight nor those that wait for its thread."""
    release = recorder.hold(A, B, C)
    run(scheduler, [A, B, C], threads=1)
    eventually(lambda: recorder.running.total() == 1 and len(recorder.skips) == 3)
    run(scheduler, [A, B, C], threads=3)
    skips = recorder.skips.total()
    eventually(lambda: recorder.skips.total() >= skips + 6)
    release()
    eventually(lambda: all(recorder.polls[target] >= 3 for target in (A, B, C)))
    assert max(recorder.most.values()) == 1


def test_a_change_of_threads_loses_no_target(scheduler: Scheduler) -> None:
    targets = [replace(A, deployment_id=str(number)) for number in range(500)]
    for number in range(20):
        run(scheduler, targets, threads=1 + number % 3)
        assert [target for target in targets if scheduler.next_poll(target) is None] == []


def test_a_workspace_that_goes_is_not_waited_for_and_may_come_back_at_once(
    scheduler: Scheduler, recorder: Recorder, eventually: "Eventually"
) -> None:
    """Its poll in flight then counts, so that it is not joined by a second one."""
    release = recorder.hold(ELSEWHERE)
    both, threads = ([A, ELSEWHERE], SHORT, all_at(SHORT)), {"team": 2, "other": 2}
    scheduler.retarget(*both, threads)
    eventually(lambda: recorder.running[ELSEWHERE.key])
    run(scheduler, [A])
    assert scheduler.next_poll(ELSEWHERE) is None
    assert recorder.running[ELSEWHERE.key] == 1
    scheduler.retarget(*both, threads)
    eventually(lambda: recorder.skips[ELSEWHERE] >= 2)
    release()
    eventually(lambda: recorder.polls[ELSEWHERE] >= 3)
    assert recorder.most[ELSEWHERE.key] == 1


@pytest.mark.parametrize("threads", [2, 3], ids=["same threads", "threads changed meanwhile"])
def test_a_stop_waits_for_polls_in_flight_and_starts_none(
    recorder: Recorder, eventually: "Eventually", threads: int
) -> None:
    scheduler = Scheduler(recorder.poll, recorder.skipped, time.time)
    release = recorder.hold(A)
    run(scheduler, [A, B])
    scheduler.start()
    eventually(lambda: recorder.running[A.key])
    run(scheduler, [A, B], threads=threads)
    stop = threading.Thread(target=scheduler.stop)
    stop.start()
    stop.join(0.3)
    assert stop.is_alive()
    release()
    stop.join()
    assert recorder.running.total() == 0
    assert scheduler.next_poll(A) is None
