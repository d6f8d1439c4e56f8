"""Discovery against a simulated API: what failing, empty and changed listings do to targets and page."""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from exporter import exposition
from exporter.app import Exporter
from exporter.baseten.circuit import THRESHOLD
from exporter.baseten.client import Client
from exporter.baseten.errors import Stopping
from exporter.baseten.inventory import METRICS, Inventory
from exporter.baseten.selection import Wanted
from exporter.config import load
from exporter.exposition import Format
from exporter.logs import Redactor
from exporter.model import Discovery as Selectors
from exporter.model import ModelSelector
from exporter.polling.discovery import DEFAULT_INTERVAL, Discovery
from exporter.sharding import WHOLE
from exporter.simulator import Fault, Simulator, World, life
from exporter.simulator.faults import body, status
from exporter.telemetry import Telemetry
from tests.conftest import Clock

if TYPE_CHECKING:
    from tests.conftest import Eventually

START = 1_790_000_000.0
MIDST = START + life.PROMOTION_STARTS + 30
"""A moment when everything runs, and a promotion too."""

ALL = "{models: {}, loops: {}}"
BYSTANDER, FIRST, SECOND, SAMPLER = (
    f"model/{model_id}/{deployment_id}"
    for model_id, deployment_id in (life.BYSTANDER, life.FIRST, life.SECOND, life.SAMPLER)
)
TRAINER = f"loops/{life.TRAINER}"
STATIC = f"{{model_id: {life.FIRST[0]}, deployment_id: {life.FIRST[1]}}}"
FOLLOWED = f"{{model_id: {life.MODEL}, environment: production}}"
EVERYTHING = [BYSTANDER, FIRST, SECOND, SAMPLER, TRAINER]

UNLISTED = "not everything could be listed: what is known of the rest stays"
LISTED_AGAIN = "everything could be listed again"
NOTHING = "a selector of discovery matches nothing"

LISTINGS = {
    "models": (r"^/v1/models$", 1),
    "deployments": (r"^/v1/models/\w+/deployments$", 3),
    "environments": (r"^/v1/models/\w+/environments$", 3),
    "loops_deployments": (r"^/v1/loops/deployments", 1),
    "instance_type_prices": (r"^/v1/instance_type_prices$", 1),
}
"""Each listing: where it is, and how often it is asked for in a run."""

DESCRIBED = frozenset(metric.family for metric in METRICS)


class Bench:
    """An exporter that discovers, at a time set by hand."""

    def __init__(self, folder: Path, api: Simulator, clock: Clock) -> None:
        self.api = api
        self.clock = clock
        self._path = folder / "config.yaml"
        self.write()
        self.exporter = Exporter(lambda: load(self._path, {"KEY": api.key}), Redactor(), clock)

    def write(self, *, timeout: str = "10s", models: str = "", loops: str = "", **more: str) -> None:
        """Write the config: one workspace, which discovers everything unless told otherwise."""
        keys = {"discovery": ALL, "metadata_labels": "[]"} | more
        lines = [f"    {key}: {value}" for key, value in keys.items() if value]
        self._path.write_text(
            "\n".join(
                [
                    f"poll: {{timeout: {timeout}}}",
                    "workspaces:",
                    "  - name: w",
                    "    api_key_env: KEY",
                    f"    api_url: {self.api.url}",
                    "    requests_per_second: 100",
                    f"    models: [{models}]",
                    f"    loops: [{loops}]",
                    *lines,
                ]
            )
        )

    def write_other(self) -> None:
        """Write a config with another workspace in place of the first."""
        self._path.write_text(self._path.read_text().replace("name: w", "name: other"))

    def reload(self, **keys: str) -> None:
        self.write(**keys)
        self.exporter.reload()

    def list_at(self, offset: float) -> None:
        """List everything as it is so many seconds after the start."""
        self.clock.now = START + offset
        self.exporter.list_once()

    def poll(self) -> None:
        for target in self.exporter.targets:
            self.exporter.poller.poll(target)

    def targets(self) -> list[str]:
        return [str(target).partition("/")[2] for target in self.exporter.targets]

    def page(self) -> list[str]:
        """All series but those of the polls' own health, in order."""
        families = self.exporter.store.families()[1]
        text = b"".join(exposition.blocks(families, Format.TEXT)).decode()
        lines = (line for line in text.splitlines() if not line.startswith(("#", "baseten_exporter_")))
        return sorted(lines)

    def described(self) -> list[str]:
        return [line for line in self.page() if line.partition("{")[0] in DESCRIBED]

    def value(self, name: str, **labels: str) -> float | None:
        registry = self.exporter.telemetry.registry
        return registry.get_sample_value(f"baseten_exporter_{name}", {"workspace": "w", **labels})

    def failures(self) -> dict[str, float]:
        """What could not be listed so far, by reason."""
        metrics = self.exporter.telemetry.registry.collect()
        samples = [each for metric in metrics for each in metric.samples]
        return {
            each.labels["reason"]: each.value
            for each in samples
            if each.name == "baseten_exporter_discovery_failures_total" and each.value
        }


