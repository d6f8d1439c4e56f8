"""The simulator is what other tests rest on: its answers have the API's shape, and add up."""

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx
import pytest
import trustme
from jsonschema import Draft202012Validator

from exporter.simulator import FAULTS, Request, Response, Simulator, TargetId, World
from exporter.simulator.api import ENDPOINTS, Api
from exporter.simulator.catalogue import METRICS

KEY = "s3cret"
NOW = 1_790_000_000.0
SETTLED = int(NOW * 1000) - 300_000  # five minutes ago all data had arrived
WORLD = World.demo()
TARGETS = WORLD.targets()
MODELS = [target for target in TARGETS if target.kind == "model"]
TRAINERS = [target for target in TARGETS if target.kind == "loops"]
CHAT = TargetId("model", "q7chat32", "w5prod01")
IDLE = TargetId("model", "upsca1er", "x1idle06")
ASLEEP = TargetId("model", "rer4nker", "x2zero07")


def ask(path: str, *, body: object = None, world: World = WORLD, now: float = NOW) -> Response:
    api = Api(world, KEY, limit=None)
    content = b"" if body is None else json.dumps(body).encode()
    request = Request("GET" if body is None else "POST", path, {"authorization": f"Bearer {KEY}"}, content)
    return api.answer(request, now)[1]


def found(response: Response) -> Any:
    assert response.status == 200, response.body
    return json.loads(response.body)


def path_of(target: TargetId) -> str:
    if target.kind == "loops":
        return f"/v1/loops/deployments/{target.deployment_id}/metrics"
    return f"/v1/models/{target.model_id}/deployments/{target.deployment_id}/metrics"


def model(
    target: TargetId, mode: str, *, now: float = NOW, names: Any = tuple(METRICS), **window: int
) -> Any:
    query = urlencode({"mode": mode, "metrics": names, **window}, doseq=True)
    return found(ask(f"{path_of(target)}?{query}", now=now))


def loops(target: TargetId, *, now: float = NOW, **body: int) -> Any:
    return found(ask(path_of(target), body=body, now=now))["metrics"]


def recent(seconds: int, end: int = SETTLED) -> dict[str, int]:
    return {"start_epoch_millis": end - seconds * 1000, "end_epoch_millis": end}


class Series(NamedTuple):
    name: str
    kind: str
    labels: tuple[tuple[str, str], ...]
    values: list[float | None]


def series(answer: Any) -> list[Series]:
    return [
        Series(about["name"], about["kind"], tuple(labels.items()), values)
        for row, about in enumerate(answer["metric_descriptors"])
        for column, labels in enumerate(about["label_sets"])
        for values in [[step["values"][row][column] for step in answer["metric_values"]]]
    ]


def total(answer: Any, name: str) -> float:
    return sum(value or 0 for one in series(answer) if one.name == name for value in one.values)


def validator(file: str, name: str = "") -> Draft202012Validator:
    schema = json.loads((Path(__file__).parent / "schemas" / f"{file}.json").read_text())
    schema |= {"$ref": f"#/$defs/{name}"} if name else {}
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


# Shapes


@pytest.mark.parametrize("mode", ["CURRENT", "SUMMARY", "SERIES"])
@pytest.mark.parametrize("target", MODELS, ids=str)
def test_model_metrics_have_the_shape_of_the_api(target: TargetId, mode: str) -> None:
    answer = model(target, mode, **({} if mode == "CURRENT" else recent(1200)))
    validator("model_metrics").validate(answer)
    shape = [len(about["label_sets"]) for about in answer["metric_descriptors"]]
    assert all([len(row) for row in step["values"]] == shape for step in answer["metric_values"])


@pytest.mark.parametrize("target", TRAINERS, ids=str)
def test_loops_metrics_have_the_shape_of_the_api(target: TargetId) -> None:
    validator("loops_metrics").validate(found(ask(path_of(target), body={})))


