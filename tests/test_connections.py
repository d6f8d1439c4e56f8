"""Connections: each is one request's alone, the one used last comes first, and idle ones are closed."""

from collections.abc import Iterator

import httpx
import pytest

from exporter.baseten.connections import Connections
from exporter.baseten.deadline import Deadline
from tests.conftest import Clock


@pytest.fixture
def connections(clock: Clock) -> Iterator[Connections]:
    connections = Connections(httpx.URL("http://api.test"), None, Deadline(), clock)
    yield connections
    connections.close()


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[httpx.HTTPTransport]:
    """Those that were closed, in order."""
    closed: list[httpx.HTTPTransport] = []

    def close(self: httpx.HTTPTransport) -> None:
        closed.append(self)

    monkeypatch.setattr(httpx.HTTPTransport, "close", close)
    return closed


def test_requests_at_the_same_time_have_a_connection_each(connections: Connections) -> None:
    with connections.one() as one, connections.one() as other:
        assert one is not other


def test_the_one_used_last_comes_first(connections: Connections) -> None:
    with connections.one() as first:
        with connections.one() as second:
            pass
        with connections.one() as again:
            assert again is second
    with connections.one() as last:
        assert last is first


def test_a_request_that_fails_gives_its_connection_back(connections: Connections) -> None:
    with pytest.raises(OSError, match="broken"), connections.one() as first:
        raise OSError("broken")
    with connections.one() as again:
        assert again is first


def test_those_nobody_needed_for_a_while_are_closed(
    connections: Connections, clock: Clock, closed: list[httpx.HTTPTransport]
) -> None:
    with connections.one() as rare:
        with connections.one() as often:
            pass
        clock.now += 1
    for _ in range(2):
        clock.now += 9
        with connections.one() as used:
            pass
    assert used is rare
    assert closed == [often]


def test_after_the_close_one_under_way_is_closed_when_it_ends(
    connections: Connections, closed: list[httpx.HTTPTransport]
) -> None:
    with connections.one() as under_way:
        with connections.one() as idle:
            pass
        connections.close()
        assert closed == [idle]
    assert closed == [idle, under_way]