@pytest.fixture
def clock() -> Clock:
    return Clock(MIDST)


@pytest.fixture
def api(clock: Clock) -> Iterator[Simulator]:
    with Simulator(World.life(START), limit=None, clock=clock) as simulator:
        yield simulator


@pytest.fixture
def bench(tmp_path: Path, api: Simulator, clock: Clock) -> Iterator[Bench]:
    bench = Bench(tmp_path, api, clock)
    yield bench
    bench.exporter.close()


@pytest.fixture
def started(bench: Bench) -> Iterator[Bench]:
    """An exporter that runs, and has nothing to list yet."""
    bench.reload(discovery="", models=STATIC)
    bench.exporter.start()
    yield bench
    assert bench.exporter.stop()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "exporter.polling.discovery")
    return caplog


# Listings with something wrong in them


@pytest.mark.parametrize(
    ("path", "fault", "reason"),
    [
        ("/instance_type_prices", "nan literal", "not_finite"),
        ("/deployments$", "duplicate series", "duplicate"),
        ("/environments$", "duplicate series", "duplicate"),
    ],
)
def test_what_a_listing_says_in_vain_is_counted(bench: Bench, path: str, fault: str, reason: str) -> None:
    bench.list_at(0)
    registry = bench.exporter.telemetry.registry

    def dropped() -> dict[str, float]:
        samples = [each for metric in registry.collect() for each in metric.samples]
        name = "baseten_exporter_dropped_samples_total"
        return {each.labels["reason"]: each.value for each in samples if each.name == name and each.value}

    assert dropped() == {}
    bench.api.fail(path, fault)
    bench.list_at(0)
    assert dropped().keys() == {reason}


# Listings that fail


def test_what_is_not_listed_since_nothing_gets_through_is_named(bench: Bench) -> None:
    bench.api.fail("", "401")
    for _ in range(THRESHOLD + 1):
        bench.exporter.list_once()
    error = bench.exporter.discoveries["w"].error
    assert error is not None
    assert (error.endpoint, str(error).partition(",")[0]) == ("models", "not asked")


def _named(*faults: str) -> dict[str, str | Fault]:
    return {fault: fault for fault in faults}


REASONS: dict[str, dict[str, str | Fault]] = {
    "timeout": _named("stall", "stall mid-body"),
    "connection": _named("reset", "close", "cut off", "not http"),
    "auth": _named("401"),
    "forbidden": _named("403"),
    "not_found": _named("404"),
    "rate_limited": {"429": status(429, {"error": "rate limit exceeded", "retry_after": 0})},
    "client_error": _named("422"),
    "server_error": _named("500", "503", "html 502"),
    "invalid_response": _named(
        *("redirect 301", "html 200", "empty body", "truncated json", "json null", "json list"),
        *("json empty object", "invalid utf-8", "deep nesting", "not gzip"),
    ),
    "too_large": _named("gzip bomb", "huge body", "huge chunked body"),
}
FAILING = [
    pytest.param(listing, fault, reason, id=f"{listing}-{name}")
    for listing in LISTINGS
    for reason, faults in REASONS.items()
    for name, fault in faults.items()
]