def listings() -> Iterator[tuple[str, str]]:
    yield from (("models", "/v1/models"), ("instance_type_prices", "/v1/instance_type_prices"))
    yield from (("loops_deployments", f"/v1/loops/deployments{query}") for query in ("", "?scope=org"))
    for _, _, trainer in TRAINERS:
        yield "loops_deployment", f"/v1/loops/deployments/{trainer}"
    for _, model_id, deployment in MODELS:
        path = f"/v1/models/{model_id}"
        yield from (("model", path), ("deployments", f"{path}/deployments"))
        yield from (
            ("environments", f"{path}/environments"),
            ("deployment", f"{path}/deployments/{deployment}"),
        )


@pytest.mark.parametrize(("schema", "path"), sorted(set(listings())))
def test_listings_have_the_shape_of_the_api(schema: str, path: str) -> None:
    validator("listings", schema).validate(found(ask(path)))


def test_everything_listed_is_a_target() -> None:
    listed = [
        (model_id, each["id"])
        for model_id in [each["id"] for each in found(ask("/v1/models"))["models"]]
        for each in found(ask(f"/v1/models/{model_id}/deployments"))["deployments"]
    ]
    trainers = [each["id"] for each in found(ask("/v1/loops/deployments?scope=org"))["deployments"]]
    assert listed == [(target.model_id, target.deployment_id) for target in MODELS]
    assert trainers == [target.deployment_id for target in TRAINERS]


def test_without_a_scope_only_the_callers_own_trainers_are_listed() -> None:
    own = found(ask("/v1/loops/deployments"))["deployments"]
    assert 0 < len(own) < len(TRAINERS)
    assert {trainer["user"]["email"] for trainer in own} == {WORLD.user}


@pytest.mark.parametrize("targets", [0, 1, 5, 203])
def test_a_sized_world_has_exactly_so_many_targets_and_each_answers(targets: int) -> None:
    world = World.sized(targets, nodes=2, gpus=4)
    assert len(set(world.targets())) == targets
    assert len(world.trainers) == targets // 5
    for target in world.targets()[-3:]:
        found(ask(path_of(target), body={} if target.kind == "loops" else None, world=world))


# Values


def test_every_known_name_is_served_by_the_demo() -> None:
    answers = [model(target, "CURRENT") for target in MODELS]
    assert {about["name"] for answer in answers for about in answer["metric_descriptors"]} == set(METRICS)


def test_names_that_do_not_apply_are_left_out() -> None:
    answer = model(IDLE, "CURRENT", names=["vllm:num_requests_running", "baseten_gpu_utilization"])
    assert [about["name"] for about in answer["metric_descriptors"]] == ["baseten_gpu_utilization"]


def test_three_metrics_are_the_default() -> None:
    answer = found(ask(path_of(CHAT)))
    assert [about["name"] for about in answer["metric_descriptors"]] == [
        "baseten_replicas_active",
        "baseten_inference_requests_total",
        "baseten_end_to_end_response_time_seconds",
    ]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_same_seed_gives_the_same_answer_whatever_was_asked_before(target: TargetId) -> None:
    body: object = {} if target.kind == "loops" else None
    again = ask(path_of(target), body=body, world=World.demo(seed=1))
    assert ask(path_of(target), body=body) == again


def test_another_seed_gives_other_values() -> None:
    first, second = (ask(path_of(CHAT), world=World.demo(seed)) for seed in (1, 2))
    assert first != second


def test_a_value_does_not_depend_on_what_else_is_asked() -> None:
    alone = series(model(CHAT, "CURRENT", names=["baseten_gpu_utilization"]))
    assert set(map(repr, alone)) <= set(map(repr, series(model(CHAT, "CURRENT"))))


