"""Keys that are rotated while everything is polled: nothing is restarted, and next to nothing fails."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from apscheduler.events import EVENT_JOB_EXECUTED, JobExecutionEvent

from exporter.baseten.circuit import THRESHOLD
from exporter.simulator import Simulator, World
from exporter.simulator.api import Request
from tests.helpers_bench import Bench, workspace

if TYPE_CHECKING:
    from exporter.polling.poller import Outcome
    from tests.conftest import Eventually

WORLD = World.sized(60, nodes=1, gpus=1)
MODELS = ", ".join(
    f"{{model_id: {model.id}, deployment_id: {each.id}, metrics: [baseten_replicas_active]}}"
    for model in WORLD.models
    for each in model.deployments
)
LOOPS = ", ".join(f"{{deployment_id: {each.id}}}" for each in WORLD.trainers)
BUSY = "{interval: 1s, timeout: 1s, concurrency: 16}"
RARE = "{interval: 1h, stale_after: 2h}"


class Use(NamedTuple):
    """A request as the API saw it."""

    path: str
    key: str


class Rotation:
    """An API whose key changes, an exporter that has it from a file, and what both have seen."""

    def __init__(self, folder: Path, api: Simulator, poll: str) -> None:
        self.api = api
        self.file = folder / "key"
        self.keys = [api.key]
        self.file.write_text(api.key)
        self.uses: list[Use] = []
        self.outcomes: list[Outcome] = []
        api.fail(self._note, "500")  # which it never decides on
        keys = {"api_key_env": None, "api_key_file": "key", "models": MODELS, "loops": LOOPS}
        text = workspace(api.url, **keys)
        self.bench = Bench(folder / "config.yaml", api, text, poll=poll)
        listen = self.bench.exporter.scheduler._scheduler.add_listener
        listen(self._polled, EVENT_JOB_EXECUTED)

    def _note(self, request: Request) -> None:
        key = request.headers["authorization"].removeprefix("Bearer ")
        self.uses.append(Use(request.target.partition("?")[0], key))

    def _polled(self, event: JobExecutionEvent) -> None:
        if event.retval is not None:
            self.outcomes.append(event.retval)

    def next_key(self) -> str:
        """A key that never was, as long as the last."""
        self.keys.append(f"key-number-{len(self.keys):06}")
        return self.keys[-1]

    def all_up(self, since: int) -> bool:
        """Whether every target was polled well since so many outcomes."""
        good = {each.target for each in self.outcomes[since:] if each.reason is None}
        return len(good) == len(self.bench.exporter.targets)

    def rotate(self, way: Callable[[Path, str], None], *, file_first: bool) -> None:
        key = self.next_key()
        if file_first:
            way(self.file, key)
        self.api.key = key
        if not file_first:
            way(self.file, key)

    def only_new_key(self) -> bool:
        """Whether every target was last asked for with the newest key."""
        latest = {use.path: use.key for use in list(self.uses)}
        return set(latest.values()) == {self.keys[-1]}

    def ups(self) -> set[bool | None]:
        return {entry.up for entry in self.bench.entries().values()}

    def poll_all(self) -> Counter[int]:
        """Poll every target once; return what the API answered, by status."""
        before = self.statuses()
        self.bench.poll_all()
        return self.statuses() - before

    def statuses(self) -> Counter[int]:
        statuses: Counter[int] = Counter()
        for (_, status), count in self.api.requests.items():
            statuses[status] += count
        return statuses


MakeRotation = Callable[[str], Rotation]


@pytest.fixture
def rotation_of(tmp_path: Path) -> Iterator[MakeRotation]:
    rotations: list[Rotation] = []
    with Simulator(WORLD, key="key-number-000000", limit=None) as api:

        def make(poll: str) -> Rotation:
            rotations.append(Rotation(tmp_path, api, poll))
            return rotations[-1]

        yield make
        for each in rotations:
            each.bench.exporter.close()


# Ways to put a new key into a file


def rename(file: Path, key: str) -> None:
    """What most tools do: the file is the old one or the new one, whole."""
    new = file.with_suffix(".new")
    new.write_text(key)
    new.replace(file)


def rewrite(file: Path, key: str) -> None:
    """What an editor or a shell does: for a moment the file is empty."""
    with file.open("w") as stream:
        stream.flush()
        os.fsync(stream.fileno())
        stream.write(f"{key}\n")


def swap(file: Path, key: str) -> None:
    """What Kubernetes does with a Secret: a link to the folder of its version is swapped."""
    version = file.with_name(f"..{key}")
    version.mkdir()
    (version / file.name).write_text(key)
    link = file.with_name("..data_tmp")
    link.symlink_to(version.name)
    link.replace(file.with_name("..data"))
    if not file.is_symlink():
        link.symlink_to(f"..data/{file.name}")
        link.replace(file)


WAYS = {"a rename": rename, "a rewrite": rewrite, "a swapped link": swap}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_rotation_under_load_costs_a_target_one_poll_at_most(
    rotation_of: MakeRotation, eventually: "Eventually", way: Callable[[Path, str], None]
) -> None:
    """Four times, in both orders; the exporter is polling sixty targets all the while."""
    rotation = rotation_of(BUSY)
    rotation.bench.exporter.start()
    eventually(lambda: rotation.all_up(0))
    costs = []
    for file_first in (True, False, True, False):
        polled, used = len(rotation.outcomes), len(rotation.uses)
        rotation.rotate(way, file_first=file_first)
        eventually(lambda since=polled: rotation.all_up(since) and rotation.only_new_key())  # type: ignore[misc]
        failed = Counter(each.target for each in rotation.outcomes[polled:] if each.reason and each.asked)
        assert max(failed.values(), default=0) <= 1
        assert in_order(rotation.uses[used:], rotation.keys[-2:])
        costs.append(failed.total())
    assert sum(costs) < 20, f"most polls are asked again with the new key, and yet {costs} failed"
    assert rotation.ups() == {True}
    assert rotation.bench.exporter.stop()
    assert {rotation.bench.redactor.redact(key) for key in rotation.keys} == {"<redacted>"}


def in_order(uses: list[Use], keys: list[str]) -> bool:
    """Whether on every path the keys were used one after the other, and none again."""
    seen: dict[str, list[int]] = {}
    for use in uses:
        seen.setdefault(use.path, []).append(keys.index(use.key))
    return all(numbers == sorted(numbers) for numbers in seen.values())


def test_a_poll_that_meets_a_401_asks_again_with_the_key_of_the_changed_file(
    rotation_of: MakeRotation,
) -> None:
    """Even if nothing but the content tells that it has changed."""
    rotation = rotation_of(RARE)
    assert rotation.poll_all() == {200: 60}
    key = rotation.api.key = rotation.next_key()
    before = rotation.file.stat()
    rotation.file.write_text(key)
    os.utime(rotation.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert rotation.poll_all() == {401: 1, 200: 60}
    assert rotation.ups() == {True}
    assert rotation.bench.counted("poll_failures")["team", "model", "auth"] == 0


def test_a_file_changed_in_time_costs_nothing(rotation_of: MakeRotation) -> None:
    rotation = rotation_of(RARE)
    assert rotation.poll_all() == {200: 60}
    rotation.api.key = rotation.next_key()
    rename(rotation.file, rotation.api.key)
    assert rotation.poll_all() == {200: 60}


@pytest.mark.parametrize("turned", ["file", "API"])
def test_a_key_that_stays_wrong_opens_the_circuit_and_a_right_one_heals_at_once(
    rotation_of: MakeRotation, turned: str
) -> None:
    """With the next poll that is due: here the next probe would be in an hour."""
    rotation = rotation_of(RARE)
    assert rotation.poll_all() == {200: 60}
    if turned == "file":
        rename(rotation.file, rotation.next_key())
    else:
        rotation.api.key = rotation.next_key()
    assert rotation.poll_all() == {401: THRESHOLD}
    assert rotation.ups() == {False}
    assert rotation.bench.own("workspace_circuit_open", workspace="team") == 1
    assert rotation.poll_all() == {}
    assert 'baseten_exporter_target_up{deployment_id="d0000000"' in rotation.bench.pages()
    rename(rotation.file, rotation.api.key)
    assert rotation.poll_all() == {200: 60}
    assert rotation.ups() == {True}
    assert rotation.bench.own("workspace_circuit_open", workspace="team") == 0


def test_while_a_key_is_wrong_nothing_but_a_probe_per_interval_goes_out(
    rotation_of: MakeRotation, eventually: "Eventually"
) -> None:
    rotation = rotation_of(BUSY)
    exporter = rotation.bench.exporter
    exporter.start()
    eventually(lambda: rotation.all_up(0))
    rotation.api.key = rotation.next_key()
    eventually(lambda: rotation.ups() == {False})
    assert rotation.bench.own("workspace_circuit_open", workspace="team") == 1
    began, before = time.monotonic(), rotation.statuses()[401]
    eventually(lambda: rotation.statuses()[401] >= before + 2)
    assert rotation.statuses()[401] - before <= 2 + (time.monotonic() - began)
    polled = len(rotation.outcomes)
    rename(rotation.file, rotation.api.key)
    eventually(lambda: rotation.all_up(polled))
    assert rotation.ups() == {True}
    assert sum(1 for each in rotation.outcomes[polled:] if each.reason and each.asked) <= 1
    assert exporter.stop()