@pytest.mark.parametrize(("listing", "fault", "reason"), FAILING)
def test_a_failing_listing_keeps_all_there_is_until_it_heals(
    bench: Bench, log: pytest.LogCaptureFixture, listing: str, fault: str | Fault, reason: str
) -> None:
    bench.reload(timeout="500ms" if reason == "timeout" else "10s")
    bench.exporter.list_once()
    before = bench.exporter.targets, bench.described()
    bench.clock.now += 1
    where, requests = LISTINGS[listing]
    bench.api.fail(where, fault)
    for _ in range(2):
        bench.exporter.list_once()
    assert (bench.exporter.targets, bench.described()) == before
    assert bench.targets() == EVERYTHING
    assert bench.failures() == {reason: 2 * requests}
    assert [(record.message, record.__dict__["reason"]) for record in log.records] == [(UNLISTED, reason)]
    assert bench.value("discovery_last_success_timestamp_seconds") == MIDST
    bench.api.heal()
    bench.exporter.list_once()
    assert (bench.exporter.targets, bench.described()) == before
    assert log.messages == [UNLISTED, LISTED_AGAIN]
    assert bench.value("discovery_last_success_timestamp_seconds") == MIDST + 1


@pytest.mark.parametrize(
    ("listing", "fault"), [("models", "401"), ("models", "reset"), ("models", "500"), ("deployments", "403")]
)
def test_what_was_never_listed_is_found_once_it_answers(bench: Bench, listing: str, fault: str) -> None:
    bench.api.fail(LISTINGS[listing][0], fault)
    bench.exporter.list_once()
    assert not [each for each in bench.targets() if each in (BYSTANDER, FIRST, SECOND)]
    bench.api.heal()
    bench.exporter.list_once()
    assert bench.targets() == EVERYTHING


@pytest.mark.parametrize(
    ("fault", "asked"),
    [("401", 0), ("reset", 0), ("500", 1), ("403", 1)],
    ids=["hopeless", "hopeless too", "other listings may answer", "they may be allowed"],
)
def test_other_listings_are_asked_unless_they_would_fail_alike(bench: Bench, fault: str, asked: int) -> None:
    bench.api.fail(LISTINGS["models"][0], fault)
    bench.exporter.list_once()
    assert bench.api.requests["loops_deployments", 200] == asked
    assert bench.api.requests["instance_type_prices", 200] == asked


def test_a_listing_that_a_429_paused_is_not_asked_and_counts_as_failed(
    bench: Bench, log: pytest.LogCaptureFixture
) -> None:
    bench.exporter.list_once()
    bench.api.fail(LISTINGS["loops_deployments"][0], "429")
    for _ in range(2):
        bench.exporter.list_once()
    assert bench.targets() == EVERYTHING
    assert bench.api.requests["loops_deployments", 429] == 1
    assert bench.failures() == {"rate_limited": 2}
    assert log.messages == [UNLISTED]


def test_a_new_reason_is_news_and_the_warning_is_about_it(
    bench: Bench, log: pytest.LogCaptureFixture
) -> None:
    bench.api.fail(LISTINGS["instance_type_prices"][0], "403")
    bench.exporter.list_once()
    bench.api.fail(LISTINGS["loops_deployments"][0], "500")
    bench.api.fail(LISTINGS["models"][0], "403", times=1)
    bench.exporter.list_once()
    reasons = [record.__dict__["reason"] for record in log.records if record.message == UNLISTED]
    assert reasons == ["forbidden", "server_error"]
    assert bench.failures() == {"forbidden": 3, "server_error": 1}


