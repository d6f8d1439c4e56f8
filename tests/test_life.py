"""A model and a Loops deployment from their creation to their end: what stands on the page at each stage.

What is expected is written down here, as names and labels; nothing of it is computed by the exporter.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.simulator import Simulator, World, life
from tests.conftest import Clock
from tests.test_discovery import START, Bench

Series = tuple[str, frozenset[tuple[str, str]]]
"""A name and all labels."""

METADATA = ("model_name", "environment", "base_model", "loops_deployment_id")
QUANTILES = [{"quantile": each} for each in ("0.5", "0.9", "0.95", "0.99")]
ONE: list[dict[str, str]] = [{}]

# What a poll yields, by family without its prefix.
WHILE_POLLED = {
    "replicas_active": ONE,
    "replicas_desired": ONE,
    "replicas_starting": ONE,
    "concurrent_requests": ONE,
    "container_restarts_per_second": ONE,
    "pod_readiness": [{"condition": "true"}, {"condition": "false"}],
    "inference_requests_per_second": [{"status": each} for each in ("200", "400", "429", "500")],
}
WHILE_SERVING = {
    "end_to_end_response_time_seconds": QUANTILES,
    "end_to_end_response_time_average_seconds": ONE,
    "time_to_first_byte_seconds": QUANTILES,
    "time_to_first_byte_average_seconds": ONE,
    "request_size_bytes": QUANTILES,
    "request_size_average_bytes": ONE,
    "response_size_bytes": QUANTILES,
    "response_size_average_bytes": ONE,
}
PER_REPLICA = ("container_cpu_usage_cores", "container_cpu_memory_working_set_bytes")
PER_GPU = ("gpu_memory_used_bytes", "gpu_utilization_ratio")
LLM_WHILE_POLLED = {
    "engine_autoscaler_in_flight_tokens": ONE,
    "engine_concurrent_requests": ONE,
    "engine_vllm_num_requests_running": ONE,
    "llm_avg_in_flight_tokens": ONE,
    "llm_in_flight_tokens": ONE,
    "llm_num_requests": ONE,
    "llm_input_tokens_per_second": ONE,
    "llm_output_tokens_per_second": ONE,
}
LLM_WHILE_SERVING = {
    "engine_tps_per_request_per_second": QUANTILES,
    "engine_tps_per_request_average_per_second": ONE,
    "llm_input_tokens_per_request": QUANTILES,
    "llm_input_tokens_per_request_average": ONE,
    "llm_output_tokens_per_request": QUANTILES,
    "llm_output_tokens_per_request_average": ONE,
    "llm_tokens_per_second_per_request": QUANTILES,
    "llm_tokens_per_second_per_request_average": ONE,
    "llm_kv_cache_hit_ratio": ONE,
}
COMPUTE = (
    *("cpu_usage_cores", "cpu_memory_usage_bytes"),
    *("ephemeral_storage_usage_bytes", "ephemeral_storage_utilization_ratio"),
)
RANKS = ("gpu_memory_usage_bytes", "gpu_utilization_ratio")
AUTOSCALING = (
    *("min_replicas", "max_replicas", "concurrency_target", "scale_down_delay_seconds", "window_seconds"),
    "target_utilization_ratio",
)
INSTANCES = {
    "CPU:2x8": ("0", None),
    "L4:4x16": ("1", "L4"),
    **{f"H100:{gpus}x{26 * gpus}x{234 * gpus}": (str(gpus), "H100") for gpus in (1, 2, 4, 8)},
}


@dataclass(frozen=True)
class Seen:
    """One deployment at one stage; `trainer` is the one whose sampler it is."""

    ids: tuple[str, str]
    model: str
    environment: str | None
    status: str
    name: str = "v1"
    instance: str = "L4:4x16"
    replicas: int = 2
    trainer: str | None = None

    @property
    def serves(self) -> bool:
        return self.status in {"ACTIVE", "UNHEALTHY"}

    @property
    def labels(self) -> dict[str, str | None]:
        model_id, deployment_id = self.ids
        own = {"model_id": model_id, "deployment_id": deployment_id}
        return own | {"model_name": self.model, "environment": self.environment}


@dataclass(frozen=True)
class Stage:
    """All there is at a time; `current` and `candidate` are what the model's environment says."""

    at: int
    deployments: tuple[Seen, ...] = ()
    current: str | None = None
    candidate: str | None = None
    trainer: str | None = None
    sampler: str | None = None
    polled: tuple[tuple[str, str], ...] = ()


