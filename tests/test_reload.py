"""What a reload changes, what it leaves alone, and that nothing is left behind."""

import gc
import json
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from exporter.baseten.client import Client
from exporter.config import load
from exporter.polling.discovery import Discovery
from exporter.simulator import Fault, Simulator, World
from exporter.simulator.api import Request
from exporter.simulator.faults import slow
from tests.helpers_bench import CHAT, CODE, KEY, POLL, TRAINER, Bench, Process, config, listen, workspace

if TYPE_CHECKING:
    from tests.conftest import Eventually

CHAT_NAME, CODE_NAME = "team/model/q7chat32/w5prod01", "team/model/c0der480/w6prod02"
TRAINER_NAME = "team/loops/tr2x4sft"
CHANGED = CHAT.replace("}", ", metrics: [baseten_replicas_active]}")
PATIENT = "{interval: 10s, timeout: 10s, concurrency: 4, stale_after: 1h}"
"""Here a poll that stalls does so for as long as a test takes."""

MISTAKES = {"models": CHAT.replace("model_id", "modle_id"), "api_key_env": "NOT_SET", "colour": "blue"}
WRONG = (
    "workspaces[0].colour: unknown key",
    "workspaces[0].models[0].modle_id: unknown key, did you mean model_id?",
    "workspaces[0].models[0].model_id: is missing",
    "workspaces[0].api_key_env: environment variable NOT_SET is not set",
)
"""What is to be said of the mistakes, all of it at once."""


@pytest.fixture
def api() -> Iterator[Simulator]:
    with Simulator(World.demo(), key=KEY, limit=None) as simulator:
        yield simulator


@pytest.fixture
def bench(tmp_path: Path, api: Simulator) -> Iterator[Bench]:
    bench = Bench(tmp_path / "config.yaml", api)
    yield bench
    bench.exporter.close()


@pytest.fixture
def started(bench: Bench, eventually: "Eventually") -> Iterator[Bench]:
    bench.exporter.start()
    eventually(bench.store.ready)
    yield bench
    bench.api.heal()
    bench.api.__exit__(None, None, None)  # ends what stalls
    assert bench.exporter.stop()


# What it changes


def test_a_reload_adds_removes_and_keeps_targets(bench: Bench) -> None:
    bench.reload(bench.workspace(models=f"{CHAT}, {CODE}"))
    bench.poll_all()
    before, planned, polls = bench.entries(), bench.next_polls(), bench.counted("polls")
    bench.reload(bench.workspace(models=CHAT, loops=TRAINER))
    assert list(bench.entries()) == [CHAT_NAME, TRAINER_NAME]
    assert bench.entries()[CHAT_NAME] == before[CHAT_NAME]
    assert bench.next_polls()[CHAT_NAME] == planned[CHAT_NAME]
    assert bench.entries()[TRAINER_NAME].up is None
    assert (bench.next_polls()[TRAINER_NAME] or 0) < time.time() + 4
    assert (bench.counted("polls"), polls["team", "model"]) == (polls, 2)


def test_what_was_removed_is_off_every_page_at_once(bench: Bench) -> None:
    bench.reload(bench.workspace(), bench.workspace("going", models=CODE, loops=TRAINER))
    bench.poll_all()
    traces = ("going", "w6prod02", "tr2x4sft")
    assert [trace for trace in traces if trace in bench.pages()] == list(traces)
    bench.reload(bench.workspace())
    assert [trace for trace in traces if trace in bench.pages()] == []
    assert "w5prod01" in bench.pages()


def test_changed_options_keep_the_snapshot_and_the_schedule(bench: Bench) -> None:
    bench.poll_all()
    (before,), planned = bench.entries().values(), bench.next_polls()
    bench.reload(bench.workspace(models=CHANGED))
    (after,) = bench.entries().values()
    assert (after.snapshot, after.up) == (before.snapshot, True)
    assert after.target != before.target
    assert bench.next_polls() == planned


def test_changed_options_apply_at_the_next_poll(bench: Bench) -> None:
    asked = listen(bench.api)
    bench.poll_all()
    assert not any(is_changed(each) for each in asked)
    bench.reload(bench.workspace(models=CHANGED))
    already = len(asked)
    bench.poll_all()
    assert [is_changed(each) for each in asked[already:]] == [True]