def test_a_first_run_that_fails_leaves_what_the_config_names_to_be_polled(
    bench: Bench, log: pytest.LogCaptureFixture
) -> None:
    chat = f"{{model_id: {life.FIRST[0]}, deployment_id: {life.FIRST[1]}}}"
    bench.reload(models=chat, metadata_labels="[model_name]")
    assert bench.targets() == []
    bench.api.fail(LISTINGS["models"][0], "401")
    bench.exporter.list_once()
    (target,) = bench.exporter.targets
    assert target.metadata == ()
    assert log.messages == [UNLISTED]
    bench.api.heal()
    bench.exporter.list_once()
    assert bench.exporter.targets[0].metadata == (("model_name", life.NAME),)
    assert bench.targets() == [FIRST, *(each for each in EVERYTHING if each != FIRST)]


# Listings that fail in part


def test_models_that_could_not_be_listed_keep_what_they_have_while_others_change(bench: Bench) -> None:
    bench.list_at(life.ACTIVE)
    assert bench.targets() == [BYSTANDER, FIRST, SAMPLER, TRAINER]
    bench.api.fail(f"{life.MODEL}/deployments", "500")
    bench.list_at(life.LOOPS_SCALED_TO_ZERO)
    assert bench.targets() == [BYSTANDER, FIRST]
    bench.api.heal()
    bench.list_at(life.LOOPS_SCALED_TO_ZERO)
    assert bench.targets() == [BYSTANDER, FIRST, SECOND]


def test_a_model_whose_deployments_could_not_be_listed_still_takes_its_new_name(bench: Bench) -> None:
    bench.reload(metadata_labels="[model_name]")
    bench.list_at(life.MODEL_RENAMED - 1)
    bench.api.fail(f"{life.MODEL}/deployments", "500")
    bench.list_at(life.MODEL_RENAMED)
    renamed = [dict(target.metadata) for target in bench.exporter.targets if target.model_id == life.MODEL]
    assert renamed == [{"model_name": life.NEW_NAME}]


def test_a_model_that_is_no_longer_listed_is_gone_though_others_could_not_be_listed(bench: Bench) -> None:
    bench.list_at(life.MODEL_DELETED - 1)
    bench.api.fail(f"{life.BYSTANDER[0]}/deployments", "500")
    bench.list_at(life.MODEL_DELETED)
    assert bench.targets() == [BYSTANDER]
    assert not [line for line in bench.described() if life.MODEL in line]


# Listings that are empty


@pytest.mark.parametrize(
    ("listing", "answer", "targets", "families"),
    [
        ("models", {"models": []}, [TRAINER, SAMPLER], ("loops_", "instance_type_")),
        (
            "deployments",
            {"deployments": []},
            [TRAINER, SAMPLER],
            ("loops_", "instance_type_", "model_environment_"),
        ),
        ("environments", {"environments": []}, EVERYTHING, ("loops_", "instance_type_", "model_deployment_")),
        ("loops_deployments", {"deployments": []}, EVERYTHING[:-1], ("instance_type_", "model_")),
        ("instance_type_prices", {"instance_types": []}, EVERYTHING, ("loops_", "model_")),
    ],
)
def test_a_listing_that_answers_with_nothing_is_believed(
    bench: Bench, listing: str, answer: Any, targets: list[str], families: tuple[str, ...]
) -> None:
    bench.exporter.list_once()
    kept = [line for line in bench.described() if line.removeprefix("baseten_").startswith(families)]
    kept = [line for line in kept if listing != "instance_type_prices" or "_price_" not in line]
    bench.api.fail(LISTINGS[listing][0], status(200, answer))
    bench.exporter.list_once()
    assert bench.targets() == targets
    assert bench.described() == kept
    assert bench.failures() == {}


