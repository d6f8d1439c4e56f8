"""One poll of one target against the simulator: what is asked, and what comes of it."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from exporter.apikey import ApiKey
from exporter.baseten.answers import Descriptor, ModelAnswer, ValueSet
from exporter.baseten.client import Client, Connection
from exporter.baseten.errors import ApiError, EndpointPaused
from exporter.baseten.fetch import Api, Limits, fetch
from exporter.baseten.names import MetricNames
from exporter.model import LoopsOptions, ModelOptions, Target
from exporter.simulator import Request, Simulator, World
from tests.helpers_baseten import Told, lines

NOW = 1_790_000_000.0
CHAT = ("q7chat32", "w5prod01")
STATUSES = 'baseten_model_inference_requests_per_second{status="200"}'


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(World.demo(), limit=None, clock=lambda: NOW) as running:
        yield running


@pytest.fixture
def api(simulator: Simulator) -> Iterator[Api]:
    key = ApiKey.from_env("KEY", simulator.key)
    client = Client(Connection("w", simulator.url, key, 1e6, 5), Told(), lambda seconds: False)
    yield Api(client, MetricNames("w"))
    client.close()


def model(**options: Any) -> Target:
    return Target("w", *CHAT, ModelOptions(**options))


def requests(simulator: Simulator) -> list[Request]:
    """A list that fills with every request from now on."""
    seen: list[Request] = []
    simulator.fail(seen.append, "500")  # append returns None: the fault never applies
    return seen


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        ("auto", ["CURRENT", "SUMMARY"]),
        ("current", ["CURRENT"]),
        ("summary", ["SUMMARY"]),
        ("series", ["SERIES"]),
    ],
)
def test_each_mode_yields_gauges_rates_and_quantiles(
    simulator: Simulator, api: Api, mode: Any, asked: list[str]
) -> None:
    seen = requests(simulator)
    harvest = fetch(api, model(mode=mode), NOW, Limits(600, 1000))
    assert [request.target.split("mode=")[1].partition("&")[0] for request in seen] == asked
    families = {family.name for family in harvest.families()}
    assert families >= {
        "baseten_model_replicas_active",
        "baseten_model_inference_requests_per_second",
        "baseten_model_end_to_end_response_time_seconds",
        "baseten_model_end_to_end_response_time_average_seconds",
        "baseten_model_gpu_memory_used_bytes",
        "baseten_model_container_cpu_usage_cores",
        "baseten_model_engine_vllm_num_requests_running",
    }
    assert not harvest.dropped
    assert harvest.newest is not None
    assert NOW - 120 <= harvest.newest <= NOW


def test_the_settled_rates_of_auto_and_summary_agree(api: Api) -> None:
    rates = {
        mode: [
            line
            for line in lines(fetch(api, model(mode=mode), NOW, Limits(600, 1000)))
            if line.startswith(STATUSES)
        ]
        for mode in ("auto", "summary")
    }
    assert len(rates["auto"]) == 1
    assert rates["auto"] == rates["summary"]


def test_default_metrics_are_what_the_api_returns_unasked(simulator: Simulator, api: Api) -> None:
    seen = requests(simulator)
    harvest = fetch(api, model(metrics="default"), NOW, Limits(600, 1000))
    assert not [request for request in seen if "metrics=" in request.target]
    assert {family.name for family in harvest.families()} == {
        "baseten_model_replicas_active",
        "baseten_model_inference_requests_per_second",
        "baseten_model_end_to_end_response_time_seconds",
        "baseten_model_end_to_end_response_time_average_seconds",
    }


def test_a_name_the_server_does_not_know_costs_only_itself(api: Api) -> None:
    target = model(
        mode="current", metrics=("baseten_replicas_active", "novel", "baseten_concurrent_requests")
    )
    for _ in range(2):
        harvest = fetch(api, target, NOW, Limits(600, 1000))
        assert {family.name for family in harvest.families()} == {
            "baseten_model_replicas_active",
            "baseten_model_concurrent_requests",
        }


def test_a_trainer_is_one_request(simulator: Simulator, api: Api) -> None:
    seen = requests(simulator)
    harvest = fetch(api, Target("w", "", "tr2x4sft", LoopsOptions()), NOW, Limits(600, 1000))
    [request] = seen
    assert (request.method, request.headers["content-type"]) == ("POST", "application/json")
    assert request.body == (
        b'{"start_epoch_millis":1789999580000,"end_epoch_millis":1790000000000,"step_seconds":30}'
    )
    assert len(harvest.families()) == 16
    assert not harvest.dropped


def test_a_trainer_scaled_to_zero_has_no_series_and_no_losses(api: Api) -> None:
    harvest = fetch(api, Target("w", "", "tr0sleep", LoopsOptions()), NOW, Limits(600, 1000))
    assert (harvest.families(), harvest.newest, harvest.dropped) == ([], None, {})


def test_samples_older_than_max_sample_age_are_dropped(api: Api) -> None:
    harvest = fetch(
        api, model(delay=120, metrics=("baseten_llm_input_tokens_total",)), NOW, Limits(119, 1000)
    )
    assert (harvest.families(), harvest.dropped) == ([], {"too_old": 1})


def test_a_failure_of_the_second_request_fails_the_poll(simulator: Simulator, api: Api) -> None:
    simulator.fail("mode=SUMMARY", "500")
    with pytest.raises(ApiError) as caught:
        fetch(api, model(), NOW, Limits(600, 1000))
    assert caught.value.reason == "server_error"


def test_a_429_pauses_its_endpoint_for_every_target_but_not_the_other_endpoint(
    simulator: Simulator, api: Api
) -> None:
    simulator.fail("mode=", "429 body", times=1)
    with pytest.raises(ApiError) as caught:
        fetch(api, model(), NOW, Limits(600, 1000))
    assert (caught.value.reason, caught.value.retry_after) == ("rate_limited", 37)
    with pytest.raises(EndpointPaused) as paused:
        fetch(api, Target("w", "c0der480", "w6prod02", ModelOptions()), NOW, Limits(600, 1000))
    assert 36 < paused.value.seconds <= 37
    assert fetch(api, Target("w", "", "tr2x4sft", LoopsOptions()), NOW, Limits(600, 1000)).families()


def test_many_threads_may_poll_at_once(simulator: Simulator, api: Api) -> None:
    counts: list[int] = []

    def poll(target: Target) -> None:
        counts.append(len(fetch(api, target, NOW, Limits(600, 1000)).families()))

    targets = [model(), Target("w", "", "tr4x8rl0", LoopsOptions())] * 8
    threads = [threading.Thread(target=poll, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 16
    assert len(set(counts)) == 2


def test_a_target_that_is_not_there_is_not_found(api: Api) -> None:
    with pytest.raises(ApiError) as caught:
        fetch(api, Target("w", "q7chat32", "nope", ModelOptions()), NOW, Limits(600, 1000))
    assert caught.value.reason == "not_found"


class Teaching:
    """An API whose every metric is a counter that rose by 30 in whatever window is asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []

    def model_metrics(
        self, _: str, __: str, params: list[tuple[str, str]], use: Callable[[ModelAnswer], None], ___: object
    ) -> None:
        question: dict[str, list[str]] = {}
        for name, value in params:
            question.setdefault(name, []).append(value)
        self.asked.append(question)
        start, end = (int(question.get(key, ["0"])[0]) for key in ("start_epoch_millis", "end_epoch_millis"))
        names = [Descriptor(name, "COUNT", "COUNTER", [{}]) for name in question["metrics"]]
        use(ModelAnswer(names, [ValueSet([[30.0]] * len(names))], start, end))


