"""The worlds the simulator serves: an organization from one seed, and what happens to it over time."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from exporter.simulator import demo, fleet, life
from exporter.simulator.organization import Organization
from exporter.simulator.timetable import NOTHING, Timetable


@dataclass(frozen=True)
class World(Organization):
    """An organization as it begins, and the timetable by which it changes."""

    timetable: Timetable = NOTHING

    @classmethod
    def demo(cls, seed: int = 1, start: float | None = None) -> "World":
        """A small organization with one of everything; nothing happens to it where `start` is None."""
        return cls._of(demo.organization(seed), NOTHING if start is None else demo.timetable(start))

    @classmethod
    def life(cls, start: float, seed: int = 1) -> "World":
        """The script in `exporter.simulator.life`, from `start` in seconds since the epoch."""
        return cls._of(life.organization(seed), life.timetable(start, seed))

    @classmethod
    def sized(cls, targets: int, seed: int = 1, nodes: int = 2, gpus: int = 8) -> "World":
        """Exactly `targets` deployments, every fifth a trainer; `nodes` nodes or replicas of `gpus` GPUs."""
        return cls._of(fleet.sized(targets, seed, nodes, gpus))

    @classmethod
    def organization(cls, models: int = 2000, deployments: int = 3, seed: int = 1) -> "World":
        """So many models with so many deployments each: of all kinds, and in all but equal states."""
        return cls._of(fleet.mixed(models, deployments, seed))

    @classmethod
    def _of(cls, began: Organization, timetable: Timetable = NOTHING) -> "World":
        return cls(began.models, began.trainers, began.user, timetable)

    def at(self, now: float) -> Organization:
        """What there is at `now`, in seconds since the epoch: one object from each event to the next."""
        return self._stages[self.timetable.passed(now)]

    @cached_property
    def _stages(self) -> tuple[Organization, ...]:
        began = Organization(self.models, self.trainers, self.user)
        changes = (event.change for event in self.timetable.events)
        return tuple(accumulate(changes, lambda before, change: change(before), initial=began))
