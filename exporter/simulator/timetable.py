"""What happens to an organization and when: changes, each a pure function, at seconds since a start."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple, TypeVar

from exporter.simulator.organization import Deployment, Model, Organization, Promotion, Trainer

Change = Callable[[Organization], Organization]
Listed = TypeVar("Listed", Model, Deployment, Trainer)


class Event(NamedTuple):
    at: float
    change: Change


@dataclass(frozen=True)
class Timetable:
    """Events in the order of their time, over again every `period` seconds where there is one.

    A timetable that repeats must end with the organization as it began.
    """

    start: float = 0.0
    events: tuple[Event, ...] = ()
    period: float | None = None

    def passed(self, now: float) -> int:
        """How many events of the present round lie behind `now`, in seconds since the epoch."""
        elapsed = now - self.start
        if self.period and elapsed > 0:
            elapsed %= self.period
        return bisect_right(self.events, elapsed, key=attrgetter("at"))


def in_order(*events: Event) -> tuple[Event, ...]:
    return tuple(sorted(events, key=attrgetter("at")))


NOTHING = Timetable()


def model_appears(model: Model) -> Change:
    return lambda before: replace(before, models=(*before.models, model))


def trainer_appears(trainer: Trainer) -> Change:
    return lambda before: replace(before, trainers=(*before.trainers, trainer))


def deployment_appears(deployment: Deployment) -> Change:
    return on_model(
        deployment.model_id, lambda model: replace(model, deployments=(*model.deployments, deployment))
    )


def on_model(model_id: str, change: Callable[[Model], Model | None]) -> Change:
    """One model changes, or goes where `change` leaves nothing of it."""
    return lambda before: replace(before, models=_edited(before.models, model_id, change))


def on_deployment(
    model_id: str, deployment_id: str, change: Callable[[Deployment], Deployment | None]
) -> Change:
    return on_model(
        model_id, lambda model: replace(model, deployments=_edited(model.deployments, deployment_id, change))
    )


def on_trainer(trainer_id: str, change: Callable[[Trainer], Trainer | None]) -> Change:
    return lambda before: replace(before, trainers=_edited(before.trainers, trainer_id, change))


def status(model_id: str, deployment_id: str, status: str) -> Change:
    return on_deployment(model_id, deployment_id, lambda each: replace(each, status=status))


def trainer_status(trainer_id: str, status: str) -> Change:
    return on_trainer(trainer_id, lambda each: replace(each, status=status))


def gone(_: object) -> None:
    """Nothing is left of it."""


def promotion(starts: float, ends: float, model_id: str, environment: str, candidate_id: str) -> list[Event]:
    """One event per percent of the traffic; with the last the candidate takes the environment over."""
    seconds = (ends - starts) / 100
    ramp = [Promotion(environment, candidate_id, percent) for percent in range(100)]
    return [
        *(Event(starts + seconds * each.percent, on_model(model_id, _ramped(each))) for each in ramp),
        Event(ends, on_model(model_id, _promoted)),
    ]


def _ramped(to: Promotion) -> Callable[[Model], Model]:
    return lambda model: replace(model, promotion=to)


def _promoted(model: Model) -> Model:
    """The candidate takes the environment, and what was there the candidate's former one."""
    assert model.promotion
    environment, candidate_id, _ = model.promotion
    former = next(each.environment for each in model.deployments if each.id == candidate_id)

    def moved(each: Deployment) -> Deployment:
        if each.id == candidate_id:
            return replace(each, environment=environment)
        return replace(each, environment=former) if each.environment == environment else each

    return replace(model, deployments=tuple(map(moved, model.deployments)), promotion=None)


def _edited(
    listed: tuple[Listed, ...], wanted: str, change: Callable[[Listed], Listed | None]
) -> tuple[Listed, ...]:
    edited = (change(each) if each.id == wanted else each for each in listed)
    return tuple(each for each in edited if each is not None)
