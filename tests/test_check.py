"""What `check --live` says of a key and a config."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter import check
from exporter.app import Exporter
from exporter.config import load
from exporter.logs import Redactor
from exporter.sharding import WHOLE, Shard
from exporter.simulator import Simulator, Wire, World

KEY = "check-key"
Live = Callable[..., tuple[list[str], bool]]


@pytest.fixture
def api() -> Iterator[Simulator]:
    with Simulator(World.demo(), key=KEY, limit=None) as simulator:
        yield simulator


@pytest.fixture
def live(api: Simulator, tmp_path: Path) -> Live:
    def run(*lines: str, environ: str = KEY, shard: Shard = WHOLE) -> tuple[list[str], bool]:
        path = tmp_path / "config.yaml"
        head = ["workspaces:", "  - name: team", "    api_key_env: KEY", f"    api_url: {api.url}"]
        path.write_text("\n".join([*head, *(f"    {line}" for line in lines)]))
        exporter = Exporter(lambda: load(path, {"KEY": environ}), Redactor(), shard=shard)
        try:
            return check.live(exporter)
        finally:
            exporter.close()

    return run


EVERYTHING = "discovery: {models: {}, loops: {scope: org}}"


def test_it_lists_the_targets_and_every_endpoint_s_cost(live: Live) -> None:
    lines, good = live(EVERYTHING)
    assert good
    assert "team/model/q7chat32/w5prod01" in lines
    assert "targets: 11, each polled every 60 s" in lines
    costs = dict(line.split(" requests/minute")[0].split(", ") for line in lines if "requests/minute" in line)
    assert costs == {
        "team: model_metrics": "16.0",  # 8 deployments, two requests each
        "team: loops_metrics": "3.0",
        "team: models": "0.2",
        "team: deployments": "1.6",  # 8 models every 5 minutes
        "team: environments": "1.6",
        "team: loops_deployments": "0.2",
        "team: instance_type_prices": "0.2",
    }


def test_it_says_what_one_shard_polls_and_that_it_lists_everything(live: Live) -> None:
    shards = [live(EVERYTHING, shard=Shard(index, 3))[0] for index in range(3)]
    everything, _ = live(EVERYTHING)
    polled = [line for lines in shards for line in lines if line.startswith("team/")]
    assert sorted(polled) == sorted(line for line in everything if line.startswith("team/"))
    for lines in shards:
        (cost,) = (line for line in lines if line.startswith("team: deployments, "))
        assert cost.startswith("team: deployments, 1.6 requests/minute: 0.4% of")  # of a third of the rate


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/v1/models$", "models"),
        ("deployments$", "deployments"),
        ("environments$", "environments"),
        ("/v1/loops/deployments", "loops_deployments"),
        ("prices", "instance_type_prices"),
    ],
)
def test_it_names_what_the_key_may_not_list(live: Live, api: Simulator, path: str, endpoint: str) -> None:
    api.fail(path, "403")
    lines, good = live(EVERYTHING)
    assert not good
    assert any(line.startswith(f"team: could not list {endpoint}: HTTP 403") for line in lines)


def test_it_polls_one_target_of_each_kind_and_says_what_fails(live: Live, api: Simulator) -> None:
    api.fail("loops/deployments/.*/metrics", "403")
    lines, good = live(EVERYTHING)
    assert not good
    assert [line.split(": HTTP")[0] for line in lines if "could not poll" in line] == [
        "team/loops/tr2x4sft: could not poll"
    ]
    polled = {endpoint: count for (endpoint, _), count in api.requests.items() if "metrics" in endpoint}
    assert polled == {"model_metrics": 2, "loops_metrics": 1}


def test_it_names_metrics_that_this_version_and_the_api_do_not_know(live: Live) -> None:
    names = "[baseten_replica_active, baseten_gpu_utilization]"
    entry = f"{{model_id: q7chat32, deployment_id: w5prod01, metrics: {names}}}"
    lines, good = live(f"models: [{entry}]")
    assert good
    hint = "did you mean baseten_replicas_active?"
    assert f"  metric baseten_replica_active is not known to this version, {hint}" in lines
    assert "team: the API does not know the metric baseten_replica_active" in lines


def test_it_lists_what_the_api_sends_that_this_version_does_not_know(live: Live, api: Simulator) -> None:
    def add_a_field(wire: Wire) -> None:
        answer = json.loads(wire.response.body) | {"next_page": None}
        wire.reply(wire.response._replace(body=json.dumps(answer).encode()))

    api.fail("prices", add_a_field)
    lines, good = live(EVERYTHING)
    assert good
    assert "team: instance_type_prices sends an unknown field: $.next_page" in lines


def test_a_wrong_key_is_said_once_for_listing_and_polling(live: Live) -> None:
    lines, good = live(
        "models: [{model_id: q7chat32, deployment_id: w5prod01}]", EVERYTHING, environ="wrong-key"
    )
    assert not good
    assert sum("HTTP 401" in line for line in lines) == 2


def test_of_what_could_not_be_listed_it_does_not_say_that_it_is_not_there(live: Live, api: Simulator) -> None:
    api.fail("/v1/models$", "503")
    lines, good = live("models: [{model_id: q7chat32, environment: production}]")
    assert not good
    assert [line for line in lines if "environment" in line] == []
    assert "team: could not list models: HTTP 503" in lines


def test_it_names_what_matches_nothing(live: Live) -> None:
    lines, good = live(
        "models: [{model_id: q7chat32, environment: nowhere}]",
        "discovery: {models: {include: [nope]}, loops: {include: [nope]}}",
    )
    assert good
    assert lines[-3:] == [
        "team: discovery of model targets matches nothing",
        "team: discovery of loops targets matches nothing",
        "team: nothing is in environment nowhere of model q7chat32",
    ]
