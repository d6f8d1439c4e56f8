"""What an organization has at one moment: models, their deployments, and Loops trainers.

Nothing here advances: what a deployment does at a given time is a formula of its seed and that time.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from exporter.simulator.catalogue import Metric, Trait
from exporter.simulator.signals import Traffic

ADA, GRACE = "ada@example.com", "grace@example.com"
LONG_AGO = 1_748_854_800.0  # 2025-06-02 09:00 UTC

VLLM: frozenset[Trait] = frozenset({"llm", "bis", "vllm"})
SGLANG: frozenset[Trait] = frozenset({"llm", "bis", "sglang", "speculation"})
QUEUED: frozenset[Trait] = frozenset({"async"})
SPEECH: frozenset[Trait] = frozenset({"websocket"})
PLAIN: frozenset[Trait] = frozenset()

SERVING = ("ACTIVE", "UNHEALTHY", "UPDATING")


class Instance(NamedTuple):
    name: str
    millicpu: int
    memory_mib: int
    price: float  # US dollars per minute
    gpu_type: str | None = None
    gpus: int = 0
    gpu_memory_mib: int | None = None


def h100(gpus: int) -> Instance:
    name = f"H100:{gpus}x{26 * gpus}x{234 * gpus}"
    return Instance(name, 26_000 * gpus, 239_616 * gpus, round(0.10833 * gpus, 5), "H100", gpus, 81_920)


CPU = Instance("CPU:2x8", 2_000, 8_192, 0.00173)
L4 = Instance("L4:4x16", 4_000, 16_384, 0.01414, "L4", 1, 24_576)


@dataclass(frozen=True)
class Deployment:
    """One deployment of a model; `peak` in requests per second, `replicas` what it has while it serves."""

    id: str
    model_id: str
    seed: int
    peak: float
    instance: Instance
    replicas: int
    engine: frozenset[Trait] = PLAIN
    name: str = "v1"
    environment: str | None = "production"
    status: str = "ACTIVE"
    labels: tuple[tuple[str, str], ...] = ()
    created: float = LONG_AGO

    @property
    def active_replicas(self) -> int:
        return self.replicas if self.status in SERVING else 0

    @property
    def replica_names(self) -> tuple[str, ...]:
        return tuple(f"{self.id}-{number}" for number in range(self.active_replicas))

    @cached_property
    def traffic(self) -> Traffic:
        return Traffic.seeded(self.peak if self.active_replicas else 0, self.seed, self.id)

    def serves(self, metric: Metric) -> bool:
        return (
            not metric.needs
            or metric.needs in self.engine
            or (metric.needs == "gpu" and self.instance.gpus > 0)
        )


class Promotion(NamedTuple):
    """A candidate on its way into an environment; `percent` of the traffic goes to it already."""

    environment: str
    candidate_id: str
    percent: int

    @property
    def status(self) -> str:
        return "RAMPING_UP" if self.percent else "RELEASING"


@dataclass(frozen=True)
class Model:
    id: str
    name: str
    deployments: tuple[Deployment, ...]
    team: str = "applied"
    promotion: Promotion | None = None
    created: float = LONG_AGO

    def promotion_to(self, environment: str | None) -> Promotion | None:
        return self.promotion if self.promotion and self.promotion.environment == environment else None


@dataclass(frozen=True)
class Trainer:
    """One Loops deployment; `straggler` is the node and GPU rank that lags behind the others.

    Its sampler is given by the ids of the model and the deployment that it is.
    """

    id: str
    base_model: str
    seed: int
    peak: float
    nodes: int
    gpus: int
    owner: str = ADA
    status: str = "RUNNING"
    straggler: tuple[int, int] | None = None
    newest_first: bool = False
    sampler: tuple[str, str] | None = None

    @property
    def running(self) -> bool:
        return self.status == "RUNNING"

    @cached_property
    def traffic(self) -> Traffic:
        return Traffic.seeded(self.peak, self.seed, self.id)


class TargetId(NamedTuple):
    """What an exporter is told to poll; `model_id` is empty for a Loops trainer."""

    kind: Literal["model", "loops"]
    model_id: str
    deployment_id: str


@dataclass(frozen=True)
class Organization:
    """Everything as `user` sees it at one moment."""

    models: tuple[Model, ...]
    trainers: tuple[Trainer, ...] = ()
    user: str = ADA

    @cached_property
    def model_by_id(self) -> dict[str, Model]:
        return {model.id: model for model in self.models}

    @cached_property
    def trainer_by_id(self) -> dict[str, Trainer]:
        return {trainer.id: trainer for trainer in self.trainers}

    @cached_property
    def deployment_by_ids(self) -> dict[tuple[str, str], Deployment]:
        return {(model.id, each.id): each for model in self.models for each in model.deployments}

    @property
    def instances(self) -> list[Instance]:
        used = {each.instance for each in self.deployment_by_ids.values()}
        return sorted(used | {CPU, L4, h100(1), h100(2), h100(4), h100(8)})

    def targets(self) -> list[TargetId]:
        """Everything there is to poll, models first."""
        models = [TargetId("model", model, deployment) for model, deployment in self.deployment_by_ids]
        return models + [TargetId("loops", "", trainer.id) for trainer in self.trainers]
