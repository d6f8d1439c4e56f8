"""All parts together against a simulated API: the start, being ready, and the stop."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from exporter.app import Exporter
from exporter.config import ConfigError, load
from exporter.logs import Redactor
from exporter.simulator import Simulator, World
from tests.helpers_bench import CHAT, CODE, KEY, Bench

if TYPE_CHECKING:
    from tests.conftest import Eventually


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Simulator(World.demo(), key=KEY, limit=None) as api:
        bench = Bench(tmp_path / "config.yaml", api)
        yield bench
        bench.exporter.close()


def test_a_first_config_that_is_bad_is_an_error(bench: Bench) -> None:
    bench.write(bench.workspace(api_key_env="NOT_SET"))
    with pytest.raises(ConfigError, match="NOT_SET is not set"):
        Exporter(lambda: load(bench.path, bench.environ), Redactor())


def test_all_targets_are_polled_after_the_start(bench: Bench, eventually: "Eventually") -> None:
    bench.exporter.start()
    eventually(bench.store.ready)
    assert [entry.up for entry in bench.entries().values()] == [True]
    assert bench.exporter.stop()


def test_a_stop_lets_polls_in_flight_end(bench: Bench, eventually: "Eventually") -> None:
    bench.api.fail("w5prod01", "stall")
    bench.exporter.start()
    eventually(lambda: bench.api.requests["model_metrics", 0])
    assert bench.exporter.stop()
    assert [entry.reason for entry in bench.entries().values()] == ["timeout"]


def test_a_stop_does_not_wait_for_polls_that_wait_for_their_turn(
    bench: Bench, eventually: "Eventually"
) -> None:
    """At one request in 100 seconds the second request of the poll is far away."""
    bench.reload(bench.workspace(requests_per_second=0.01))
    bench.exporter.start()
    eventually(lambda: bench.api.requests["model_metrics", 200])
    began = time.monotonic()
    assert bench.exporter.stop()
    assert time.monotonic() - began < 1.4
    assert [entry.up for entry in bench.entries().values()] == [None]


def test_ready_once_is_ready_for_good(bench: Bench) -> None:
    assert not bench.exporter.ready()
    bench.poll_all()
    assert bench.exporter.ready()
    bench.reload(bench.workspace(models=f"{CHAT}, {CODE}"))
    assert not bench.exporter.store.ready(), "a new target has not been polled"
    assert bench.exporter.ready()