def is_changed(request: Request) -> bool:
    """Whether this is the question that the changed options lead to."""
    return request.target.count("metrics=") == 1


def test_a_bad_file_changes_nothing_and_all_its_errors_are_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.poll_all()
    before = bench.entries(), bench.next_polls(), bench.exporter.poller.apis, bench.counted("polls")
    loaded = bench.own("config_last_reload_success_timestamp_seconds")
    assert bench.own("config_last_reload_successful") == 1
    bench.write(bench.workspace(**MISTAKES))
    answer = bench.ask("POST", "/-/reload")
    assert answer.status_code == 500
    (record,) = (each for each in caplog.records if each.levelno >= logging.ERROR)
    for told in (answer.text, record.__dict__["problems"]):
        assert [wrong for wrong in WRONG if wrong not in told] == []
    assert (
        *(bench.entries(), bench.next_polls(), bench.exporter.poller.apis),
        bench.counted("polls"),
    ) == before
    assert bench.own("config_last_reload_successful") == 0
    assert bench.own("config_last_reload_success_timestamp_seconds") == loaded
    bench.write(bench.workspace())
    assert bench.ask("POST", "/-/reload").status_code == 200
    assert bench.own("config_last_reload_successful") == 1


# Clients


def test_a_new_ca_under_the_same_path_is_trusted(tmp_path: Path, bench: Bench) -> None:
    text = bench.workspace(ca_file=tmp_path / "ca.pem")
    clients = []
    for authority in (trustme.CA(), trustme.CA()):
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        for _ in range(2):
            bench.reload(text)
            clients.append(bench.exporter.poller.apis["team"].client)
    assert clients[0] is clients[1]
    assert clients[1] is not clients[2]
    assert clients[2] is clients[3]


@pytest.mark.parametrize(
    ("keys", "left_alone"),
    [
        pytest.param({"requests_per_second": "50"}, True, id="the same API"),
        pytest.param({"api_url": "{url}/"}, True, id="the same API, written otherwise"),
        pytest.param({"api_url": "{url}/other"}, False, id="another API"),
    ],
)
def test_a_pause_that_the_api_asked_for_outlives_the_client(
    bench: Bench, keys: Mapping[str, str], *, left_alone: bool
) -> None:
    bench.api.fail("/metrics", "429 body", times=1)
    bench.poll_all()
    before = bench.exporter.poller.apis["team"].client
    bench.reload(bench.workspace(**{key: str(each).format(url=bench.api.url) for key, each in keys.items()}))
    bench.poll_all()
    assert bench.counted("polls_skipped")["team", "model", "paused"] == left_alone
    client = bench.exporter.poller.apis["team"].client
    assert (client is before) == ("/" in str(keys) and left_alone)
    assert client.throttles["model_metrics"].rate == float(keys.get("requests_per_second", "100"))


@pytest.mark.parametrize(
    ("keys", "poll"),
    [
        pytest.param({"api_key_env": "OTHER_KEY"}, POLL, id="key"),
        pytest.param({"api_url": "http://127.0.0.1:1/elsewhere"}, POLL, id="url"),
        pytest.param({"requests_per_second": 50}, POLL, id="rate"),
        pytest.param({}, POLL.replace("timeout: 500ms", "timeout: 400ms"), id="timeout"),
    ],
)
def test_another_way_to_connect_makes_a_new_client_and_closes_the_old_one(
    bench: Bench, keys: Mapping[str, object], poll: str
) -> None:
    bench.poll_all()
    names, close = bench.exporter.poller.apis["team"].names, bench.exporter.poller.apis["team"].client.close
    bench.reload(bench.workspace(**keys), poll=poll)
    assert not close.alive
    assert bench.exporter.poller.apis["team"].client.close.alive
    assert bench.exporter.poller.apis["team"].names is names


def test_the_same_way_to_connect_keeps_the_client(bench: Bench) -> None:
    client = bench.exporter.poller.apis["team"].client
    bench.reload(bench.workspace(models=CODE), poll=POLL.replace("concurrency: 4", "concurrency: 5"))
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