@pytest.mark.parametrize(
    ("max_series", "length", "kept"),
    [
        pytest.param(200, 40_000, 104, id="4 MiB of text"),
        pytest.param(40_000, 40_000, 199, id="200 characters for each of many series"),
        pytest.param(100, 400, 100, id="less text than that, and more series"),
    ],
)
def test_what_is_kept_of_a_long_name(max_series: int, length: int, kept: int) -> None:
    class Wordy:
        def model_metrics(
            self, _: str, __: str, ___: object, use: Callable[[ModelAnswer], None], ____: object
        ) -> None:
            sets = [{"n": str(number)} for number in range(1000)]
            use(ModelAnswer([Descriptor("x" * length, "", "GAUGE", sets)], [ValueSet([[1.0] * 1000])]))

    api = Api(cast("Client", Wordy()), MetricNames("w"))
    harvest = fetch(api, model(mode="current", metrics=("x",)), NOW, Limits(600, max_series))
    (family,) = harvest.families()
    assert len(family.samples) == min(kept, max_series)
    assert harvest.dropped == {
        "series_limit" if kept >= max_series else "too_long": 1000 - len(family.samples)
    }


def test_auto_asks_a_name_it_did_not_know_again_once_it_proves_to_settle() -> None:
    teaching = Teaching()
    api = Api(cast("Client", teaching), MetricNames("w"))
    harvest = fetch(api, model(metrics=("new:total",), window=300), NOW, Limits(600, 1000))
    assert [(asked["mode"], asked["metrics"]) for asked in teaching.asked] == [
        (["CURRENT"], ["new:total"]),
        (["SUMMARY"], ["new:total"]),
    ]
    (family,) = harvest.families()
    assert family.name == "baseten_model_engine_new_per_second"
    assert family.samples[0].value == pytest.approx(30 / 300)
    fetch(api, model(metrics=("new:total",), window=300), NOW, Limits(600, 1000))
    assert [asked["mode"] for asked in teaching.asked[2:]] == [["SUMMARY"]], "and knows it from then on"
