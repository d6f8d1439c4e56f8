"""A script for end-to-end tests: one model and one Loops deployment from their creation to their end.

A model that never changes stands by. All times are in seconds since the start of the script.
"""

from dataclasses import replace

from exporter.simulator.organization import CPU, L4, VLLM, Deployment, Model, Organization, Trainer, h100
from exporter.simulator.timetable import (
    Event,
    Timetable,
    deployment_appears,
    gone,
    in_order,
    model_appears,
    on_deployment,
    on_model,
    on_trainer,
    promotion,
    status,
    trainer_appears,
    trainer_status,
)

BYSTANDER = ("byst4nd1", "bydep001")
MODEL = "l1femod1"
FIRST, SECOND = (MODEL, "l1fedep1"), (MODEL, "l1fedep2")
TRAINER = "l1fetra1"
SAMPLER = ("l1fesam1", "l1fesdp1")

NAME, NEW_NAME = "summarizer", "summarizer-pro"
DEPLOYMENT_NAME, NEW_DEPLOYMENT_NAME = "v2", "v2-long-context"

CREATED, DEPLOYING, LOADING, ACTIVE = 60, 120, 180, 240
SECOND_CREATED, SECOND_DEPLOYING, SECOND_LOADING, SECOND_ACTIVE = 300, 320, 340, 360
PROMOTION_STARTS, PROMOTION_ENDS = 420, 720
FIRST_DEACTIVATING, FIRST_INACTIVE = 780, 840
MODEL_RENAMED, DEPLOYMENT_RENAMED = 900, 960
SCALED_TO_ZERO, WAKING_UP, AWAKE = 1020, 1080, 1140
UNHEALTHY, HEALTHY_AGAIN = 1200, 1260
FAILED = 1320
FIRST_DELETED, MODEL_DELETED = 1380, 1440

LOOPS_CREATED, LOOPS_DEPLOYING, LOOPS_RUNNING = 60, 120, 240
LOOPS_SCALED_TO_ZERO, LOOPS_RUNNING_AGAIN = 600, 720
LOOPS_FAILED, LOOPS_STOPPED = 960, 1080
LOOPS_DELETED = 1200


def organization(seed: int) -> Organization:
    return Organization((Model(BYSTANDER[0], "bystander", (_deployment(BYSTANDER, seed),)),))


def timetable(start: float, seed: int) -> Timetable:
    return Timetable(start, in_order(*_births(start, seed), *_MODEL, *_LOOPS))


def _deployment(ids: tuple[str, str], seed: int) -> Deployment:
    return Deployment(ids[1], ids[0], seed, 6, CPU, 1)


def _births(start: float, seed: int) -> tuple[Event, ...]:
    """What has to know the time at which it was created."""

    def born(at: float, ids: tuple[str, str]) -> Deployment:
        return replace(_deployment(ids, seed), instance=L4, replicas=2, status="BUILDING", created=start + at)

    second = replace(born(SECOND_CREATED, SECOND), name=DEPLOYMENT_NAME, environment=None)
    sampler = replace(born(LOOPS_CREATED, SAMPLER), instance=h100(1), engine=VLLM)
    trainer = Trainer(TRAINER, "Qwen/Qwen3-8B", seed, 6, 2, 4, status="CREATED", sampler=SAMPLER)
    return (
        Event(CREATED, model_appears(Model(MODEL, NAME, (born(CREATED, FIRST),), created=start + CREATED))),
        Event(SECOND_CREATED, deployment_appears(second)),
        Event(
            LOOPS_CREATED,
            model_appears(Model(SAMPLER[0], "life-sampler", (sampler,), created=sampler.created)),
        ),
        Event(LOOPS_CREATED, trainer_appears(trainer)),
    )


_MODEL = (
    Event(DEPLOYING, status(*FIRST, "DEPLOYING")),
    Event(LOADING, status(*FIRST, "LOADING_MODEL")),
    Event(ACTIVE, status(*FIRST, "ACTIVE")),
    Event(SECOND_DEPLOYING, status(*SECOND, "DEPLOYING")),
    Event(SECOND_LOADING, status(*SECOND, "LOADING_MODEL")),
    Event(SECOND_ACTIVE, status(*SECOND, "ACTIVE")),
    *promotion(PROMOTION_STARTS, PROMOTION_ENDS, MODEL, "production", SECOND[1]),
    Event(FIRST_DEACTIVATING, status(*FIRST, "DEACTIVATING")),
    Event(FIRST_INACTIVE, status(*FIRST, "INACTIVE")),
    Event(MODEL_RENAMED, on_model(MODEL, lambda model: replace(model, name=NEW_NAME))),
    Event(DEPLOYMENT_RENAMED, on_deployment(*SECOND, lambda each: replace(each, name=NEW_DEPLOYMENT_NAME))),
    Event(SCALED_TO_ZERO, status(*SECOND, "SCALED_TO_ZERO")),
    Event(WAKING_UP, status(*SECOND, "WAKING_UP")),
    Event(AWAKE, status(*SECOND, "ACTIVE")),
    Event(UNHEALTHY, status(*SECOND, "UNHEALTHY")),
    Event(HEALTHY_AGAIN, status(*SECOND, "ACTIVE")),
    Event(FAILED, status(*SECOND, "FAILED")),
    Event(FIRST_DELETED, on_deployment(*FIRST, gone)),
    Event(MODEL_DELETED, on_model(MODEL, gone)),
)

_LOOPS = (
    Event(LOOPS_DEPLOYING, trainer_status(TRAINER, "DEPLOYING")),
    Event(LOOPS_DEPLOYING, status(*SAMPLER, "DEPLOYING")),
    Event(LOOPS_RUNNING, trainer_status(TRAINER, "RUNNING")),
    Event(LOOPS_RUNNING, status(*SAMPLER, "ACTIVE")),
    Event(LOOPS_SCALED_TO_ZERO, trainer_status(TRAINER, "SCALED_TO_ZERO")),
    Event(LOOPS_SCALED_TO_ZERO, status(*SAMPLER, "SCALED_TO_ZERO")),
    Event(LOOPS_RUNNING_AGAIN, trainer_status(TRAINER, "RUNNING")),
    Event(LOOPS_RUNNING_AGAIN, status(*SAMPLER, "ACTIVE")),
    Event(LOOPS_FAILED, trainer_status(TRAINER, "FAILED")),
    Event(LOOPS_FAILED, status(*SAMPLER, "UNHEALTHY")),
    Event(LOOPS_STOPPED, trainer_status(TRAINER, "STOPPED")),
    Event(LOOPS_STOPPED, status(*SAMPLER, "INACTIVE")),
    Event(LOOPS_DELETED, on_trainer(TRAINER, gone)),
    Event(LOOPS_DELETED, on_model(SAMPLER[0], gone)),
)