def test_a_circuit_that_was_open_is_closed_for_a_new_way_to_connect(bench: Bench) -> None:
    bench.reload(bench.workspace(api_key_env="WRONG_KEY"))
    for _ in range(6):
        bench.poll_all()
    assert bench.own("workspace_circuit_open", workspace="team") == 1
    bench.reload(bench.workspace())
    assert bench.own("workspace_circuit_open", workspace="team") == 0
    bench.poll_all()
    assert [entry.up for entry in bench.entries().values()] == [True]


# While something is under way


def test_a_reload_takes_hold_while_it_runs(started: Bench, eventually: "Eventually") -> None:
    started.reload(started.workspace(models=CODE, loops=TRAINER))
    eventually(started.store.ready)
    assert {name: entry.up for name, entry in started.entries().items()} == {
        CODE_NAME: True,
        TRAINER_NAME: True,
    }


def test_a_reload_does_not_wait_for_polls_in_flight(started: Bench, eventually: "Eventually") -> None:
    started.api.fail("tr2x4sft", "stall")
    started.reload(started.workspace(), started.workspace("going", models="", loops=TRAINER), poll=PATIENT)
    eventually(lambda: started.api.requests["loops_metrics", 0])
    began = time.monotonic()
    started.reload(started.workspace(models=f"{CHAT}, {CODE}"), poll=PATIENT)
    started.pages()
    assert time.monotonic() - began < 5
    eventually(started.store.ready)


@pytest.mark.parametrize("fault", [slow(0.4), "stall"], ids=["that answers", "that times out"])
def test_a_workspace_that_went_leaves_no_trace_though_its_poll_was_in_flight(
    started: Bench, eventually: "Eventually", fault: str | Fault
) -> None:
    started.api.fail("tr2x4sft", fault)
    started.reload(started.workspace(), started.workspace("going", models="", loops=TRAINER))
    eventually(lambda: started.api.requests["loops_metrics", 0 if fault == "stall" else 200])
    assert "going" in started.pages()
    started.reload(started.workspace())
    for _ in range(2):
        assert "going" not in started.pages()
        assert list(started.entries()) == [CHAT_NAME]
        eventually(lambda: not polls_in_flight(started, "going"))


def polls_in_flight(bench: Bench, name: str) -> int:
    pool = bench.exporter.scheduler._pools.get(name)
    return sum(pool._instances.values()) if pool else 0


def test_a_target_changed_during_its_poll_is_polled_with_its_new_options_next(
    started: Bench, eventually: "Eventually"
) -> None:
    """And never twice at once, though the client is a new one."""
    started.api.fail("w5prod01", slow(0.2))
    asked = listen(started.api)
    eventually(lambda: asked)
    started.reload(started.workspace(models=CHANGED, requests_per_second=50))
    eventually(lambda: is_changed(asked[-1]))
    seen = [is_changed(each) for each in asked]
    assert seen == sorted(seen), "no question of the poll before came after one of the next"
    assert not seen[0]


def test_a_listing_that_stalls_changes_nothing_once_it_is_replaced(
    started: Bench, eventually: "Eventually"
) -> None:
    started.api.fail("/v1/models$", slow(1.0), times=1)
    started.reload(started.workspace(models="", discovery="{models: {}}"), poll=PATIENT)
    eventually(lambda: discovering(started) == 1)
    started.reload(started.workspace(models="", discovery="{models: {include: ['^nothing$']}}"), poll=PATIENT)
    eventually(lambda: started.exporter.discoveries["team"].attempted)
    eventually(lambda: discovering(started) == 1)
    assert started.exporter.targets == ()
    assert started.own("discovered_targets", workspace="team", kind="model") == 0


def test_a_listing_that_stalls_goes_on_if_nothing_of_it_changes(
    started: Bench, eventually: "Eventually"
) -> None:
    started.api.fail("/v1/loops/deployments$", slow(1.0), times=1)
    keys = {"models": CHAT, "discovery": "{loops: {}}"}
    started.reload(started.workspace(**keys), poll=PATIENT)
    (discovery,) = started.exporter.discoveries.values()
    longer = PATIENT.replace("stale_after: 1h", "stale_after: 2h")
    started.reload(started.workspace(**keys), poll=longer)
    assert discovery.last_listed is None
    assert started.exporter.discoveries == {"team": discovery}
    eventually(lambda: discovery.last_listed)
    assert {CHAT_NAME, TRAINER_NAME} <= set(started.entries())