@pytest.mark.parametrize("seconds", [30, 1200, 3600, 86_400, 604_800])
@pytest.mark.parametrize("end", [SETTLED, SETTLED + 300_000], ids=["settled", "up to now"])
def test_the_steps_of_a_counter_add_up_to_its_total(seconds: int, end: int) -> None:
    steps = series(model(CHAT, "SERIES", **recent(seconds, end)))
    totals = series(model(CHAT, "SUMMARY", **recent(seconds, end)))
    counters = [
        (a, b) for a, b in zip(steps, totals, strict=True) if a.kind == "COUNTER" and "cpu" not in a.name
    ]
    assert len(counters) > 5
    for step, summed in counters:
        assert all(value is not None and value >= 0 and value.is_integer() for value in step.values)
        assert sum(value or 0 for value in step.values) == summed.values[0]


def test_a_gauge_in_summary_is_the_average_over_time() -> None:
    names = ["baseten_gpu_utilization"]
    fine = [model(CHAT, "CURRENT", names=names, now=NOW + second) for second in range(300)]
    mean = sum(series(answer)[0].values[0] or 0 for answer in fine) / len(fine)
    end = int(NOW * 1000) + 300_000
    assert series(model(CHAT, "SUMMARY", names=names, **recent(300, end)))[0].values[0] == pytest.approx(
        mean, rel=0.01
    )


@pytest.mark.parametrize(
    ("seconds", "step", "count"),
    [(20, 30, 1), (1200, 30, 40), (3600, 30, 120), (7200, 60, 120), (604_800, 5040, 120)],
)
def test_the_step_of_a_series_grows_with_its_window(seconds: int, step: int, count: int) -> None:
    window = recent(seconds, SETTLED + 400)
    answer = model(CHAT, "SERIES", **window)
    starts = [each["start_epoch_millis"] for each in answer["metric_values"]]
    assert answer["step_seconds"] == step
    assert starts == [starts[0] + 1000 * step * number for number in range(len(starts))]
    assert len(starts) in {count, count + 1}
    assert starts[0] % 1000 == 0


def test_current_counts_over_the_minute_it_names() -> None:
    answer = model(CHAT, "CURRENT")
    assert (answer["start_epoch_millis"], answer["end_epoch_millis"]) == (NOW * 1000 - 60_000, NOW * 1000)
    settled = model(CHAT, "SUMMARY", now=NOW + 300, **recent(60, int(NOW * 1000)))
    name = "baseten_inference_requests_total"
    assert 0 < total(answer, name) < total(settled, name)


@pytest.mark.parametrize("age", [0, 15, 35])
def test_late_data_looks_like_no_requests_and_null_quantiles(age: int) -> None:
    end = int(NOW * 1000) - age * 1000
    window = recent(45 - age, end) if age < 45 else recent(10, end)
    late = series(model(CHAT, "SUMMARY", **window))
    assert {value for one in late if one.kind == "COUNTER" for value in one.values} == {0.0}
    assert {value for one in late if one.kind == "HISTOGRAM" for value in one.values} == {None}
    later = series(model(CHAT, "SUMMARY", now=NOW + 120, **window))
    assert None not in [value for one in later for value in one.values]


def test_an_idle_deployment_counts_nothing_but_lives() -> None:
    idle = series(model(IDLE, "SUMMARY", **recent(3600)))
    assert {one.values[0] for one in idle if one.kind == "HISTOGRAM"} == {None}
    assert {one.values[0] for one in idle if "requests_total" in one.name} == {0.0}
    assert {one.values[0] for one in idle if one.name == "baseten_replicas_active"} == {1.0}


def test_a_deployment_scaled_to_zero_has_no_replicas_to_speak_of() -> None:
    asleep = series(model(ASLEEP, "CURRENT"))
    assert not [one for one in asleep if dict(one.labels).keys() & {"replica", "gpu"}]
    assert {one.values[0] for one in asleep if one.name == "baseten_replicas_active"} == {0.0}


def test_requests_are_split_by_exact_status() -> None:
    answer = series(model(CHAT, "SUMMARY", names=["baseten_inference_requests_total"], **recent(3600)))
    counts = {dict(one.labels)["status"]: one.values[0] or 0 for one in answer}
    assert list(counts) == ["200", "400", "429", "500"]
    assert counts["200"] > counts["400"] > counts["429"] > counts["500"] > 0


