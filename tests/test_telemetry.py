"""The exporter's own metrics: their names are the contract, and known series start at 0."""

from collections.abc import Callable

import pytest
from prometheus_client import generate_latest

from exporter import __version__
from exporter.baseten.client import METRICS_ENDPOINTS
from exporter.baseten.errors import REASONS
from exporter.baseten.harvest import DROP_REASONS
from exporter.model import KINDS
from exporter.telemetry import SKIP_REASONS, Telemetry

NAMES = {
    "build_info": "gauge",
    "polls_total": "counter",
    "poll_failures_total": "counter",
    "poll_duration_seconds": "histogram",
    "polls_skipped_total": "counter",
    "api_requests_total": "counter",
    "api_request_duration_seconds": "histogram",
    "api_rate_limit_wait_seconds_total": "counter",
    "api_retries_total": "counter",
    "api_paused_until_timestamp_seconds": "gauge",
    "workspace_circuit_open": "gauge",
    "poll_interval_seconds": "gauge",
    "shard_info": "gauge",
    "shard_targets": "gauge",
    "effective_interval_seconds": "gauge",
    "config_last_reload_successful": "gauge",
    "config_last_reload_success_timestamp_seconds": "gauge",
    "dropped_samples_total": "counter",
    "discovery_last_success_timestamp_seconds": "gauge",
    "discovery_failures_total": "counter",
    "discovered_targets": "gauge",
    "unknown_api_items_total": "counter",
}
"""As in the contract; those about single targets come from the store."""


@pytest.fixture
def telemetry() -> Telemetry:
    telemetry = Telemetry()
    telemetry.watch(["red", "blue"])
    return telemetry


def page(telemetry: Telemetry) -> str:
    return generate_latest(telemetry.registry).decode()


def series(telemetry: Telemetry, name: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in page(telemetry).splitlines()]
    return {
        labels.removeprefix(f"baseten_exporter_{name}"): float(value)
        for labels, _, value in lines
        if labels.startswith(f"baseten_exporter_{name}{{")
    }


def value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(f"baseten_exporter_{name}", labels)


def test_the_names_are_those_of_the_contract(telemetry: Telemetry) -> None:
    types = [line.split()[2:] for line in page(telemetry).splitlines() if line.startswith("# TYPE baseten_")]
    assert {name.removeprefix("baseten_exporter_"): kind for name, kind in types} == NAMES


@pytest.mark.parametrize(
    "name",
    ["process_cpu_seconds_total", "process_open_fds", "python_info", "python_gc_objects_collected_total"],
)
def test_the_process_and_its_python_are_there(telemetry: Telemetry, name: str) -> None:
    assert f"# TYPE {name} " in page(telemetry)


def test_build_info_tells_the_version(telemetry: Telemetry) -> None:
    (labels,) = series(telemetry, "build_info")
    assert f'version="{__version__}"' in labels


def expected(name: str, workspace: str) -> set[str]:
    reasons = {"poll_failures_total": REASONS, "polls_skipped_total": SKIP_REASONS}
    if name in reasons:
        return {
            f'{{kind="{kind}",reason="{reason}",workspace="{workspace}"}}'
            for kind in KINDS
            for reason in reasons[name]
        }
    if name == "workspace_circuit_open":
        return {f'{{workspace="{workspace}"}}'}
    if name.startswith("api_"):
        return {f'{{endpoint="{endpoint}",workspace="{workspace}"}}' for endpoint in METRICS_ENDPOINTS}
    return {f'{{kind="{kind}",workspace="{workspace}"}}' for kind in KINDS}


@pytest.mark.parametrize(
    "name",
    [
        "polls_total",
        "poll_failures_total",
        "polls_skipped_total",
        "poll_duration_seconds_count",
        "api_rate_limit_wait_seconds_total",
        "api_retries_total",
        "workspace_circuit_open",
        "api_request_duration_seconds_count",
    ],
)
def test_known_series_of_a_workspace_start_at_0(telemetry: Telemetry, name: str) -> None:
    found = series(telemetry, name)
    assert set(found) == expected(name, "red") | expected(name, "blue")
    assert set(found.values()) == {0.0}


def test_dropped_samples_start_at_0(telemetry: Telemetry) -> None:
    assert series(telemetry, "dropped_samples_total") == {
        f'{{reason="{reason}"}}': 0.0 for reason in DROP_REASONS
    }