BYSTANDER = Seen(life.BYSTANDER, "bystander", "production", "ACTIVE", instance="CPU:2x8", replicas=1)
SAMPLER = Seen(life.SAMPLER, "life-sampler", "production", "", instance="H100:1x26x234", trainer=life.TRAINER)
FIRST = Seen(life.FIRST, life.NAME, "production", "")
SECOND = Seen(life.SECOND, life.NAME, None, "", life.DEPLOYMENT_NAME)
WITHOUT_SETTINGS = ("BUILDING", "DEPLOYING")


def stage(
    at: int, first: str, second: str = "", *, sampler: str = "", trainer: str = "", promoted: bool = False
) -> Stage:
    """A stage by the statuses of what there is; "" is nothing, and "?" before it not polled."""
    renamed = at >= life.MODEL_RENAMED
    model = life.NEW_NAME if renamed else life.NAME
    name = life.NEW_DEPLOYMENT_NAME if at >= life.DEPLOYMENT_RENAMED else life.DEPLOYMENT_NAME
    here = "production" if promoted else None
    there = None if promoted else "production"
    listed = [
        (BYSTANDER, "ACTIVE"),
        (replace(FIRST, model=model, environment=there), first),
        (replace(SECOND, model=model, environment=here, name=name), second),
        (SAMPLER, sampler),
    ]
    deployments = tuple(replace(each, status=status.removeprefix("?")) for each, status in listed if status)
    polled = tuple(each.ids for each, status in listed if status and not status.startswith("?"))
    promoting = life.PROMOTION_STARTS <= at < life.PROMOTION_ENDS
    current = (life.SECOND if promoted else life.FIRST)[1] if first or second else None
    if trainer and not trainer.startswith("?"):
        polled += (("", life.TRAINER),)
    return Stage(
        at,
        deployments,
        current,
        life.SECOND[1] if promoting else None,
        trainer.removeprefix("?") or None,
        sampler.removeprefix("?") or None,
        polled,
    )


# A status behind "?" is one that is listed and described, and not polled.
STAGES = [
    stage(0, ""),
    stage(life.CREATED, "?BUILDING", sampler="?BUILDING", trainer="?CREATED"),
    stage(life.DEPLOYING, "DEPLOYING", sampler="DEPLOYING", trainer="DEPLOYING"),
    stage(life.LOADING, "LOADING_MODEL", sampler="DEPLOYING", trainer="DEPLOYING"),
    stage(life.ACTIVE, "ACTIVE", sampler="ACTIVE", trainer="RUNNING"),
    stage(life.SECOND_CREATED, "ACTIVE", "?BUILDING", sampler="ACTIVE", trainer="RUNNING"),
    stage(life.SECOND_DEPLOYING, "ACTIVE", "DEPLOYING", sampler="ACTIVE", trainer="RUNNING"),
    stage(life.SECOND_LOADING, "ACTIVE", "LOADING_MODEL", sampler="ACTIVE", trainer="RUNNING"),
    stage(life.SECOND_ACTIVE, "ACTIVE", "ACTIVE", sampler="ACTIVE", trainer="RUNNING"),
    stage(life.PROMOTION_STARTS, "ACTIVE", "ACTIVE", sampler="ACTIVE", trainer="RUNNING"),
    stage(life.PROMOTION_STARTS + 150, "ACTIVE", "ACTIVE", sampler="ACTIVE", trainer="RUNNING"),
    stage(
        life.LOOPS_SCALED_TO_ZERO, "ACTIVE", "ACTIVE", sampler="?SCALED_TO_ZERO", trainer="?SCALED_TO_ZERO"
    ),
    stage(life.PROMOTION_ENDS, "ACTIVE", "ACTIVE", sampler="ACTIVE", trainer="RUNNING", promoted=True),
    stage(
        life.FIRST_DEACTIVATING, "?DEACTIVATING", "ACTIVE", sampler="ACTIVE", trainer="RUNNING", promoted=True
    ),
    stage(life.FIRST_INACTIVE, "?INACTIVE", "ACTIVE", sampler="ACTIVE", trainer="RUNNING", promoted=True),
    stage(life.MODEL_RENAMED, "?INACTIVE", "ACTIVE", sampler="ACTIVE", trainer="RUNNING", promoted=True),
    stage(
        life.DEPLOYMENT_RENAMED, "?INACTIVE", "ACTIVE", sampler="UNHEALTHY", trainer="?FAILED", promoted=True
    ),
    stage(
        life.SCALED_TO_ZERO,
        "?INACTIVE",
        "?SCALED_TO_ZERO",
        sampler="UNHEALTHY",
        trainer="?FAILED",
        promoted=True,
    ),
    stage(life.WAKING_UP, "?INACTIVE", "WAKING_UP", sampler="?INACTIVE", trainer="?STOPPED", promoted=True),
    stage(life.AWAKE, "?INACTIVE", "ACTIVE", sampler="?INACTIVE", trainer="?STOPPED", promoted=True),
    stage(life.UNHEALTHY, "?INACTIVE", "UNHEALTHY", promoted=True),
    stage(life.HEALTHY_AGAIN, "?INACTIVE", "ACTIVE", promoted=True),
    stage(life.FAILED, "?INACTIVE", "?FAILED", promoted=True),
    stage(life.FIRST_DELETED, "", "?FAILED", promoted=True),
    stage(life.MODEL_DELETED, ""),
]


