"""The throttle spaces requests evenly, and keeps away for as long as a 429 asks, within reason."""

import pytest

from exporter.baseten.errors import EndpointPaused
from exporter.baseten.throttle import Throttle


class Clock:
    """A monotonic clock that moves when told."""

    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def throttle(clock: Clock) -> Throttle:
    return Throttle("model_metrics", rate=4, clock=clock)


def test_the_first_request_goes_out_at_once(throttle: Throttle) -> None:
    assert throttle.reserve() == 0


def test_requests_at_once_are_spaced_by_the_rate(throttle: Throttle) -> None:
    assert [throttle.reserve() for _ in range(4)] == [0, 0.25, 0.5, 0.75]


def test_another_rate_holds_from_the_next_turn_on(throttle: Throttle) -> None:
    assert [throttle.reserve() for _ in range(3)] == [0, 0.25, 0.5]
    throttle.rate = 2
    assert [throttle.reserve() for _ in range(3)] == [0.75, 1.25, 1.75]


def test_requests_slower_than_the_rate_never_wait(throttle: Throttle, clock: Clock) -> None:
    for _ in range(3):
        assert throttle.reserve() == 0
        clock.now += 0.25


def test_an_idle_time_saves_up_no_burst(throttle: Throttle, clock: Clock) -> None:
    clock.now += 3600
    assert [throttle.reserve() for _ in range(3)] == [0, 0.25, 0.5]


def test_time_that_passes_shortens_the_wait(throttle: Throttle, clock: Clock) -> None:
    assert throttle.reserve() == 0
    clock.now += 0.0625
    assert throttle.reserve() == 0.1875


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        pytest.param(37, 37, id="as asked"),
        pytest.param(0.5, 0.5, id="a fraction"),
        pytest.param(None, 10, id="not said: ten seconds"),
        pytest.param(300, 300, id="five minutes"),
        pytest.param(301, 300, id="never more than five minutes"),
        pytest.param(float("inf"), 300, id="for ever is five minutes"),
    ],
)
def test_a_pause_lasts_within_reason(
    throttle: Throttle, clock: Clock, asked: float | None, seconds: float
) -> None:
    throttle.pause(asked)
    with pytest.raises(EndpointPaused) as caught:
        throttle.reserve()
    assert caught.value.seconds == seconds
    assert str(caught.value) == f"model_metrics is paused for {seconds:.0f} s after a 429"
    clock.now += seconds
    assert throttle.reserve() == 0


@pytest.mark.parametrize("asked", [0, -5], ids=["no time", "a time in the past"])
def test_a_pause_of_no_time_is_none(throttle: Throttle, asked: float) -> None:
    throttle.pause(asked)
    assert throttle.reserve() == 0


def test_a_shorter_pause_does_not_end_a_longer_one(throttle: Throttle, clock: Clock) -> None:
    throttle.pause(60)
    throttle.pause(1)
    clock.now += 59
    with pytest.raises(EndpointPaused):
        throttle.reserve()


def test_a_refused_request_takes_no_token(throttle: Throttle, clock: Clock) -> None:
    throttle.pause(1)
    for _ in range(3):
        with pytest.raises(EndpointPaused):
            throttle.reserve()
    clock.now += 1
    assert [throttle.reserve(), throttle.reserve()] == [0, 0.25]