def discovering(bench: Bench) -> int:
    return sum(1 for thread in threading.enumerate() if thread.name.startswith("discovery "))


def test_of_reloads_at_the_same_time_the_file_read_last_wins(started: Bench) -> None:
    """And all parts fit that one file."""
    choices = [
        config(started.workspace(models=models, loops=loops), poll=POLL.replace("4", str(threads)))
        for threads, (models, loops) in enumerate([(CHAT, ""), (CODE, ""), (CHAT, TRAINER), ("", TRAINER)], 1)
    ]
    barrier = threading.Barrier(len(choices))

    def reload(text: str) -> None:
        barrier.wait()
        new = started.path.with_suffix(f".{threading.get_ident()}")
        for _ in range(5):
            new.write_text(text)
            new.replace(started.path)
            started.exporter.reload()

    with ThreadPoolExecutor(len(choices)) as pool:
        list(pool.map(reload, choices))
    expected = load(started.path, started.environ)
    assert started.exporter.config.targets == expected.targets == started.exporter.targets
    assert list(started.entries()) == [str(target) for target in expected.targets]
    assert None not in started.next_polls().values()
    assert jobs(started) == len(expected.targets)
    assert started.exporter.config.poll == expected.poll


def test_reloads_at_the_same_time_as_scrapes_and_polls_disturb_neither(started: Bench) -> None:
    done = threading.Event()
    odd: list[str] = []

    def scrape() -> None:
        while not done.is_set():
            for path in ("/metrics", "/api/v1/targets", "/"):
                answer = started.ask("GET", path)
                if answer.status_code != 200 or "w5prod01" not in answer.text:
                    odd.append(path)

    scraper = threading.Thread(target=scrape)
    scraper.start()
    for number in range(20):
        names = ("other", "third") if number % 2 else ("other",)
        others = (started.workspace(name, models=CODE) for name in names)
        started.reload(started.workspace(loops=TRAINER if number % 2 else ""), *others)
    done.set()
    scraper.join()
    assert odd == []


# A thousand times


class Belongings(Counter[str]):
    """What an exporter holds on to."""

    @classmethod
    def of(cls, bench: Bench) -> "Belongings":
        gc.collect()
        kinds = (Client, Discovery, ThreadPoolExecutor, threading.Thread)
        held = cls(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds))
        held["threads"] = threading.active_count()
        held["sockets"] = sockets()
        held["files"] = len(list(Path("/proc/self/fd").iterdir()))
        held["connections"] = len(bench.api._server._open)
        held["jobs"] = jobs(bench)
        held["executors"] = len(bench.exporter.scheduler._scheduler._executors)
        samples = [sample for metric in bench.registry.collect() for sample in metric.samples]
        held["workspaces"] = len({sample.labels.get("workspace") for sample in samples})
        return held


IDLE: Counter[str] = Counter(sockets=2, files=2, connections=2, Thread=4, threads=4)
"""What may be there or not, as polls come and go: threads of the pool, and their connections."""


def sockets() -> int:
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            count += str(each.readlink()).startswith("socket:")
    return count


def jobs(bench: Bench) -> int:
    return len(bench.exporter.scheduler._scheduler.get_jobs())