EVENTS: list[Callable[[Telemetry, str], None]] = [
    lambda telemetry, workspace: telemetry.polled(workspace, "model", 0.1, None),
    lambda telemetry, workspace: telemetry.polled(workspace, "loops", 0.1, "timeout"),
    lambda telemetry, workspace: telemetry.skipped(workspace, "model", "overlap"),
    lambda telemetry, workspace: telemetry.retried(workspace, "model_metrics"),
    lambda telemetry, workspace: telemetry.paused(workspace, "model_metrics", 10),
    lambda telemetry, workspace: telemetry.circuits({workspace: lambda: True}),
    lambda telemetry, workspace: telemetry.requested(workspace, "model_metrics", "200", 0.1),
    lambda telemetry, workspace: telemetry.waited(workspace, "loops_metrics", 0.1),
]


def test_a_workspace_that_is_no_longer_watched_is_forgotten(telemetry: Telemetry) -> None:
    for event in EVENTS:
        event(telemetry, "red")
        event(telemetry, "blue")
    telemetry.watch(["blue", "green"])
    text = page(telemetry)
    assert 'workspace="red"' not in text
    assert 'workspace="green"' in text
    assert value(telemetry, "polls_total", workspace="blue", kind="model") == 1


def test_watching_again_keeps_the_counts(telemetry: Telemetry) -> None:
    telemetry.polled("red", "model", 0.1, None)
    telemetry.watch(["red", "blue"])
    assert value(telemetry, "polls_total", workspace="red", kind="model") == 1


def test_a_failed_poll_counts_as_a_poll_too(telemetry: Telemetry) -> None:
    telemetry.polled("red", "loops", 2.0, "timeout")
    assert value(telemetry, "polls_total", workspace="red", kind="loops") == 1
    assert value(telemetry, "poll_failures_total", workspace="red", kind="loops", reason="timeout") == 1
    assert value(telemetry, "poll_duration_seconds_sum", workspace="red", kind="loops") == 2


def test_requests_count_by_code(telemetry: Telemetry) -> None:
    for code in ("200", "200", "timeout"):
        telemetry.requested("red", "model_metrics", code, 0.5)
    labels = {"workspace": "red", "endpoint": "model_metrics"}
    assert value(telemetry, "api_requests_total", **labels, code="200") == 2
    assert value(telemetry, "api_requests_total", **labels, code="timeout") == 1
    assert value(telemetry, "api_request_duration_seconds_sum", **labels) == 1.5


def test_a_pause_is_told_by_its_end() -> None:
    telemetry = Telemetry(clock=lambda: 1000.0)
    telemetry.watch(["red"])
    assert series(telemetry, "api_paused_until_timestamp_seconds") == {}
    telemetry.paused("red", "model_metrics", 37)
    (end,) = series(telemetry, "api_paused_until_timestamp_seconds").values()
    assert end == 1037


def test_a_circuit_opens_and_closes(telemetry: Telemetry) -> None:
    told = []
    for is_open in (True, False):
        telemetry.circuits({"red": lambda is_open=is_open: is_open})  # type: ignore[misc]
        told.append(value(telemetry, "workspace_circuit_open", workspace="red"))
    assert told == [1, 0]


def test_intervals_are_those_of_what_is_polled_now(telemetry: Telemetry) -> None:
    telemetry.intervals(60, {("red", "model"): 120.5, ("blue", "loops"): 60})
    telemetry.intervals(30, {("red", "model"): 90})
    assert value(telemetry, "poll_interval_seconds") == 30
    assert series(telemetry, "effective_interval_seconds") == {'{kind="model",workspace="red"}': 90}


def test_the_web_config_and_its_certificate_are_there_once_they_are_told(telemetry: Telemetry) -> None:
    assert "_web_" not in page(telemetry)
    for expiry, good in ((100.0, True), (200.0, False)):
        telemetry.certificate(expiry)
        telemetry.web_config(good=good)
    assert value(telemetry, "web_certificate_expiry_timestamp_seconds") == 200
    assert value(telemetry, "web_config_last_reload_successful") == 0


def test_a_bad_load_keeps_the_time_of_the_last_good_one(telemetry: Telemetry) -> None:
    told = []
    for now, good in ((100.0, True), (200.0, False), (300.0, True)):
        telemetry.loaded(now, good=good)
        names = ("config_last_reload_successful", "config_last_reload_success_timestamp_seconds")
        told.append([value(telemetry, name) for name in names])
    assert told == [[1, 100], [0, 100], [1, 300]]