@pytest.mark.parametrize(
    ("trainer", "nodes", "ranks"),
    [("tr2x4sft", 2, 4), ("tr4x8rl0", 4, 8), ("tr1solo8", 0, 8), ("tr0sleep", 0, 0)],
)
def test_trainers_have_their_nodes_and_ranks(trainer: str, nodes: int, ranks: int) -> None:
    metrics = loops(TargetId("loops", "", trainer))
    expected = [str(rank) for rank in range(ranks)]
    assert len(metrics["per_node_metrics"]) == nodes
    for node in (metrics, *metrics["per_node_metrics"]):
        assert list(node["gpu_utilization"]) == list(node["gpu_memory_usage_bytes"]) == expected


def test_one_rank_of_one_node_lags_behind() -> None:
    nodes = loops(TargetId("loops", "", "tr4x8rl0"))["per_node_metrics"]
    latest = {
        (number, rank): points[-1]["value"]
        for number, node in enumerate(nodes)
        for rank, points in node["gpu_utilization"].items()
    }
    slowest, next_one = sorted(latest, key=latest.__getitem__)[:2]
    assert slowest == (2, "5")
    assert latest[slowest] < 0.6 * latest[next_one]


def test_a_trainer_asleep_has_empty_lists_everywhere() -> None:
    metrics = loops(TargetId("loops", "", "tr0sleep"))
    assert metrics.pop("ephemeral_storage") == {"usage_bytes": [], "utilization": []}
    assert not any(metrics.values())


def test_volumes_are_per_the_divisor_asked_for() -> None:
    per_second, per_minute = (
        loops(TRAINERS[0], time_divisor_seconds=each, **recent(300)) for each in (1, 60)
    )
    for name in ("inference_volume", "inference_volume_by_status"):
        for second, minute in zip(per_second[name], per_minute[name], strict=True):
            assert second.pop("timestamp") == minute.pop("timestamp")
            assert minute == {field: pytest.approx(60 * value) for field, value in second.items()}


def test_the_newest_points_of_a_trainer_understate_its_requests() -> None:
    window = recent(300, int(NOW * 1000))
    early, later = (loops(TRAINERS[0], now=NOW + wait, step_seconds=30, **window) for wait in (0, 120))
    assert early["inference_volume"][-1]["value"] == 0 < later["inference_volume"][-1]["value"]
    assert early["response_time_stats"][-1]["p50"] is None
    assert early["gpu_utilization"] == later["gpu_utilization"]


def test_lists_may_come_newest_first() -> None:
    stamps = [point["timestamp"] for point in loops(TargetId("loops", "", "tr1solo8"))["cpu_usage"]]
    assert stamps == sorted(stamps, reverse=True) != sorted(stamps)


# Refusals

QUERIES = {
    "mode=LATEST": "mode must be one of",
    "mode=CURRENT&mode=SERIES": "mode must be one of",
    "metrics=baseten_replicas_active&metrics=typo": "unknown metrics: typo",
    "metrics=": "unknown metrics",
    "mode=CURRENT&start_epoch_millis=1": "must be omitted",
    "end_epoch_millis=1": "must be omitted",
    "mode=SUMMARY&start_epoch_millis=5&end_epoch_millis=5": "must be after",
    "mode=SERIES&start_epoch_millis=6&end_epoch_millis=5": "must be after",
    "mode=SERIES&start_epoch_millis=0&end_epoch_millis=604800001": "7 days",
    "mode=SERIES&start_epoch_millis=yesterday": "must be an integer",
    "mode=SERIES&start_epoch_millis=1&start_epoch_millis=2": "must be an integer",
}
BODIES: list[tuple[object, str]] = [
    ([], "must be a JSON object"),
    ({"step_seconds": 0}, "step_seconds must be"),
    ({"step_seconds": True}, "step_seconds must be"),
    ({"step_seconds": 1, **recent(86_400)}, "too small"),
    ({"time_divisor_seconds": 0.5}, "time_divisor_seconds must be"),
    ({"start_epoch_millis": "1"}, "start_epoch_millis must be"),
    ({"start_epoch_millis": 2, "end_epoch_millis": 1}, "must be after"),
    ({"start_epoch_millis": 0, "end_epoch_millis": 604_800_001}, "7 days"),
]
PATHS = {
    "/": 404,
    "/v1/models/none": 404,
    "/v1/models/none/deployments": 404,
    "/v1/models/none/environments": 404,
    "/v1/models/q7chat32/deployments/none": 404,
    "/v1/models/none/deployments/w5prod01/metrics": 404,
    "/v1/loops/deployments/none": 404,
    "/v1/loops/deployments/tr2x4sft/metrics": 405,
    "/v1/loops/deployments?scope=all": 400,
}