# What is expected


def series(name: str, *parts: Mapping[str, str | None]) -> Series:
    labels = {"workspace": "w"}
    for part in parts:
        labels |= {key: value for key, value in part.items() if value}
    return name, frozenset(labels.items())


def expected(stage: Stage) -> set[Series]:
    return {*_prices(), *_described(stage), *_trainer(stage), *_polled(stage)}


def _prices() -> Iterator[Series]:
    for name, (gpus, kind) in INSTANCES.items():
        labels = {"instance_type": name, "gpu_count": gpus, "gpu_type": kind}
        yield series("baseten_instance_type_price_dollars_per_hour", labels)


def _described(stage: Stage) -> Iterator[Series]:
    for each in stage.deployments:
        yield from _deployment(each)
    for model_id, current, candidate in _environments(stage):
        key = {"model_id": model_id, "environment": "production"}
        said = {"deployment_id": current, "candidate_deployment_id": candidate}
        yield series("baseten_model_environment_info", key, said)
        yield series("baseten_model_environment_promotion_in_progress", key)
        if candidate:
            yield series("baseten_model_environment_promotion_traffic_ratio", key)


def _environments(stage: Stage) -> Iterator[tuple[str, str, str | None]]:
    yield (*life.BYSTANDER, None)
    if stage.current:
        yield life.MODEL, stage.current, stage.candidate
    if stage.sampler:
        yield (*life.SAMPLER, None)


def _deployment(each: Seen) -> Iterator[Series]:
    prefix = "baseten_model_deployment"
    info = {"deployment_name": each.name, "team": "applied", "instance_type": each.instance}
    yield series(f"{prefix}_info", each.labels, info, {"label_service": each.ids[0]})
    yield series(f"{prefix}_status", each.labels, {"status": each.status})
    for name in ("price_dollars_per_hour", "created_timestamp_seconds", "active_replicas"):
        yield series(f"{prefix}_{name}", each.labels)
    for name in AUTOSCALING if each.status not in WITHOUT_SETTINGS else ():
        yield series(f"{prefix}_autoscaling_{name}", each.labels)


def _trainer(stage: Stage) -> Iterator[Series]:
    if not stage.trainer:
        return
    ids = {"deployment_id": life.TRAINER}
    sampler = {"sampler_model_id": life.SAMPLER[0], "sampler_deployment_id": life.SAMPLER[1]}
    base = {"base_model": "Qwen/Qwen3-8B"}
    yield series("baseten_loops_deployment_info", ids, base, sampler, {"sampler_id": f"s{life.TRAINER}"})
    yield series("baseten_loops_deployment_status", ids, {"status": stage.trainer})
    yield series("baseten_loops_sampler_status", ids, {"status": stage.sampler})


