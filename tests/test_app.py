"""All parts together against a simulated API: what a reload changes, and what it leaves alone."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import generate_latest

from exporter.app import Exporter
from exporter.config import ConfigError, load
from exporter.logs import Redactor
from exporter.simulator import Simulator, World
from exporter.store import Entry

if TYPE_CHECKING:
    from tests.conftest import Eventually

KEY = "simulator-key"
CHAT = "{model_id: q7chat32, deployment_id: w5prod01}"
CODE = "{model_id: c0der480, deployment_id: w6prod02}"
TRAINER = "{deployment_id: tr2x4sft}"
POLL = "{interval: 500ms, timeout: 500ms, concurrency: 4, stale_after: 1h}"


@pytest.fixture
def api() -> Iterator[Simulator]:
    with Simulator(World.demo(), key=KEY, limit=None) as simulator:
        yield simulator


class Bench:
    """A config file, and an exporter that reads it."""

    def __init__(self, path: Path, api: Simulator) -> None:
        self.path = path
        self.api = api
        self.environ = {"KEY": KEY, "OTHER_KEY": KEY, "WRONG_KEY": "wrong"}
        self.redactor = Redactor()
        self.write(self.workspace())
        self.exporter = Exporter(lambda: load(path, self.environ), self.redactor)

    def workspace(self, name: str = "team", *, models: str = CHAT, loops: str = "", **more: object) -> str:
        keys = {
            "api_key_env": "KEY",
            "api_url": self.api.url,
            "requests_per_second": 100,
            "metadata_labels": [],
            **more,
        }
        lines = [f"    {key}: {value}" for key, value in keys.items()]
        return "\n".join(
            [f"  - name: {name}", *lines, f"    models: [{models}]", f"    loops: [{loops}]", ""]
        )

    def write(self, *workspaces: str, poll: str = POLL) -> None:
        self.path.write_text(f"poll: {poll}\nworkspaces:\n{''.join(workspaces)}")

    def reload(self, *workspaces: str, poll: str = POLL) -> None:
        self.write(*workspaces, poll=poll)
        self.exporter.reload()

    def poll_all(self) -> None:
        for target in self.exporter.targets:
            self.exporter.poller.poll(target)

    def entries(self) -> dict[str, Entry]:
        return {str(entry.target): entry for entry in self.exporter.store.view()[1]}

    def next_polls(self) -> dict[str, float | None]:
        return {str(target): self.exporter.scheduler.next_poll(target) for target in self.exporter.targets}

    def gauge(self, name: str) -> float | None:
        return self.exporter.telemetry.registry.get_sample_value(f"baseten_exporter_{name}")


@pytest.fixture
def bench(tmp_path: Path, api: Simulator) -> Iterator[Bench]:
    bench = Bench(tmp_path / "config.yaml", api)
    yield bench
    bench.exporter.close()


@pytest.fixture
def started(bench: Bench) -> Iterator[Bench]:
    bench.exporter.start()
    yield bench
    assert bench.exporter.stop()


# Reload


def test_a_reload_adds_removes_and_keeps_targets(bench: Bench) -> None:
    bench.reload(bench.workspace(models=f"{CHAT}, {CODE}"))
    bench.poll_all()
    before, planned = bench.entries(), bench.next_polls()
    bench.reload(bench.workspace(models=CHAT, loops=TRAINER))
    chat, trainer = "team/model/q7chat32/w5prod01", "team/loops/tr2x4sft"
    assert list(bench.entries()) == [chat, trainer]
    assert bench.entries()[chat] == before[chat]
    assert bench.next_polls()[chat] == planned[chat]
    assert bench.entries()[trainer].up is None
    assert (bench.next_polls()[trainer] or 0) < time.time() + 4


def test_changed_options_keep_the_snapshot_and_the_schedule(bench: Bench) -> None:
    bench.poll_all()
    (before,), planned = bench.entries().values(), bench.next_polls()
    bench.reload(bench.workspace(models=CHAT.replace("}", ", mode: current}")))
    (after,) = bench.entries().values()
    assert (after.snapshot, after.up) == (before.snapshot, True)
    assert after.target != before.target
    assert bench.next_polls() == planned
    bench.poll_all()
    assert [str(entry.up) for entry in bench.entries().values()] == ["True"]


def test_a_bad_file_changes_nothing_and_the_gauges_say_so(bench: Bench) -> None:
    bench.poll_all()
    before = bench.entries(), bench.next_polls(), bench.exporter.poller.apis
    loaded = bench.gauge("config_last_reload_success_timestamp_seconds")
    assert bench.gauge("config_last_reload_successful") == 1
    with pytest.raises(ConfigError):
        bench.reload(bench.workspace(models=CODE, api_key_env="NOT_SET"))
    assert (bench.entries(), bench.next_polls(), bench.exporter.poller.apis) == before
    assert bench.gauge("config_last_reload_successful") == 0
    assert bench.gauge("config_last_reload_success_timestamp_seconds") == loaded
    bench.reload(bench.workspace())
    assert bench.gauge("config_last_reload_successful") == 1


def test_a_first_config_that_is_bad_is_an_error(bench: Bench) -> None:
    bench.write(bench.workspace(api_key_env="NOT_SET"))
    with pytest.raises(ConfigError, match="NOT_SET is not set"):
        Exporter(lambda: load(bench.path, bench.environ), Redactor())


# Clients


@pytest.mark.parametrize(
    "change",
    [
        lambda bench: bench.workspace(api_key_env="OTHER_KEY"),
        lambda bench: bench.workspace(api_url=f"{bench.api.url}/elsewhere"),
        lambda bench: bench.workspace(requests_per_second=50),
    ],
    ids=["key", "url", "rate"],
)
def test_another_way_to_connect_makes_a_new_client_and_closes_the_old_one(
    bench: Bench, change: Callable[[Bench], str]
) -> None:
    bench.poll_all()
    names, close = bench.exporter.poller.apis["team"].names, bench.exporter.poller.apis["team"].client.close
    bench.reload(change(bench))
    assert not close.alive
    assert bench.exporter.poller.apis["team"].client.close.alive
    assert bench.exporter.poller.apis["team"].names is names


def test_the_same_way_to_connect_keeps_the_client(bench: Bench) -> None:
    client = bench.exporter.poller.apis["team"].client
    bench.reload(bench.workspace(models=CODE))
    assert bench.exporter.poller.apis["team"].client is client


def test_a_workspace_that_went_closes_its_client(bench: Bench) -> None:
    close = bench.exporter.poller.apis["team"].client.close
    bench.reload(bench.workspace("other"))
    assert not close.alive


def test_a_new_key_is_used_and_kept_out_of_the_log(bench: Bench) -> None:
    bench.reload(bench.workspace(api_key_env="WRONG_KEY"))
    bench.poll_all()
    assert [entry.reason for entry in bench.entries().values()] == ["auth"]
    bench.reload(bench.workspace())
    bench.poll_all()
    assert [entry.up for entry in bench.entries().values()] == [True]
    assert bench.redactor.redact(f"{KEY} wrong") == "<redacted> <redacted>"


def test_a_workspace_that_went_leaves_no_self_metrics_though_its_poll_was_in_flight(
    started: Bench, eventually: "Eventually"
) -> None:
    started.api.fail("tr2x4sft", "stall")
    started.reload(started.workspace(), started.workspace("going", models="", loops=TRAINER))
    eventually(lambda: started.api.requests["loops_metrics", 0])
    started.reload(started.workspace())
    assert b'workspace="going"' not in generate_latest(started.exporter.telemetry.registry)
    assert list(started.entries()) == ["team/model/q7chat32/w5prod01"]


# Running


def test_all_targets_are_polled_after_the_start(started: Bench, eventually: "Eventually") -> None:
    eventually(started.exporter.store.ready)
    assert [entry.up for entry in started.entries().values()] == [True]


def test_a_reload_takes_hold_while_it_runs(started: Bench, eventually: "Eventually") -> None:
    eventually(started.exporter.store.ready)
    started.reload(started.workspace(models=CODE, loops=TRAINER))
    eventually(started.exporter.store.ready)
    assert {name: entry.up for name, entry in started.entries().items()} == {
        "team/model/c0der480/w6prod02": True,
        "team/loops/tr2x4sft": True,
    }


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_200_reloads_leak_no_threads_and_no_files(started: Bench, eventually: "Eventually") -> None:
    eventually(started.exporter.store.ready)
    threads, files = threading.active_count(), open_files()
    for number in range(200):
        odd, tenth = number % 2, number % 10 == 0
        workspaces = [started.workspace(models=f"{CHAT}, {CODE}" if odd else CHAT)]
        workspaces += [started.workspace("other", loops=TRAINER)] if tenth else []
        started.reload(*workspaces, poll=POLL.replace("4", "8") if tenth else POLL)
    eventually(lambda: threading.active_count() <= threads + 8)
    eventually(lambda: open_files() <= files + 8)


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