def test_what_the_api_calls_in_words_of_tomorrow_is_taken_as_it_comes(bench: Bench) -> None:
    bench.reload(discovery="{models: {statuses: [TOMORROW]}}")
    listed = b'{"deployments": [{"id": "d", "status": "TOMORROW", "shape": [1]}], "next": null}'
    bench.api.fail(f"{life.BYSTANDER[0]}/deployments", body(listed))
    bench.exporter.list_once()
    assert bench.targets() == [f"model/{life.BYSTANDER[0]}/d"]
    assert [line for line in bench.described() if 'status="TOMORROW"' in line]


# Selectors


@pytest.mark.parametrize(
    ("discovery", "kind", "include"),
    [
        ("{models: {include: [nothing]}, loops: {}}", "model", ["nothing"]),
        ("{models: {environments: [nowhere]}}", "model", "everything"),
        ("{models: {}, loops: {include: [nothing]}}", "loops", ["nothing"]),
    ],
)
def test_a_selector_that_matches_nothing_is_said_once_and_shown_as_0(
    bench: Bench, log: pytest.LogCaptureFixture, discovery: str, kind: str, include: object
) -> None:
    bench.reload(discovery=discovery)
    for _ in range(3):
        bench.exporter.list_once()
    assert bench.value("discovered_targets", kind=kind) == 0
    (record,) = [record for record in log.records if record.message == NOTHING]
    said = {name: record.__dict__[name] for name in ("workspace", "kind", "include")}
    assert said == {"workspace": "w", "kind": kind, "include": include}


def test_a_selector_that_found_something_and_then_nothing_is_news(
    bench: Bench, log: pytest.LogCaptureFixture
) -> None:
    shown = []
    for offset in (
        life.LOOPS_RUNNING,
        life.LOOPS_SCALED_TO_ZERO,
        life.LOOPS_RUNNING_AGAIN,
        life.LOOPS_FAILED,
    ):
        bench.list_at(offset)
        shown.append(bench.value("discovered_targets", kind="loops"))
    assert shown == [1, 0, 1, 0]
    assert log.messages.count(NOTHING) == 2


def test_an_outage_does_not_say_that_selectors_match_nothing(
    bench: Bench, log: pytest.LogCaptureFixture
) -> None:
    bench.api.fail("/v1/", "500")
    bench.exporter.list_once()
    assert log.messages == [UNLISTED]


def test_a_warning_is_not_repeated_after_an_outage(bench: Bench, log: pytest.LogCaptureFixture) -> None:
    bench.reload(discovery="{models: {include: [nothing]}}")
    bench.exporter.list_once()
    bench.api.fail("/v1/", "500", times=1)
    for _ in range(2):
        bench.exporter.list_once()
    assert log.messages.count(NOTHING) == 1


def test_only_selectors_there_are_have_a_count(bench: Bench) -> None:
    kinds = ("model", "loops")
    bench.exporter.list_once()
    assert [bench.value("discovered_targets", kind=kind) for kind in kinds] == [4, 1]
    bench.reload(discovery="{models: {include: [bystander]}}")
    assert [bench.value("discovered_targets", kind=kind) for kind in kinds] == [1, None]
    bench.reload(discovery="", models=STATIC)
    assert [bench.value("discovered_targets", kind=kind) for kind in kinds] == [None, None]