def _polled(stage: Stage) -> Iterator[Series]:
    for each in stage.deployments:
        if each.ids in stage.polled:
            yield from _polled_model(each)
    if stage.trainer == "RUNNING":
        yield from _polled_trainer({"deployment_id": life.TRAINER, "base_model": "Qwen/Qwen3-8B"})


def _polled_model(each: Seen) -> Iterator[Series]:
    labels = each.labels | {"loops_deployment_id": each.trainer}
    families = dict(WHILE_POLLED)
    families |= WHILE_SERVING if each.serves else {}
    families |= LLM_WHILE_POLLED if each.trainer else {}
    families |= LLM_WHILE_SERVING if each.trainer and each.serves else {}
    replicas = [{"replica": f"{each.ids[1]}-{n}"} for n in range(each.replicas if each.serves else 0)]
    families |= dict.fromkeys(PER_REPLICA, replicas)
    if each.instance != "CPU:2x8":
        families |= {name: [{**replica, "gpu": "0"} for replica in replicas] for name in PER_GPU}
    yield from _family("baseten_model", families, labels)


def _polled_trainer(labels: dict[str, str]) -> Iterator[Series]:
    traffic = {
        "inference_requests_per_second": ONE,
        "inference_requests_by_status_per_second": [{"status": each} for each in ("2xx", "4xx", "5xx")],
        "concurrent_requests": ONE,
        "response_time_seconds": [{"quantile": each} for each in ("0.5", "0.95", "0.99")],
    }
    yield from _family("baseten_loops", traffic, labels)
    ranks = [{"gpu_rank": str(rank)} for rank in range(4)]
    compute = dict.fromkeys(COMPUTE, ONE) | dict.fromkeys(RANKS, ranks)
    yield from _family("baseten_loops_leader", compute, labels)
    for node in range(2):
        named = {**labels, "node_id": f"{life.TRAINER}-node-{node}"}
        yield from _family("baseten_loops_node", compute, named)


def _family(
    prefix: str, families: Mapping[str, list[dict[str, str]]], labels: Mapping[str, str | None]
) -> Iterator[Series]:
    for name, own in families.items():
        yield from (series(f"{prefix}_{name}", labels, each) for each in own)


# What is there


def shown(bench: Bench) -> list[Series]:
    text = "\n".join([*bench.page(), ""])
    families = text_string_to_metric_families(text)
    return [(each.name, frozenset(each.labels.items())) for family in families for each in family.samples]


def doubled(found: Iterable[Series]) -> list[object]:
    """Series that stand there twice, if it were not for what is only said of them."""
    bare = Counter(
        (name, frozenset(pair for pair in labels if pair[0] not in METADATA or "environment_" in name))
        for name, labels in found
    )
    return [each for each, times in bare.items() if times > 1]


