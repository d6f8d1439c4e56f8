"""The circuit: what opens it, what closes it, and what passes meanwhile."""

from collections.abc import Callable

import pytest

from exporter.baseten.circuit import THRESHOLD, Circuit
from exporter.baseten.errors import REASONS, ApiError, CircuitOpen, Reason
from tests.conftest import Clock

INTERVAL = 60.0


class Bench:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.circuit = Circuit("team", INTERVAL, clock)

    def fail(self, *reasons: Reason, times: int = 1) -> None:
        for reason in reasons * times:
            self.circuit.failed(ApiError(reason, "no"))

    def open(self) -> None:
        self.fail("connection", times=THRESHOLD)

    def passes(self) -> bool:
        try:
            self.circuit.enter()
        except CircuitOpen:
            return False
        return True


@pytest.fixture
def bench(clock: Clock) -> Bench:
    return Bench(clock)


def test_failures_in_a_row_open_it(bench: Bench) -> None:
    bench.fail("connection", times=THRESHOLD - 1)
    assert bench.passes()
    bench.fail("connection")
    assert not bench.passes()


@pytest.mark.parametrize("reason", REASONS)
def test_what_the_failures_are(bench: Bench, reason: Reason) -> None:
    bench.fail(reason, times=THRESHOLD)
    assert (bench.circuit.outage is not None) is (reason in ("connection", "tls", "auth"))


def test_failures_of_different_kinds_add_up(bench: Bench) -> None:
    bench.fail("connection", "tls", "auth", "timeout", "connection", "auth")
    assert not bench.passes()


RESETS: dict[str, Callable[[Bench], None]] = {
    "an answer": lambda bench: bench.circuit.succeeded(),
    "an answer that is a refusal": lambda bench: bench.fail("not_found"),
    "an answer that is none of the API's": lambda bench: bench.fail("invalid_response"),
}


@pytest.mark.parametrize("reset", RESETS.values(), ids=RESETS)
def test_an_answer_in_between_starts_the_count_anew(bench: Bench, reset: Callable[[Bench], None]) -> None:
    bench.fail("connection", times=THRESHOLD - 1)
    reset(bench)
    bench.fail("connection", times=THRESHOLD - 1)
    assert bench.passes()


@pytest.mark.parametrize("reset", RESETS.values(), ids=RESETS)
def test_an_answer_closes_it(bench: Bench, reset: Callable[[Bench], None]) -> None:
    bench.open()
    reset(bench)
    assert bench.passes()


def test_a_timeout_leaves_it_open(bench: Bench) -> None:
    bench.open()
    bench.fail("timeout")
    assert not bench.passes()


def test_one_probe_passes_per_interval(bench: Bench, clock: Clock) -> None:
    bench.open()
    passed = []
    for _ in range(6):
        clock.now += INTERVAL / 2
        passed.append([bench.passes(), bench.passes()])
    assert passed == [[False, False], [True, False]] * 3


def test_a_probe_at_once_when_something_changed_on_our_side(bench: Bench) -> None:
    bench.circuit.probe_now()  # means nothing while it is closed
    bench.open()
    bench.circuit.probe_now()
    assert [bench.passes(), bench.passes()] == [True, False]


def test_an_outage_tells_the_last_failure_and_when_it_began(bench: Bench, clock: Clock) -> None:
    bench.open()
    began = clock.now
    clock.now += 90
    bench.circuit.failed(ApiError("auth", "no such key"))
    outage = bench.circuit.outage
    assert outage is not None
    assert (outage.error.reason, str(outage.error)) == ("auth", "no such key")
    assert (outage.since, outage.next_probe) == (began, began + INTERVAL)


def test_opening_and_closing_is_one_log_line_each(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for _ in range(2):
        bench.open()
    bench.circuit.succeeded()
    bench.circuit.succeeded()
    assert [(record.levelname, vars(record)["workspace"]) for record in caplog.records] == [
        ("WARNING", "team"),
        ("INFO", "team"),
    ]
