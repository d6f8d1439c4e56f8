"""What is done to the exporter and its surroundings, and when: decided by the seed before it begins."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from exporter.simulator import Simulator, World
from tests.soak.chaos import STORMS, Chaos
from tests.soak.fleet import LISTED, NAMED, churned
from tests.soak.process import MARK, Exporter, Keys, Setting

BAD_CONFIGS = ("{", "workspaces: []\n", "poll: {interval: never}\n", "workspces: 1\n", "")
_FAULTY = 0.08
"""Share of requests that fail by themselves."""

_RATES = (100, 98)
"""Requests per second: another one makes the exporter connect anew."""


class Side(NamedTuple):
    """One workspace as the API has it: `world` is all of it."""

    simulator: Simulator
    chaos: Chaos
    world: World


class Event(NamedTuple):
    at: float
    act: Callable[[], object]


class Record(NamedTuple):
    """What was done, by kind, and what went otherwise than promised."""

    reloads: Counter[str]
    rotations: Counter[str]
    done: Counter[str]
    troubles: list[str]


class Conductor:
    """`setting` is what the config says at present."""

    def __init__(
        self, exporter: Exporter, keys: Keys, sides: Mapping[str, Side], setting: Setting, seed: int
    ) -> None:
        self._exporter = exporter
        self._keys = keys
        self._sides = sides
        self._dice = random.Random(seed)  # noqa: S311  # no secret
        self._outage_began = 0.0
        self.setting = setting
        self.record = Record(Counter(), Counter(), Counter(), [])

    def perform(self, seconds: float) -> None:
        """Chaos for so long, and calm again afterwards."""
        for side in self._sides.values():
            side.chaos.begin(_FAULTY)
        began = time.monotonic()
        for event in sorted(self._events(seconds), key=lambda each: each.at):
            time.sleep(max(0.0, began + event.at - time.monotonic()))
            event.act()
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        for side in self._sides.values():
            side.chaos.calm()
            side.simulator.world = side.world

    def relist(self) -> None:
        """Have everything listed again at once, by another connection."""
        self._reload_good(replace(self.setting, rate=min(_RATES) - 1))

    def _events(self, seconds: float) -> Iterator[Event]:
        yield from self._outage(seconds)
        for side in self._sides.values():
            yield Event(seconds / 3, side.chaos.lighten)
        for at in self._times(seconds, 10):
            yield from self._storm(at, self._dice.choice((NAMED, LISTED)), self._dice.choice(STORMS))
        for nth, at in enumerate(self._times(seconds, 6)):
            yield Event(at, partial(self._rotate, (NAMED, LISTED)[nth % 2], nth))
        for at in self._times(seconds, 4):
            yield Event(at, self._dice.choice((self._reload_well, self._reload_badly)))
        for at in self._times(seconds, 5):
            yield Event(at, self._churn)
        for at in self._times(seconds, 7):
            yield Event(at, self._look_for_keys)

    def _times(self, seconds: float, every: float) -> Iterator[float]:
        """About every so many seconds."""
        at = every * self._dice.random()
        while at < seconds - every / 2:
            yield at
            at += every * (0.6 + 0.8 * self._dice.random())

    def _storm(self, at: float, workspace: str, fault: str) -> Iterator[Event]:
        chaos = self._sides[workspace].chaos
        yield Event(at, lambda: self._set_storm(chaos, fault))
        yield Event(at + 3, lambda: self._set_storm(chaos, None))

    def _set_storm(self, chaos: Chaos, fault: str | None) -> None:
        chaos.storm = fault
        self.record.done["storms"] += fault is not None

    def _outage(self, seconds: float) -> Iterator[Event]:
        """Nothing good comes for longer than series may be kept; then they must be gone."""
        chaos = self._sides[NAMED].chaos
        begin = 0.3 * seconds
        stale = begin + self.setting.stale_after + self.setting.timeout + 1
        yield Event(begin, lambda: self._set_outage(chaos, "503"))
        yield Event(stale, partial(self._look_for_stale, stale - begin))
        yield Event(stale, lambda: self._set_outage(chaos, None))

    def _set_outage(self, chaos: Chaos, fault: str | None) -> None:
        chaos.outage, self._outage_began = fault, time.monotonic()

    def _look_for_stale(self, after: float) -> None:
        time.sleep(max(0.0, self._outage_began + after - time.monotonic()))  # it may have begun late
        page = self._exporter.get("/metrics").splitlines()
        kept = [line for line in page if polled(line) and f'workspace="{NAMED}"' in line]
        if kept:
            self.record.troubles.append(f"after an outage {len(kept)} series stay, {kept[0]} for one")
        self.record.done["outages longer than stale_after"] += 1

    def _rotate(self, workspace: str, nth: int) -> None:
        """The API's key and the file change one after the other, in either order."""
        key, simulator = self._keys.new(), self._sides[workspace].simulator
        steps: list[Callable[[], None]] = [
            lambda: self._keys.rotate(workspace, key, in_place=nth % 4 >= 2),
            lambda: setattr(simulator, "key", key),
        ]
        for step in steps if nth % 3 else reversed(steps):
            step()
        self.record.rotations["in place" if nth % 4 >= 2 else "link swapped"] += 1

    def _churn(self) -> None:
        side = self._sides[LISTED]
        side.simulator.world = churned(side.world, self._dice)
        self.record.done["changes of what is listed"] += 1

    def _look_for_keys(self) -> None:
        """Where errors are told to people, and the API may have told a key back."""
        for path in ("/", "/api/v1/targets"):
            if MARK in self._exporter.get(path):
                self.record.troubles.append(f"a key is on {path}")
        self.record.done["looks for keys"] += 1

    def _reload_well(self) -> None:
        now = self.setting
        changes = (
            now,
            replace(now, rate=self._dice.choice(_RATES)),
            replace(now, generation=now.generation + 1),
        )
        self._reload_good(self._dice.choice(changes))

    def _reload_good(self, setting: Setting) -> None:
        self.setting = setting
        self._exporter.configure(setting)
        if self._dice.random() < 0.5:
            self._exporter.hangup()
            self.record.reloads["good, SIGHUP"] += 1
            self._gauge_becomes(1)
        else:
            self._answers(200)
            self.record.reloads["good, POST"] += 1

    def _reload_badly(self) -> None:
        self._exporter.spoil(self._dice.choice(BAD_CONFIGS))
        if self._dice.random() < 0.5:
            self._exporter.hangup()
            self.record.reloads["bad, SIGHUP"] += 1
        else:
            self._answers(500)
            self.record.reloads["bad, POST"] += 1
        self._gauge_becomes(0)
        self._exporter.configure(self.setting)

    def _answers(self, wanted: int) -> None:
        status = self._exporter.reload()
        if status != wanted:
            self.record.troubles.append(f"a reload was answered {status} instead of {wanted}")

    def _gauge_becomes(self, value: int) -> None:
        name = "baseten_exporter_config_last_reload_successful"
        end = time.monotonic() + 30
        while f"\n{name} {value}.0\n" not in self._exporter.get("/metrics", **{"name[]": name}):
            if time.monotonic() > end:
                self.record.troubles.append(f"{name} is not {value} 30 s after a reload")
                return
            time.sleep(0.1)


def polled(line: str) -> bool:
    """Whether a line of a page, or a series' name, is of what polls bring, not listings."""
    listed = ("baseten_model_deployment_", "baseten_model_environment_", "baseten_loops_deployment_")
    families = ("baseten_model_", "baseten_loops_")
    return line.startswith(families) and not line.startswith((*listed, "baseten_loops_sampler_"))