def value(bench: Bench, name: str, **labels: str) -> float:
    (found,) = [
        sample.value
        for family in text_string_to_metric_families("\n".join([*bench.page(), ""]))
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return float(found)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    clock = Clock(START)
    with Simulator(World.life(START), limit=None, clock=clock) as api:
        bench = Bench(tmp_path, api, clock)
        bench.reload(metadata_labels=f"[{', '.join(METADATA)}]")
        yield bench
        bench.exporter.close()


def test_at_every_stage_the_page_holds_all_of_it_and_nothing_else(bench: Bench) -> None:
    for stage in STAGES:
        bench.list_at(stage.at)
        assert doubled(shown(bench)) == [], stage
        bench.poll()
        found = shown(bench)
        assert doubled(found) == [], stage
        assert (stage.at, set(found) - expected(stage)) == (stage.at, set())
        assert (stage.at, expected(stage) - set(found)) == (stage.at, set())


PROMOTION_OFFSETS = [
    (life.PROMOTION_STARTS, 0.0),
    (life.PROMOTION_STARTS + 3, 0.01),
    (life.PROMOTION_STARTS + 76, 0.25),
    (life.PROMOTION_STARTS + 150, 0.5),
    (life.PROMOTION_ENDS - 1, 0.99),
]


def test_the_traffic_of_a_promotion_moves_until_it_is_over(bench: Bench) -> None:
    ids = {"model_id": life.MODEL, "environment": "production"}
    for offset, ratio in PROMOTION_OFFSETS:
        bench.list_at(offset)
        assert value(bench, "baseten_model_environment_promotion_in_progress", **ids) == 1
        assert value(bench, "baseten_model_environment_promotion_traffic_ratio", **ids) == ratio
    bench.list_at(life.PROMOTION_ENDS)
    assert value(bench, "baseten_model_environment_promotion_in_progress", **ids) == 0
    assert not [line for line in bench.page() if "promotion_traffic_ratio" in line]


@pytest.mark.parametrize(
    ("offset", "replicas", "dollars"),
    [
        (life.SCALED_TO_ZERO - 1, 2, 2 * 0.01414 * 60),
        (life.SCALED_TO_ZERO, 0, 0),
        (life.WAKING_UP, 0, 0),
        (life.AWAKE, 2, 2 * 0.01414 * 60),
        (life.FAILED, 0, 0),
    ],
)
def test_what_sleeps_or_failed_has_no_replicas_and_costs_nothing(
    bench: Bench, offset: int, replicas: float, dollars: float
) -> None:
    bench.list_at(offset)
    ids = dict(zip(("model_id", "deployment_id"), life.SECOND, strict=True))
    assert value(bench, "baseten_model_deployment_active_replicas", **ids) == replicas
    price = value(bench, "baseten_model_deployment_price_dollars_per_hour", **ids)
    assert price == pytest.approx(dollars)


REQUESTS = "baseten_model_concurrent_requests"


@pytest.mark.parametrize(
    ("offset", "deployment_id", "before", "after"),
    [
        pytest.param(
            life.MODEL_RENAMED,
            life.SECOND[1],
            {"model_name": life.NAME, "environment": "production"},
            {"model_name": life.NEW_NAME, "environment": "production"},
            id="a rename",
        ),
        pytest.param(
            life.PROMOTION_ENDS,
            life.SECOND[1],
            {"model_name": life.NAME},
            {"model_name": life.NAME, "environment": "production"},
            id="into the environment",
        ),
        pytest.param(
            life.PROMOTION_ENDS,
            life.FIRST[1],
            {"model_name": life.NAME, "environment": "production"},
            {"model_name": life.NAME},
            id="out of the environment",
        ),
    ],
)
def test_a_series_moves_to_its_new_labels_in_one_swap(
    bench: Bench, offset: int, deployment_id: str, before: dict[str, str], after: dict[str, str]
) -> None:
    def labels() -> list[dict[str, str]]:
        found = [dict(pairs) for name, pairs in shown(bench) if name == REQUESTS]
        own = [each for each in found if each["deployment_id"] == deployment_id]
        return [{name: text for name, text in each.items() if name in METADATA} for each in own]

    bench.list_at(offset - 1)
    bench.poll()
    assert labels() == [before]
    bench.list_at(offset)
    assert labels() == [before]  # it was measured under its old labels
    bench.poll()
    assert labels() == [after]


def test_an_entry_that_names_an_environment_follows_its_promotion(bench: Bench) -> None:
    entry = f"{{model_id: {life.MODEL}, environment: production, mode: current, labels: {{team: search}}}}"
    bench.reload(discovery="", models=entry)
    first, second = (f"model/{'/'.join(ids)}" for ids in (life.FIRST, life.SECOND))
    for offset, targets in [
        (0, []),
        (life.CREATED, [first]),
        (life.SECOND_ACTIVE, [first]),
        (life.PROMOTION_STARTS, [first, second]),
        (life.PROMOTION_ENDS - 1, [first, second]),
        (life.PROMOTION_ENDS, [second]),
        (life.FAILED, [second]),
        (life.MODEL_DELETED, []),
    ]:
        bench.list_at(offset)
        bench.poll()
        assert (offset, bench.targets()) == (offset, targets)
        assert {target.options.mode for target in bench.exporter.targets} <= {"current"}  # type: ignore[union-attr]
        requests = [labels for name, labels in shown(bench) if name == REQUESTS]
        assert [("team", "search") in labels for labels in requests] == [True] * len(targets)