# What is asked


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        pytest.param({"discovery": "", "models": STATIC}, {}, id="ids alone"),
        pytest.param(
            {"discovery": "", "models": STATIC, "metadata_labels": "[environment]"},
            {"models": 1, "deployments": 1},
            id="labels of a model",
        ),
        pytest.param(
            {"discovery": "", "models": FOLLOWED},
            {"models": 1, "deployments": 1, "environments": 1},
            id="an environment",
        ),
        pytest.param(
            {
                "discovery": "",
                "loops": f"{{deployment_id: {life.TRAINER}}}",
                "metadata_labels": "[base_model]",
            },
            {"loops_deployments": 1},
            id="labels of a trainer",
        ),
        pytest.param(
            {"discovery": "{loops: {}, prices: false}"}, {"loops_deployments": 1}, id="trainers alone"
        ),
        pytest.param(
            {"discovery": "{models: {include: [bystander]}, environments: false, prices: false}"},
            {"models": 1, "deployments": 1},
            id="a model alone",
        ),
        pytest.param(
            {}, {name: requests for name, (_, requests) in LISTINGS.items()}, id="everything there is"
        ),
    ],
)
def test_no_more_is_asked_than_is_needed(bench: Bench, keys: dict[str, str], asked: dict[str, int]) -> None:
    bench.reload(**keys)
    bench.exporter.list_once()
    assert bench.api.requests == {(name, 200): times for name, times in asked.items()}


# Targets that come and go


def test_targets_keep_what_they_have_and_their_schedule_while_others_come_and_go(bench: Bench) -> None:
    bench.list_at(life.LOOPS_SCALED_TO_ZERO - 1)
    bench.poll()
    before = {str(entry.target): entry for entry in bench.exporter.store.view()[1]}
    planned = {str(each): bench.exporter.scheduler.next_poll(each) for each in bench.exporter.targets}
    bench.list_at(life.LOOPS_SCALED_TO_ZERO)
    bench.list_at(life.LOOPS_RUNNING_AGAIN)
    after = {str(entry.target): entry for entry in bench.exporter.store.view()[1]}
    kept = {f"w/{each}" for each in (BYSTANDER, FIRST, SECOND)}
    assert after.keys() == before.keys() == kept | {f"w/{SAMPLER}", f"w/{TRAINER}"}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert (before[f"w/{SAMPLER}"].up, after[f"w/{SAMPLER}"].up) == (True, None)
    for target in bench.exporter.targets:
        if str(target) in kept:
            assert bench.exporter.scheduler.next_poll(target) == planned[str(target)]
        else:
            assert (bench.exporter.scheduler.next_poll(target) or 0) <= bench.clock.now + 3


def test_a_poll_in_flight_of_a_target_that_vanished_leaves_nothing(bench: Bench) -> None:
    bench.list_at(life.LOOPS_STOPPED - 1)
    gone = bench.exporter.targets
    bench.list_at(life.MODEL_DELETED)
    for target in gone:
        bench.exporter.poller.poll(target)
    assert {str(entry.target) for entry in bench.exporter.store.view()[1]} == {f"w/{BYSTANDER}"}


# Reload


def test_a_reload_that_changes_selectors_chooses_from_what_is_known(bench: Bench) -> None:
    bench.exporter.list_once()
    described = bench.described()
    asked = bench.api.requests
    bench.reload(discovery="{models: {include: [bystander]}}", models=STATIC)
    assert bench.targets() == [FIRST, BYSTANDER]
    assert bench.described() == described
    assert bench.api.requests == asked
    bench.exporter.list_once()
    assert not [line for line in bench.described() if "loops_" in line or life.MODEL in line]


def test_a_reload_that_changes_nothing_of_it_keeps_discovery_as_it_is(bench: Bench) -> None:
    bench.exporter.list_once()
    before = bench.exporter.discoveries["w"], bench.exporter.targets
    bench.reload()
    assert (bench.exporter.discoveries["w"], bench.exporter.targets) == before


def test_a_reload_that_changes_how_to_connect_lists_again_and_keeps_what_is_known(bench: Bench) -> None:
    bench.exporter.list_once()
    before, targets = bench.exporter.discoveries["w"], bench.exporter.targets
    bench.reload(timeout="9s")
    assert bench.exporter.discoveries["w"] is not before
    assert bench.exporter.targets == targets


