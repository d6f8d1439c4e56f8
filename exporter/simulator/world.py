"""The organization the simulator serves: models, deployments and Loops trainers, all from one seed.

Nothing here advances: what a deployment does at a given time is a formula of its seed and that time.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from exporter.simulator.catalogue import Metric, Trait
from exporter.simulator.signals import Traffic, unit

ADA, GRACE = "ada@example.com", "grace@example.com"

VLLM: frozenset[Trait] = frozenset({"llm", "bis", "vllm"})
SGLANG: frozenset[Trait] = frozenset({"llm", "bis", "sglang", "speculation"})
QUEUED: frozenset[Trait] = frozenset({"async"})
SPEECH: frozenset[Trait] = frozenset({"websocket"})
PLAIN: frozenset[Trait] = frozenset()


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
    """One deployment of a model; `peak` in requests per second; without replicas it is scaled to zero."""

    id: str
    model_id: str
    seed: int
    peak: float
    instance: Instance
    replicas: int
    engine: frozenset[Trait] = PLAIN
    name: str = "v1"
    environment: str | None = "production"

    @property
    def status(self) -> str:
        return "ACTIVE" if self.replicas else "SCALED_TO_ZERO"

    @property
    def replica_names(self) -> tuple[str, ...]:
        return tuple(f"{self.id}-{number}" for number in range(self.replicas))

    @cached_property
    def traffic(self) -> Traffic:
        return Traffic.seeded(self.peak, self.seed, self.id)

    def serves(self, metric: Metric) -> bool:
        return (
            not metric.needs
            or metric.needs in self.engine
            or (metric.needs == "gpu" and self.instance.gpus > 0)
        )


@dataclass(frozen=True)
class Model:
    id: str
    name: str
    deployments: tuple[Deployment, ...]


@dataclass(frozen=True)
class Trainer:
    """One Loops deployment; `straggler` is the node and GPU rank that lags behind the others."""

    id: str
    base_model: str
    seed: int
    peak: float
    nodes: int
    gpus: int
    owner: str = ADA
    running: bool = True
    straggler: tuple[int, int] | None = None
    newest_first: bool = False
    sampler: Deployment | None = None

    @property
    def status(self) -> str:
        return "RUNNING" if self.running else "SCALED_TO_ZERO"

    @cached_property
    def traffic(self) -> Traffic:
        return Traffic.seeded(self.peak, self.seed, self.id)


class TargetId(NamedTuple):
    """What an exporter is told to poll; `model_id` is empty for a Loops trainer."""

    kind: Literal["model", "loops"]
    model_id: str
    deployment_id: str


@dataclass(frozen=True)
class World:
    """An organization as `user` sees it."""

    models: tuple[Model, ...]
    trainers: tuple[Trainer, ...]
    user: str = ADA

    @classmethod
    def demo(cls, seed: int = 1) -> "World":
        """A small organization with one of everything, the awkward cases included."""
        models = _demo_models(seed)
        return cls(models, _demo_trainers(seed, models[-1].deployments[0]))

    @classmethod
    def sized(cls, targets: int, seed: int = 1, nodes: int = 2, gpus: int = 8) -> "World":
        """Exactly `targets` deployments, every fifth a trainer; `nodes` nodes or replicas of `gpus` GPUs."""
        models = [_nth_model(seed, number, nodes, gpus) for number in range(targets) if number % 5 != 4]
        names = [f"t{number:07}" for number in range(4, targets, 5)]
        return cls(
            tuple(models), tuple(Trainer(name, "Qwen/Qwen3-8B", seed, 5, nodes, gpus) for name in names)
        )

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


def _demo_models(seed: int) -> tuple[Model, ...]:
    chat = (
        Deployment("w5prod01", "q7chat32", seed, 14, h100(2), 3, VLLM),
        Deployment("w4stag00", "q7chat32", seed, 0.4, h100(1), 1, VLLM, "fp8-trial", "staging"),
    )
    code = Deployment("w6prod02", "c0der480", seed, 5, h100(8), 2, SGLANG)
    embeddings = Deployment("w7prod03", "em8edder", seed, 40, L4, 2, QUEUED)
    speech = Deployment("w8prod04", "wh1sper3", seed, 3, L4, 2, SPEECH)
    router = Deployment("w9prod05", "r0uter11", seed, 22, CPU, 1)
    idle = Deployment("x1idle06", "upsca1er", seed, 0, L4, 1)
    asleep = Deployment("x2zero07", "rer4nker", seed, 0, L4, 0, QUEUED)
    sampler = Deployment("x3samp08", "l0opsamp", seed, 2, h100(1), 1, VLLM)
    return (
        Model("q7chat32", "qwen3-32b-chat", chat),
        Model("c0der480", "code-assistant", (code,)),
        Model("em8edder", "document-embeddings", (embeddings,)),
        Model("wh1sper3", "live-transcription", (speech,)),
        Model("r0uter11", "prompt-router", (router,)),
        Model("upsca1er", "image-upscaler", (idle,)),
        Model("rer4nker", "nightly-reranker", (asleep,)),
        Model("l0opsamp", "support-tuning-sampler", (sampler,)),
    )


def _demo_trainers(seed: int, sampler: Deployment) -> tuple[Trainer, ...]:
    return (
        Trainer("tr2x4sft", "Qwen/Qwen3-8B", seed, 6, 2, 4, sampler=sampler),
        Trainer("tr4x8rl0", "Qwen/Qwen3-32B", seed, 9, 4, 8, straggler=(2, 5)),
        Trainer("tr1solo8", "openai/gpt-oss-20b", seed, 2, 1, 8, GRACE, newest_first=True),
        Trainer("tr0sleep", "Qwen/Qwen3-4B", seed, 0, 1, 1, GRACE, running=False),
    )


def _nth_model(seed: int, number: int, replicas: int, gpus: int) -> Model:
    name, engine = f"m{number:07}", (VLLM, SGLANG, QUEUED, SPEECH, PLAIN)[number // 5 % 5]
    peak = 1 + 20 * unit(seed, "peak", number)
    instance = h100(gpus) if gpus else CPU
    deployment = Deployment(f"d{number:07}", name, seed, peak, instance, replicas, engine)
    return Model(name, f"model-{number}", (deployment,))