def test_1000_reloads_leave_nothing_behind(tmp_path: Path, started: Bench, eventually: "Eventually") -> None:
    """They differ in targets, workspaces, threads, timeout (so in clients) and discovery."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    trust = {"ca_file": tmp_path / "ca.pem"}  # one authority is read faster than all there are
    other_poll = POLL.replace("timeout: 500ms, concurrency: 4", "timeout: 400ms, concurrency: 2")
    found = "{loops: {include: ['^nothing$']}}"
    even = config(started.workspace(models=CHAT, **trust))
    odd = config(
        started.workspace(models=f"{CHAT}, {CODE}", discovery=found, **trust),
        started.workspace("other", models="", loops=TRAINER, **trust),
        poll=other_poll,
    )

    def reload(text: str) -> None:
        started.path.write_text(text)
        started.exporter.reload()

    def settled() -> Belongings:
        reload(even)
        eventually(lambda: not discovering(started))
        eventually(lambda: started.store.ready() and not polls_in_flight(started, "other"))
        return Belongings.of(started)

    reload(odd)
    eventually(started.store.ready)
    before = settled()
    for number in range(1000):
        reload(even if number % 2 else odd)
    eventually(lambda: not settled() - before - IDLE)
    assert {name: entry.up for name, entry in started.entries().items()} == {CHAT_NAME: True}


# Real processes, with a ConfigMap as Kubernetes mounts one


class ConfigMap:
    """A folder whose content is swapped as a whole, by a link."""

    def __init__(self, folder: Path, text: str) -> None:
        self._folder = folder
        self._version = 0
        self.update(text)
        (folder / "config.yaml").symlink_to("..data/config.yaml")

    @property
    def file(self) -> Path:
        return self._folder / "config.yaml"

    def update(self, text: str) -> None:
        self._version += 1
        version = self._folder / f"..version_{self._version}"
        version.mkdir()
        (version / "config.yaml").write_text(text)
        old = (self._folder / "..data").resolve()
        (self._folder / "..data_tmp").symlink_to(version.name)
        (self._folder / "..data_tmp").replace(self._folder / "..data")
        if old.name.startswith("..version"):
            (old / "config.yaml").unlink()
            old.rmdir()


MakeProcess = Callable[..., tuple[Process, ConfigMap]]


@pytest.fixture
def process_of(tmp_path: Path, api: Simulator, eventually: "Eventually") -> Iterator[MakeProcess]:
    with ExitStack() as stack:

        def start(*flags: str) -> tuple[Process, ConfigMap]:
            files = ConfigMap(tmp_path, config(workspace(api.url)))
            process = stack.enter_context(Process(files.file, *flags, KEY=KEY))
            eventually(process.ready)
            return process, files

        yield start


def test_sighup_takes_a_swapped_config_map_and_post_is_refused_unless_enabled(
    process_of: MakeProcess, api: Simulator, eventually: "Eventually"
) -> None:
    process, files = process_of()
    assert process.targets() == {"w5prod01": "up"}
    files.update(config(workspace(api.url, models=CODE)))
    assert process.ask("POST", "/-/reload").status_code == 403
    assert process.targets() == {"w5prod01": "up"}
    process.send(signal.SIGHUP)
    eventually(lambda: process.targets() == {"w6prod02": "up"})
    files.update("[]")
    process.send(signal.SIGHUP)
    eventually(lambda: "config_last_reload_successful 0.0" in process.ask("GET", "/metrics").text)
    assert process.targets() == {"w6prod02": "up"}
    assert "a mapping (key: value) belongs" in process.output()
    process.end()


def test_post_takes_a_swapped_config_map_and_answers_with_all_that_is_wrong(
    process_of: MakeProcess, api: Simulator, eventually: "Eventually"
) -> None:
    process, files = process_of("--web.enable-lifecycle", "--log.format=json")
    files.update(config(workspace(api.url, models=CODE)))
    assert process.ask("POST", "/-/reload").text == "reloaded\n"
    eventually(lambda: process.targets() == {"w6prod02": "up"})
    files.update(config(workspace(api.url, **MISTAKES)))
    answer = process.ask("POST", "/-/reload")
    assert answer.status_code == 500
    process.send(signal.SIGHUP)
    eventually(lambda: process.output().count("config not reloaded") == 2)
    lines = [json.loads(line) for line in process.output().splitlines()]
    for told in (answer.text, *(line["problems"] for line in lines if "problems" in line)):
        assert [wrong for wrong in WRONG if wrong not in told] == []
    assert process.targets() == {"w6prod02": "up"}
    files.update(config(workspace(api.url, models=f"{CHAT}, {CODE}")))
    assert process.ask("POST", "/-/reload").status_code == 200
    eventually(lambda: process.targets() == {"w5prod01": "up", "w6prod02": "up"})
    process.end()