def test_what_is_no_longer_to_be_listed_is_gone_with_the_next_listing(bench: Bench) -> None:
    bench.exporter.list_once()
    bench.reload(discovery="{models: {}, environments: false, prices: false}")
    bench.exporter.list_once()
    assert bench.targets() == EVERYTHING[:-1]
    families = {line.partition("{")[0] for line in bench.described()}
    assert not [name for name in families if "_environment_" in name or "price" in name or "loops" in name]


def test_a_reload_during_an_outage_of_what_was_never_listed_waits_for_the_listing(bench: Bench) -> None:
    bench.reload(models=STATIC)
    assert (bench.targets(), bench.exporter.ready()) == ([], False)


def test_a_workspace_that_went_takes_its_targets_and_its_metrics_along(bench: Bench) -> None:
    bench.exporter.list_once()
    bench.write_other()
    bench.exporter.reload()
    assert (bench.targets(), bench.described()) == ([], [])
    assert bench.value("discovered_targets", kind="model") is None
    assert bench.value("discovery_last_success_timestamp_seconds") is None


def test_a_run_that_begins_as_its_workspace_goes_ends_at_once(bench: Bench) -> None:
    discovery = bench.exporter.discoveries["w"]
    bench.write_other()
    bench.exporter.reload()
    with pytest.raises(Stopping):
        discovery.run_once()


# Running


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Callable[[], list[str]]:
    return lambda: [thread.name for thread in threading.enumerate() if thread.name.startswith("discovery ")]


def test_it_is_ready_once_all_was_listed_and_then_polled(bench: Bench) -> None:
    assert not bench.exporter.ready()
    bench.exporter.list_once()
    assert not bench.exporter.ready()
    bench.poll()
    assert bench.exporter.ready()


def test_it_is_ready_though_nothing_could_be_listed(bench: Bench) -> None:
    bench.api.fail("/v1/", "500")
    bench.exporter.list_once()
    assert bench.exporter.ready()


def test_it_lists_at_once_and_then_at_every_interval(started: Bench, eventually: "Eventually") -> None:
    started.reload(discovery="{interval: 10ms, models: {include: [bystander]}}")
    eventually(lambda: started.api.requests["models", 200] >= 3)
    assert started.targets() == [BYSTANDER]
    assert eventually(started.exporter.ready)


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ({"discovery": "{interval: 90s, models: {}}"}, 90),
        ({"discovery": "{models: {}}"}, 300),
        ({"discovery": "", "models": FOLLOWED}, DEFAULT_INTERVAL),
    ],
)
def test_the_interval_is_the_configs(bench: Bench, keys: dict[str, str], seconds: float) -> None:
    bench.reload(**keys)
    assert bench.exporter.discoveries["w"].interval == seconds


def test_a_reload_while_it_runs_ends_the_old_thread_and_starts_another(
    started: Bench, names: Callable[[], list[str]], eventually: "Eventually"
) -> None:
    for pattern in ("nothing", "bystander", "nothing", "bystander"):
        started.reload(discovery=f"{{models: {{include: [{pattern}]}}}}")
    eventually(lambda: started.targets() == [BYSTANDER])
    eventually(lambda: names() == ["discovery w"])
    started.reload(discovery="", models=STATIC)
    eventually(lambda: names() == [])


def test_a_stop_ends_the_thread_though_a_listing_hangs(
    bench: Bench, names: Callable[[], list[str]], eventually: "Eventually"
) -> None:
    bench.api.fail("/v1/", "stall")
    bench.reload(timeout="500ms")
    bench.exporter.start()
    eventually(lambda: bench.api.requests["models", 0])
    assert bench.exporter.stop()
    eventually(lambda: names() == [])
    assert bench.failures() == {}


# On its own