@pytest.mark.parametrize(("query", "message"), QUERIES.items())
def test_a_bad_query_is_refused(query: str, message: str) -> None:
    response = ask(f"{path_of(CHAT)}?{query}")
    assert (response.status, message in json.loads(response.body)["error"]) == (400, True)


@pytest.mark.parametrize(("body", "message"), BODIES)
def test_a_bad_body_is_refused(body: object, message: str) -> None:
    response = ask(path_of(TRAINERS[0]), body=body)
    assert (response.status, message in json.loads(response.body)["error"]) == (400, True)


def test_nulls_in_the_body_mean_the_defaults() -> None:
    nulls = dict.fromkeys(("start_epoch_millis", "end_epoch_millis", "step_seconds", "time_divisor_seconds"))
    assert ask(path_of(TRAINERS[0]), body=nulls) == ask(path_of(TRAINERS[0]), body={})


@pytest.mark.parametrize(("path", "status"), PATHS.items())
def test_what_does_not_exist_is_refused(path: str, status: int) -> None:
    assert ask(path).status == status


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {KEY}", 200),
        (f"Api-Key {KEY}", 200),
        ("Bearer other", 401),
        ("Bearer", 401),
        (f"Basic {KEY}", 401),
        ("", 401),
    ],
)
def test_only_the_key_opens(header: str, status: int) -> None:
    endpoint, response = Api(WORLD, KEY).answer(Request("GET", "/v1/models", {"authorization": header}), NOW)
    assert (endpoint, response.status) == ("models", status)


def test_the_rate_limit_is_per_endpoint_and_second() -> None:
    api = Api(WORLD, KEY, limit=2)

    def status(path: str, now: float) -> int:
        return api.answer(Request("GET", path, {"authorization": f"Bearer {KEY}"}), now)[1].status

    assert [status("/v1/models", 10.9) for _ in range(3)] == [200, 200, 429]
    assert status("/v1/instance_type_prices", 10.9) == 200
    assert status("/v1/models", 11) == 200


def test_a_refusal_for_the_rate_says_when_to_come_back() -> None:
    request = Request("GET", "/v1/models", {"authorization": f"Bearer {KEY}"})
    refused = json.loads(Api(WORLD, KEY, limit=0).answer(request, NOW)[1].body)
    assert refused.keys() == {"error", "retry_after"}
    assert refused["retry_after"] > 0


# On the wire


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(WORLD, key=KEY, clock=lambda: NOW) as running:
        yield running


@pytest.fixture
def client(simulator: Simulator) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=simulator.url, headers=headers, timeout=10, trust_env=False) as client:
        yield client


def test_answers_travel_unchanged_and_are_counted(simulator: Simulator, client: httpx.Client) -> None:
    assert client.get("/v1/models").content == ask("/v1/models").body
    assert client.post(path_of(TRAINERS[0]), json={}).content == ask(path_of(TRAINERS[0]), body={}).body
    assert client.get("/v1/models", headers={"Authorization": "Bearer x"}).status_code == 401
    assert client.delete("/v1/models").status_code == 405
    assert simulator.requests == {
        ("models", 200): 1,
        ("loops_metrics", 200): 1,
        ("models", 401): 1,
        ("models", 405): 1,
    }


