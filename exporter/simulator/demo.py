"""The demo: a small organization with one of everything, the awkward cases included."""

from exporter.simulator.organization import (
    CPU,
    GRACE,
    L4,
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
from exporter.simulator.timetable import Event, Timetable, in_order, promotion, status

PERIOD = 600  # all of the following in seconds of each round

# The deployments in staging and in production change places, and back again in the same round.
PROMOTION_STARTS, PROMOTION_ENDS = 60, 240
RETURN_STARTS, RETURN_ENDS = 360, 540

UNHEALTHY, HEALTHY_AGAIN = 90, 210
SCALED_TO_ZERO, WAKING_UP, AWAKE = 150, 270, 300

CHAT, CHAT_PRODUCTION, CHAT_STAGING = "q7chat32", "w5prod01", "w4stag00"
CODE = ("c0der480", "w6prod02")
UPSCALER = ("upsca1er", "x1idle06")
SAMPLER = ("l0opsamp", "x3samp08")

EVENTS = in_order(
    *promotion(PROMOTION_STARTS, PROMOTION_ENDS, CHAT, "production", CHAT_STAGING),
    *promotion(RETURN_STARTS, RETURN_ENDS, CHAT, "production", CHAT_PRODUCTION),
    Event(UNHEALTHY, status(*CODE, "UNHEALTHY")),
    Event(HEALTHY_AGAIN, status(*CODE, "ACTIVE")),
    Event(SCALED_TO_ZERO, status(*UPSCALER, "SCALED_TO_ZERO")),
    Event(WAKING_UP, status(*UPSCALER, "WAKING_UP")),
    Event(AWAKE, status(*UPSCALER, "ACTIVE")),
)


def organization(seed: int) -> Organization:
    return Organization(_models(seed), _trainers(seed))


def timetable(start: float) -> Timetable:
    """A promotion and its return, an illness and a nap, over again every ten minutes."""
    return Timetable(start, EVENTS, PERIOD)


def _models(seed: int) -> tuple[Model, ...]:
    chat = (
        Deployment(CHAT_PRODUCTION, CHAT, seed, 14, h100(2), 3, VLLM),
        Deployment(CHAT_STAGING, CHAT, seed, 0.4, h100(1), 1, VLLM, "fp8-trial", "staging"),
    )
    code = Deployment("w6prod02", "c0der480", seed, 5, h100(8), 2, SGLANG)
    embeddings = Deployment("w7prod03", "em8edder", seed, 40, L4, 2, QUEUED)
    speech = Deployment("w8prod04", "wh1sper3", seed, 3, L4, 2, SPEECH)
    router = Deployment("w9prod05", "r0uter11", seed, 22, CPU, 1)
    idle = Deployment("x1idle06", "upsca1er", seed, 0, L4, 1)
    asleep = Deployment("x2zero07", "rer4nker", seed, 0, L4, 0, QUEUED, status="SCALED_TO_ZERO")
    sampler = Deployment("x3samp08", "l0opsamp", seed, 2, h100(1), 1, VLLM)
    return (
        Model(CHAT, "qwen3-32b-chat", chat),
        Model("c0der480", "code-assistant", (code,)),
        Model("em8edder", "document-embeddings", (embeddings,)),
        Model("wh1sper3", "live-transcription", (speech,)),
        Model("r0uter11", "prompt-router", (router,)),
        Model("upsca1er", "image-upscaler", (idle,)),
        Model("rer4nker", "nightly-reranker", (asleep,)),
        Model("l0opsamp", "support-tuning-sampler", (sampler,)),
    )


def _trainers(seed: int) -> tuple[Trainer, ...]:
    return (
        Trainer("tr2x4sft", "Qwen/Qwen3-8B", seed, 6, 2, 4, sampler=SAMPLER),
        Trainer("tr4x8rl0", "Qwen/Qwen3-32B", seed, 9, 4, 8, straggler=(2, 5)),
        Trainer("tr1solo8", "openai/gpt-oss-20b", seed, 2, 1, 8, GRACE, newest_first=True),
        Trainer("tr0sleep", "Qwen/Qwen3-4B", seed, 0, 1, 1, GRACE, status="SCALED_TO_ZERO"),
    )
