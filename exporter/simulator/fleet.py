"""Large organizations, for what takes the exporter to its limits."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from exporter.simulator.organization import (
    CPU,
    L4,
    PLAIN,
    QUEUED,
    SGLANG,
    SPEECH,
    VLLM,
    Deployment,
    Model,
    Organization,
    Trainer,
    h100,
)
from exporter.simulator.signals import unit

Choice = TypeVar("Choice")

BASES = ("qwen3-32b", "llama-3.3-70b", "gpt-oss-20b", "whisper-v3", "bge-m3", "flux-dev", "gemma-3-12b")
TASKS = ("chat", "summaries", "extraction", "search", "moderation", "transcripts", "ranking", "agents")
TEAMS = ("applied", "search", "speech", "platform", "research", "growth")
TIERS = ("gold", "silver", "bronze")
ENGINES = (VLLM, SGLANG, QUEUED, SPEECH, PLAIN)
ENVIRONMENTS = ("production", "staging", "development")

# Out of 100.
STATUSES = {"ACTIVE": 78, "SCALED_TO_ZERO": 14, "INACTIVE": 8}
INSTANCES = {L4: 40, h100(1): 25, CPU: 15, h100(2): 10, h100(4): 6, h100(8): 4}


def sized(targets: int, seed: int, nodes: int, gpus: int) -> Organization:
    """Exactly `targets` deployments, every fifth a trainer; all of them busy and of one size."""
    models = [_nth_model(seed, number, nodes, gpus) for number in range(targets) if number % 5 != 4]
    names = [f"t{number:07}" for number in range(4, targets, 5)]
    trainers = [Trainer(name, "Qwen/Qwen3-8B", seed, 5, nodes, gpus) for name in names]
    return Organization(tuple(models), tuple(trainers))


def _nth_model(seed: int, number: int, replicas: int, gpus: int) -> Model:
    name, engine = f"m{number:07}", ENGINES[number // 5 % 5]
    peak = 1 + 20 * unit(seed, "peak", number)
    instance = h100(gpus) if gpus else CPU
    deployment = Deployment(f"d{number:07}", name, seed, peak, instance, replicas, engine)
    return Model(name, f"model-{number}", (deployment,))


def mixed(models: int, deployments: int, seed: int) -> Organization:
    """As a large customer has them: many models, and not everything runs."""
    return Organization(tuple(_mixed_model(seed, number, deployments) for number in range(models)))


def _mixed_model(seed: int, number: int, deployments: int) -> Model:
    name = f"{_one_of(BASES, seed, 'base', number)}-{_one_of(TASKS, seed, 'task', number)}-{number}"
    return Model(
        f"m{number:07}",
        name,
        tuple(_mixed_deployment(seed, number, nth) for nth in range(deployments)),
        _one_of(TEAMS, seed, "team", number),
    )


def _mixed_deployment(seed: int, number: int, nth: int) -> Deployment:
    """What comes first is the largest, and has labels of its own."""
    status = _weighed(STATUSES, unit(seed, "status", number, nth))
    peak = 20 * unit(seed, "peak", number) / (1 + 9 * nth)
    return Deployment(
        id=f"d{number:07}{nth}",
        model_id=f"m{number:07}",
        seed=seed,
        peak=peak,
        instance=_weighed(INSTANCES, unit(seed, "instance", number)),
        replicas=max(1, int(peak / 4)),
        engine=_one_of(ENGINES, seed, "engine", number),
        name=f"v{nth + 1}",
        environment=_environment(number, nth),
        status=status,
        labels=() if nth else (("tier", _one_of(TIERS, seed, "tier", number)),),
    )


def _environment(number: int, nth: int) -> str | None:
    """Only every other model has one in development."""
    return ENVIRONMENTS[nth] if nth < 2 + (number + 1) % 2 else None


def _one_of(choices: Sequence[Choice], *names: object) -> Choice:
    return choices[int(len(choices) * unit(*names))]


def _weighed(shares: Mapping[Choice, int], chance: float) -> Choice:
    ends = accumulate(shares.values())
    return next(choice for choice, end in zip(shares, ends, strict=True) if 100 * chance < end)
