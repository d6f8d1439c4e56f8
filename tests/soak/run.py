"""One run from start to stop: rest, chaos, and rest again."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from exporter.simulator import Simulator
from tests.soak import accounting, fleet, oracle
from tests.soak.accounting import Ids
from tests.soak.chaos import Chaos
from tests.soak.conductor import Conductor, Side, polled
from tests.soak.findings import Findings, Plan, Rest, Values
from tests.soak.fleet import LISTED, NAMED, Expected
from tests.soak.process import Exporter, Keys, Usage, eventually, ids, seconds

_WARM = 0.3
"""Seconds that first answers take, so that every thread there may be comes to be."""

_STILL = 3.0
"""Seconds without a poll's end, after which none runs any more."""

_AT_ONCE = 32
"""Requests, more than the threads there are for them."""

Say = Callable[[str], object]


def soak(plan: Plan, folder: Path, say: Say = lambda _: None) -> Findings:
    """Run it all; `say` is told how far it is."""
    with ExitStack() as stack:
        sides = {name: stack.enter_context(_side(name, plan)) for name in (NAMED, LISTED)}
        return _Run(plan, folder, sides, say).run()


@contextmanager
def _side(name: str, plan: Plan) -> Iterator[Side]:
    world = (fleet.named if name == NAMED else fleet.listed)(plan.targets // 2, plan.seed)
    chaos = Chaos(f"{plan.seed} {name}")
    with Simulator(world, limit=None) as simulator:
        simulator.fail("", chaos)
        yield Side(simulator, chaos, world)


class _Run:
    def __init__(self, plan: Plan, folder: Path, sides: Mapping[str, Side], say: Say) -> None:
        self._plan = plan
        self._folder = folder
        self._sides = sides
        self._say: Say = lambda text: say(f"{text}\n")
        self._keys = Keys(folder / "keys")
        for name, side in sides.items():
            side.simulator.key = self._keys.present[name]
        urls = {name: side.simulator.url for name, side in sides.items()}
        self._exporter = Exporter(folder, urls, list(fleet.expected(NAMED, sides[NAMED].world, {})))
        self._conductor = Conductor(self._exporter, self._keys, sides, plan.setting, plan.seed)
        self._usages: list[Usage] = []

    def run(self) -> Findings:
        began = time.monotonic()
        self._say(f"seed {self._plan.seed}, {self._plan.targets} targets, {self._plan.seconds:g} s of chaos")
        try:
            start = self._start()
            first = self._begin()
            scraped = self._chaos()
            end = self._end()
            status = self._exporter.stop()
        except BaseException:
            self._exporter.kill()
            raise
        counted = accounting.polls(end.page, NAMED).since(accounting.polls(start.page, NAMED))
        return Findings(
            plan=self._plan,
            seconds=time.monotonic() - began,
            start=start,
            end=end,
            named=counted,
            due=accounting.due(first, end.told, self._plan.interval),
            log=accounting.read(self._exporter.log),
            values=self._values(end),
            usages=tuple(self._usages),
            scraped=scraped,
            faults={name: side.chaos.injected for name, side in self._sides.items()},
            record=self._conductor.record,
            status=status,
        )

    def _start(self) -> Rest:
        """Everything polled once, and every thread and connection there that is ever needed."""
        for side in self._sides.values():
            side.chaos.delay = _WARM
        self._exporter.configure(self._plan.setting.at_rest)
        self._exporter.start()
        eventually("ready", self._exporter.ready)
        rest = self._rest()
        for side in self._sides.values():
            side.chaos.delay = 0.0
        self._scrape(3)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._exporter.get, ["/api/v1/targets"] * _AT_ONCE))
            # Reloads wait for one another, so that each of the server's threads has one.
            list(pool.map(lambda _: self._exporter.reload(), range(_AT_ONCE)))
        self._say("everything was polled once")
        return rest._replace(usage=self._usage())

    def _begin(self) -> dict[Ids, float]:
        """Start the schedule; the first poll on it of every target that the config names."""
        self._exporter.configure(self._plan.setting)
        before = time.time()
        if self._exporter.reload() != 200:
            raise RuntimeError("the config was refused")
        told = self._exporter.targets()
        # From then on the schedule stays what it is: no poll of it may have been before this look at it.
        assert time.time() - before < self._plan.interval / 2, "too slow to see the schedule begin"
        return {ids(each): seconds(each["next_poll"]) for each in told if each["workspace"] == NAMED}

    def _chaos(self) -> dict[str, Any]:
        stop = Event()
        sampler = Thread(target=self._sample, args=(stop,))
        sampler.start()
        with self._scrapers(self._plan.seconds) as scrapers:
            try:
                self._conductor.perform(self._plan.seconds)
            finally:
                stop.set()
                sampler.join()
            out, _ = scrapers.communicate()
        self._say("calm again")
        found: dict[str, Any] = json.loads(out)
        return found

    def _end(self) -> Rest:
        """All is well again, everything is polled once more, and then nothing."""
        self._conductor.relist()
        calm = time.time() + self._plan.timeout + 1
        wanted = {each.ids for each in self._expected()}

        def healed() -> bool:
            told = self._exporter.targets()
            good = {ids(each) for each in told if each["state"] == "up" and _newer(each, calm)}
            return good == wanted and len(told) == len(wanted)

        eventually("all targets up again", healed)
        self._say("all targets are up again")
        self._exporter.configure(self._conductor.setting.at_rest)
        if self._exporter.reload() != 200:
            raise RuntimeError("the config was refused")
        return self._rest()

    def _rest(self) -> Rest:
        """Wait until no poll is due for long, none runs, and what was found is listed."""

        def resting() -> bool:
            told = self._exporter.targets()
            return all(seconds(each["next_poll"]) > time.time() + 60 for each in told) and bool(told)

        eventually("no poll due", resting)
        counted, since = "", time.monotonic()
        while time.monotonic() - since < _STILL:
            now = self._exporter.get("/metrics", **{"name[]": "baseten_exporter_polls_total"})
            if now != counted:
                counted, since = now, time.monotonic()
            time.sleep(0.1)
        page, told = accounting.samples(self._exporter.get("/metrics")), self._exporter.targets()
        return Rest(page, told, self._usage())

    def _usage(self) -> Usage:
        """Once our own last request is no longer part of it."""
        time.sleep(1)
        return self._exporter.usage()

    def _sample(self, stop: Event) -> None:
        while not stop.wait(1):
            self._usages.append(self._exporter.usage())

    def _scrape(self, length: float) -> None:
        with self._scrapers(length) as scrapers:
            scrapers.communicate()

    @contextmanager
    def _scrapers(self, length: float) -> Iterator["subprocess.Popen[str]"]:
        known = self._folder / "known"
        known.write_text(json.dumps([each.ids for each in self._expected()]))
        command = [sys.executable, "-m", "tests.soak.scrapers", str(self._exporter.port), str(length)]
        with subprocess.Popen([*command, str(known)], stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.terminate()

    def _expected(self) -> list[Expected]:
        labels = {NAMED: self._conductor.setting.labels, LISTED: {}}
        return [
            each
            for name, side in self._sides.items()
            for each in fleet.expected(name, side.world, labels[name])
        ]

    def _values(self, end: Rest) -> Values:
        """Every polled series, and each target's count of them, against the answers of its last good poll."""
        told = {ids(each): each for each in end.told}
        truth: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        counts: dict[Ids, float] = {}
        for each in self._expected():
            success = seconds(told[each.ids]["last_success"])
            answers = self._sides[each.workspace].chaos.poll(each.path, success, self._plan.interval / 2)
            series = oracle.series(answers, each.mode)
            counts[each.ids] = len(series)
            truth |= {
                (name, own | frozenset(each.labels.items())): value for (name, own), value in series.items()
            }
        page = {(one.name, frozenset(one.labels.items())): one.value for one in end.page if polled(one.name)}
        wrong = [
            f"{name}{dict(labels)}: {page.get((name, labels))} instead of {truth.get((name, labels))}"
            for name, labels in page.keys() | truth.keys()
            if page.get((name, labels)) != truth.get((name, labels))
        ]
        wrong += [
            f"{target}: {told[target]['series']} series instead of {count}"
            for target, count in counts.items()
            if told[target]["series"] != count
        ]
        return Values(len(truth), wrong)


def _newer(told: Mapping[str, Any], moment: float) -> bool:
    return seconds(told["last_success"]) > moment