def test_a_connection_is_kept(simulator: Simulator) -> None:
    host, port = httpx.URL(simulator.url).host, httpx.URL(simulator.url).port
    question = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection((host, port or 0), 2) as connection, connection.makefile("rb") as answers:
        for _ in range(2):
            connection.sendall(question)
            head = list(iter(answers.readline, b"\r\n"))
            assert head[0] == b"HTTP/1.1 401 Unauthorized\r\n"
            answers.read(int(head[-1].removeprefix(b"Content-Length: ")))


def test_it_speaks_tls() -> None:
    authority = trustme.CA()
    server, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(trusting)
    with Simulator(WORLD, key=KEY, ssl_context=server) as simulator:
        headers = {"Authorization": f"Bearer {KEY}"}
        response = httpx.get(f"{simulator.url}/v1/models", headers=headers, verify=trusting, trust_env=False)
    assert response.json() == found(ask("/v1/models"))


STATUSES = {
    "401": 401,
    "403": 403,
    "404": 404,
    "422": 422,
    "429": 429,
    "429 body": 429,
    "429 header": 429,
    "429 date": 429,
    "500": 500,
    "502": 502,
    "503": 503,
    "504": 504,
    "html 200": 200,
    "html 502": 502,
    "redirect 301": 301,
    "empty body": 200,
    "truncated json": 200,
    "json null": 200,
    "json list": 200,
    "dense json": 200,
    "json empty object": 200,
    "nan literal": 200,
    "null numbers": 200,
    "unknown enum": 200,
    "duplicate series": 200,
    "many label sets": 200,
    "hostile labels": 200,
    "slow": 200,
    "invalid utf-8": 200,
    "deep nesting": 200,
}
BROKEN = {
    "stall": httpx.ReadTimeout,
    "stall mid-body": httpx.ReadTimeout,
    "reset": httpx.ReadError,
    "close": httpx.RemoteProtocolError,
    "cut off": httpx.RemoteProtocolError,
    "not http": httpx.RemoteProtocolError,
    "huge chunked body": httpx.RemoteProtocolError,
    "not gzip": httpx.DecodingError,
}
OTHERS = {"dribble", "gzip bomb", "huge body"}


def test_every_fault_is_tested() -> None:
    assert STATUSES.keys() | BROKEN.keys() | OTHERS == FAULTS.keys()


@pytest.mark.parametrize(("fault", "status"), STATUSES.items())
def test_faults_that_are_whole_responses(
    simulator: Simulator, client: httpx.Client, fault: str, status: int
) -> None:
    simulator.fail("/models", fault)
    assert client.get("/v1/models").status_code == status
    assert simulator.requests == {("models", status): 1}


@pytest.mark.parametrize(("fault", "error"), BROKEN.items())
def test_faults_that_are_none(
    simulator: Simulator, client: httpx.Client, fault: str, error: type[Exception]
) -> None:
    simulator.fail("/models", fault)
    patience = httpx.Timeout(10, read=0.3 if error is httpx.ReadTimeout else 10)
    with pytest.raises(error):
        client.get("/v1/models", timeout=patience)


def test_the_forms_of_a_rate_limit(simulator: Simulator, client: httpx.Client) -> None:
    forms = []
    for fault in ("429", "429 body", "429 header", "429 date"):
        simulator.fail("/models", fault)
        response = client.get("/v1/models")
        forms.append((response.json().get("retry_after"), response.headers.get("Retry-After")))
    assert forms == [(None, None), (37, None), (None, "37"), (None, "Mon, 21 Sep 2026 14:13:57 GMT")]


def test_a_number_may_be_nan(simulator: Simulator, client: httpx.Client) -> None:
    simulator.fail("", "nan literal")
    assert b'"values":[[NaN]' in client.get(path_of(CHAT)).content
    assert b'"value":NaN' in client.post(path_of(TRAINERS[0]), json={}).content