class Alone:
    """A discovery without an exporter around it, and what it told."""

    def __init__(self, client: Client, *, inventory: Inventory | None = None) -> None:
        selector = ModelSelector((), (), (), ("ACTIVE",))
        selectors = Selectors(0.01, selector, None, environments=False, prices=False)
        self.telemetry = Telemetry()
        self.telemetry.watch(["w"])
        self.found: list[bool] = []
        self.discovery = Discovery(
            Wanted("w", (), (), selectors),
            client,
            self.telemetry,
            lambda: START,
            self.on_found,
            inventory,
            WHOLE,
        )

    def on_found(self, discovery: Discovery) -> None:
        self.found.append(discovery.attempted)

    def told(self) -> list[str]:
        names = ("discovered_targets", "discovery_failures", "discovery_last_success_timestamp_seconds")
        metrics = {metric.name: metric for metric in self.telemetry.registry.collect()}
        return [name for name in names if any(it.value for it in metrics[f"baseten_exporter_{name}"].samples)]


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.exporter.poller.apis["w"].client


def test_it_counts_as_attempted_only_after_what_was_found_was_taken(client: Client) -> None:
    alone = Alone(client)
    alone.discovery.run_once()
    assert (alone.found, alone.discovery.attempted) == ([False], True)


def test_what_is_the_same_as_before_is_not_told_again(client: Client) -> None:
    alone = Alone(client)
    for _ in range(3):
        alone.discovery.run_once()
    assert len(alone.found) == 1


def test_what_is_known_already_is_there_at_once(client: Client) -> None:
    first = Alone(client)
    first.discovery.run_once()
    second = Alone(client, inventory=first.discovery.inventory)
    assert second.discovery.attempted
    assert second.discovery.targets == first.discovery.targets != ()
    assert second.discovery.description == first.discovery.description != {}


def test_a_discovery_that_is_stopped_meanwhile_tells_nothing(bench: Bench, client: Client) -> None:
    alone = Alone(client)
    bench.api.fail(lambda request: alone.discovery.stop(), "500")  # stop returns None: it never applies
    with pytest.raises(Stopping):
        alone.discovery.run_once()
    assert (alone.found, alone.told(), alone.discovery.attempted) == ([], [], False)
    assert bench.api.requests["deployments", 200] == 0


def test_a_discovery_that_is_stopped_during_its_last_listing_tells_nothing(
    bench: Bench, client: Client
) -> None:
    alone = Alone(client)
    bench.api.fail(LISTINGS["models"][0], status(200, {"models": []}))
    bench.api.fail(lambda request: alone.discovery.stop(), "500")
    with pytest.raises(Stopping):
        alone.discovery.run_once()
    assert (alone.found, alone.told()) == ([], [])


def test_an_exporter_that_stops_ends_the_run(bench: Bench) -> None:
    bench.exporter._stop.set()
    discovery = bench.exporter.discoveries["w"]
    with pytest.raises(Stopping):
        discovery.run_once()
    assert bench.api.requests == {}


def test_a_bug_costs_one_run_and_is_logged(
    client: Client, log: pytest.LogCaptureFixture, eventually: "Eventually"
) -> None:
    class Buggy:
        """Fails once, in a way that no API does, and is the real client from then on."""

        bugs = iter([ValueError("surprise")])

        def __getattr__(self, name: str) -> Any:
            for bug in self.bugs:
                raise bug
            return getattr(client, name)

    alone = Alone(cast("Client", Buggy()))
    alone.discovery.start()
    eventually(lambda: alone.found)
    alone.discovery.stop()
    (bug,) = [record for record in log.records if record.levelno == logging.ERROR]
    assert bug.exc_info is not None
    assert str(bug.exc_info[1]) == "surprise"


def test_what_has_nothing_to_list_starts_no_thread(names: Callable[[], list[str]], client: Client) -> None:
    alone = Alone(client)
    idle = Discovery(
        replace(alone.discovery.wanted, discovery=None),
        client,
        alone.telemetry,
        lambda: START,
        alone.on_found,
        None,
        WHOLE,
    )
    idle.start()
    assert idle.attempted
    assert "discovery w" not in names()
