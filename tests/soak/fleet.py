"""Two workspaces: in one the config names all targets, in the other they are discovered, and come and go."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from exporter.simulator import World
from exporter.simulator.organization import Model, Organization

NAMED, LISTED = "named", "listed"
MODES = ("auto", "current", "summary", "series")

_DEPLOYMENTS = 5
"""Of a model in the listed workspace."""

_IDLE = 7
"""Every so many-th named model is scaled to zero: it has nulls to say."""


class Expected(NamedTuple):
    """A target, how it is asked, and the labels that all its series should have."""

    workspace: str
    path: str
    mode: str
    labels: dict[str, str]

    @property
    def ids(self) -> tuple[str, str, str]:
        return (self.workspace, self.labels.get("model_id", ""), self.labels["deployment_id"])


def named(targets: int, seed: int) -> World:
    """Exactly so many, every fifth a trainer."""
    sized = World.sized(targets, seed, nodes=2, gpus=2)
    models = (_idle(model) if not nth % _IDLE else model for nth, model in enumerate(sized.models))
    return replace(sized, models=tuple(models))


def _idle(model: Model) -> Model:
    return replace(
        model, deployments=tuple(replace(each, status="SCALED_TO_ZERO") for each in model.deployments)
    )


def listed(targets: int, seed: int) -> World:
    """As many, but in models of several deployments, and all of them active."""
    trainers = World.sized(targets, seed, nodes=2, gpus=2).trainers
    mixed = World.organization((targets - len(trainers)) // _DEPLOYMENTS, _DEPLOYMENTS, seed)
    return World(tuple(map(_active, mixed.models)), trainers)


def _active(model: Model) -> Model:
    active = (replace(each, status="ACTIVE", replicas=min(2, each.replicas)) for each in model.deployments)
    return replace(model, deployments=tuple(active))


def churned(world: World, dice: random.Random) -> World:
    """The same with something missing: whole models, deployments, trainers."""
    models = [model for model in world.models if dice.random() > 0.1]
    fewer = (
        replace(
            model,
            deployments=tuple(each for each in model.deployments if each.environment or dice.random() > 0.2),
        )
        for model in models
    )
    trainers = tuple(trainer for trainer in world.trainers if dice.random() > 0.1)
    return replace(world, models=tuple(fewer), trainers=trainers)


def mode(nth: int) -> str:
    """Of the nth model that the config names."""
    return MODES[nth % len(MODES)]


def expected(workspace: str, organization: Organization, labels: dict[str, str]) -> Iterator[Expected]:
    """All targets of an organization; `labels` are those of the config."""
    common = {"workspace": workspace, **labels}
    nth = 0
    for model in organization.models:
        for each in model.deployments:
            path = f"/v1/models/{model.id}/deployments/{each.id}/metrics"
            said = {"model_name": model.name} | (
                {"environment": each.environment} if each.environment else {}
            )
            ids = {"model_id": model.id, "deployment_id": each.id}
            asked = mode(nth) if workspace == NAMED else "auto"
            yield Expected(workspace, path, asked, {**common, **ids, **said})
            nth += 1
    for trainer in organization.trainers:
        path = f"/v1/loops/deployments/{trainer.id}/metrics"
        said = {"deployment_id": trainer.id, "base_model": trainer.base_model}
        yield Expected(workspace, path, "loops", {**common, **said})