@pytest.mark.parametrize(
    ("fault", "sent"),
    [
        ("null numbers", (b'"step_seconds":null', b'"value":null', b'"deployments_count":null')),
        ("unknown enum", (b'"kind":"NEVER_HEARD_OF"', b"", b"")),
        ("duplicate series", (b'response_time_seconds"', b'"node_id":"tr2x4sft-node-0"', b'"id":"q7chat32"')),
        ("many label sets", (b'{"n":"n99999"}', b'"n99999":[{"value":', b'"n99999":"x"')),
        ("hostile labels", (b"of \xff and x", b"of \xff and x", b"of \xff and x")),
    ],
)
def test_what_a_fault_does_to_each_kind_of_answer(
    simulator: Simulator, client: httpx.Client, fault: str, sent: tuple[bytes, bytes, bytes]
) -> None:
    simulator.fail("", fault)
    answers = (
        client.get(path_of(CHAT)).content,
        client.post(path_of(TRAINERS[0]), json={}).content,
        client.get("/v1/models").content,
    )
    times = 2 if fault == "duplicate series" else 1
    assert all(answer.count(what) >= times for answer, what in zip(answers, sent, strict=True) if what)
    assert client.get("/v1/models/nowhere/deployments").json() == {"error": "model not found"}


def test_a_body_may_come_byte_by_byte(simulator: Simulator, client: httpx.Client) -> None:
    simulator.fail("/models", "dribble")
    with client.stream("GET", "/v1/models") as response:
        assert next(response.iter_raw()) == b"{"


@pytest.mark.parametrize(("fault", "size"), [("gzip bomb", 64 << 20), ("huge body", 40 << 20)])
def test_a_body_may_be_huge(simulator: Simulator, client: httpx.Client, fault: str, size: int) -> None:
    simulator.fail("/models", fault)
    assert len(client.get("/v1/models", timeout=20).content) == size


def test_a_fault_may_last_a_few_times_only(simulator: Simulator, client: httpx.Client) -> None:
    simulator.fail("/models", "500", times=2)
    assert [client.get("/v1/models").status_code for _ in range(3)] == [500, 500, 200]


def test_a_fault_hits_only_what_it_is_aimed_at_until_healed(
    simulator: Simulator, client: httpx.Client
) -> None:
    simulator.fail(lambda request: request.method == "POST", "503")
    assert client.get("/v1/models").status_code == 200
    assert client.post(path_of(TRAINERS[0]), json={}).status_code == 503
    simulator.heal()
    assert client.post(path_of(TRAINERS[0]), json={}).status_code == 200


def test_a_fault_may_be_any_function(simulator: Simulator, client: httpx.Client) -> None:
    simulator.fail("/models", lambda wire: wire.reply(Response(418, wire.response.body[:10])))
    assert client.get("/v1/models").content == b'{"models":'


def test_leaving_does_not_wait_for_stalled_clients() -> None:
    with Simulator(WORLD, key=KEY) as simulator, httpx.Client(trust_env=False) as client:
        simulator.fail("", "stall")
        with suppress(httpx.ReadTimeout):
            client.get(simulator.url, timeout=httpx.Timeout(10, read=0.5))
        assert simulator.requests == {("unknown", 0): 1}


def test_it_runs_on_its_own_until_terminated() -> None:
    command = [sys.executable, "-m", "exporter.simulator", "--targets=10", f"--key={KEY}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip() if process.stdout else ""
        headers = {"Authorization": f"Bearer {KEY}"}
        assert len(httpx.get(f"{url}/v1/models", headers=headers, trust_env=False).json()["models"]) == 8
        process.terminate()
    assert process.returncode == 0


def test_every_endpoint_has_its_own_name() -> None:
    assert len({endpoint.name for endpoint in ENDPOINTS}) == len(ENDPOINTS)
