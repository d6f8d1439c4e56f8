"""The staleness contract, row by row, and when the page changes."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from exporter import exposition
from exporter.exposition import Format, blocks
from exporter.model import Family, LoopsOptions, ModelOptions, Sample, Snapshot, Target
from exporter.store import Entry, Store

if TYPE_CHECKING:
    from tests.conftest import Clock

STALE_AFTER = 300.0
MODEL = Target("team", "m1", "d1", ModelOptions(), (("tier", "gold"),))
OTHER = Target("team", "m2", "d2", ModelOptions())
LOOPS = Target("team", "", "l1", LoopsOptions())
LABELS = 'deployment_id="d1",kind="model",model_id="m1",workspace="team"'
KEPT = ["timeout", "connection", "tls", "auth", "forbidden", "rate_limited", "client_error", "server_error"]
KEPT += ["invalid_response", "too_large"]


def snapshot(target: Target, value: float = 7.0, newest: float | None = 1_789_999_900.0) -> Snapshot:
    families = [Family("baseten_model_x", "X.", (Sample((), value),))]
    return Snapshot(exposition.pieces(families, target.labels), 1, newest)


def empty() -> Snapshot:
    return Snapshot({}, 0, None)


def new_store(clock: "Clock", *targets: Target) -> Store:
    store = Store(clock)
    store.retarget(targets or [MODEL], STALE_AFTER)
    return store


def lines(store: Store) -> list[str]:
    page = b"".join(blocks(store.families()[1], Format.TEXT)).decode()
    return [line for line in page.splitlines() if not line.startswith("#")]


def data(store: Store) -> list[str]:
    return [line for line in lines(store) if not line.startswith("baseten_exporter_")]


def own(store: Store, name: str) -> list[str]:
    return [line for line in lines(store) if line.startswith(f"baseten_exporter_{name}{{")]


def entry(store: Store, target: Target = MODEL) -> Entry:
    return next(entry for entry in store.view()[1] if entry.target.key == target.key)


LINE = 'baseten_model_x{deployment_id="d1",model_id="m1",tier="gold",workspace="team"} 7.0'


# The table of the contract


@pytest.mark.parametrize("reason", KEPT)
def test_a_failed_poll_keeps_the_series_until_stale_after_since_the_last_good_one(
    clock: "Clock", reason: str
) -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    clock.now += STALE_AFTER - 1
    store.fail(MODEL, reason, "no", 0.1)
    assert data(store) == [LINE]
    clock.now += 1
    assert data(store) == []


@pytest.mark.parametrize("reason", KEPT)
def test_a_failed_poll_says_down_at_once(clock: "Clock", reason: str) -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    assert own(store, "target_up") == [f"baseten_exporter_target_up{{{LABELS}}} 1.0"]
    store.fail(MODEL, reason, "no", 0.1)
    assert own(store, "target_up") == [f"baseten_exporter_target_up{{{LABELS}}} 0.0"]


@pytest.mark.parametrize("reason", ["auth", "forbidden"])
def test_a_refused_key_is_news_once_and_again_after_a_recovery(clock: "Clock", reason: str) -> None:
    store = new_store(clock)
    news = [
        store.fail(MODEL, reason, "no", 0.1),
        store.fail(MODEL, reason, "no", 0.1),
        store.succeed(MODEL, snapshot(MODEL), 0.1),
        store.succeed(MODEL, snapshot(MODEL), 0.1),
        store.fail(MODEL, reason, "no", 0.1),
    ]
    assert news == [True, False, True, False, True]


def test_another_reason_is_news_but_not_each_time_two_of_them_take_turns(clock: "Clock") -> None:
    store = new_store(clock)
    reasons = ("auth", "timeout", "timeout", "auth", "timeout")
    assert [store.fail(MODEL, reason, "no", 0.1) for reason in reasons] == [True, True, False, False, False]


def test_a_target_not_found_loses_its_series_at_once_and_is_down(clock: "Clock") -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    store.fail(MODEL, "not_found", "no", 0.1, gone=True)
    assert data(store) == []
    assert own(store, "target_up") == [f"baseten_exporter_target_up{{{LABELS}}} 0.0"]
    assert own(store, "target_series") == [f"baseten_exporter_target_series{{{LABELS}}} 0.0"]


def test_a_removed_target_is_gone_at_once_with_its_self_metrics(clock: "Clock") -> None:
    store = new_store(clock, MODEL, OTHER)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    store.succeed(OTHER, empty(), 0.1)
    store.retarget([OTHER], STALE_AFTER)
    assert [line for line in lines(store) if "d1" in line] == []
    assert own(store, "target_up") != []


def test_what_the_newest_answer_lacks_is_absent(clock: "Clock") -> None:
    """A value that turned null or too old is in no snapshot, so swapping snapshots drops its series."""
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    store.succeed(MODEL, empty(), 0.1)
    assert data(store) == []
    assert own(store, "target_up") == [f"baseten_exporter_target_up{{{LABELS}}} 1.0"]


@pytest.mark.parametrize("target", [MODEL, replace(MODEL, options=ModelOptions(mode="current"))])
def test_a_poll_in_flight_for_a_removed_target_leaves_nothing(clock: "Clock", target: Target) -> None:
    store = new_store(clock, MODEL)
    store.retarget([OTHER], STALE_AFTER)
    before = store.version, lines(store)
    assert not store.succeed(target, snapshot(target), 0.1)
    assert not store.fail(target, "timeout", "no", 0.1)
    assert (store.version, lines(store)) == before


def test_a_poll_in_flight_with_options_of_before_leaves_nothing(clock: "Clock") -> None:
    store = new_store(clock)
    changed = replace(MODEL, options=ModelOptions(mode="summary"))
    store.retarget([changed], STALE_AFTER)
    assert not store.succeed(MODEL, snapshot(MODEL), 0.1)
    assert not store.ready()
    assert lines(store) == []


# Beside the table


def test_expiry_needs_no_poll_and_is_a_change(clock: "Clock") -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    version, _ = store.view()
    clock.now += STALE_AFTER
    assert store.version != version
    assert data(store) == []


def test_each_target_expires_at_its_own_time(clock: "Clock") -> None:
    store = new_store(clock, MODEL, OTHER)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    clock.now += 100
    store.succeed(OTHER, snapshot(OTHER), 0.1)
    shown = []
    for seconds in (199, 1, 99, 1):
        clock.now += seconds
        shown.append(len(data(store)))
    assert shown == [2, 1, 1, 0]


def test_an_expired_target_keeps_its_times_and_its_health(clock: "Clock") -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    success = clock.now
    clock.now += STALE_AFTER
    assert own(store, "target_up") == [f"baseten_exporter_target_up{{{LABELS}}} 1.0"]
    assert own(store, "target_series") == [f"baseten_exporter_target_series{{{LABELS}}} 0.0"]
    assert entry(store).last_success == success


def test_a_good_poll_brings_expired_series_back(clock: "Clock") -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    clock.now += STALE_AFTER
    assert data(store) == []
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    assert data(store) == [LINE]


def test_a_good_poll_puts_expiry_off(clock: "Clock") -> None:
    store = new_store(clock)
    for _ in range(3):
        store.succeed(MODEL, snapshot(MODEL), 0.1)
        clock.now += STALE_AFTER - 1
    assert data(store) == [LINE]


@pytest.mark.parametrize(
    ("stale_after", "shown"), [(60.0, [False, False]), (200.0, [True, False]), (600.0, [True, True])]
)
def test_a_new_stale_after_holds_at_once_and_counts_from_the_last_good_poll(
    clock: "Clock", stale_after: float, shown: list[bool]
) -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    clock.now += 100
    store.retarget([MODEL], stale_after)
    found = [data(store) == [LINE]]
    clock.now += 100
    assert [*found, data(store) == [LINE]] == shown


def test_changed_options_keep_the_snapshot(clock: "Clock") -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    before = lines(store)
    store.retarget([replace(MODEL, options=ModelOptions(window=60))], STALE_AFTER)
    assert lines(store) == before
    assert entry(store).target.options == ModelOptions(window=60)


def test_a_target_never_polled_exposes_nothing(clock: "Clock") -> None:
    assert lines(new_store(clock)) == []


def test_a_failed_first_poll_exposes_health_and_no_times(clock: "Clock") -> None:
    store = new_store(clock)
    store.fail(MODEL, "timeout", "no", 0.1)
    assert lines(store) == [
        f"baseten_exporter_target_series{{{LABELS}}} 0.0",
        f"baseten_exporter_target_up{{{LABELS}}} 0.0",
    ]


def test_the_health_of_a_loops_target_has_no_model_id(clock: "Clock") -> None:
    store = new_store(clock, LOOPS)
    store.succeed(LOOPS, empty(), 0.1)
    labels = 'deployment_id="l1",kind="loops",workspace="team"'
    assert own(store, "target_up") == [f"baseten_exporter_target_up{{{labels}}} 1.0"]


@pytest.mark.parametrize(
    ("newest", "latest"), [([5.0, 9.0], 9.0), ([9.0, 5.0], 9.0), ([9.0, None], 9.0), ([None, None], None)]
)
def test_the_newest_sample_is_the_newest_ever(
    clock: "Clock", newest: list[float | None], latest: float | None
) -> None:
    store = new_store(clock)
    for time in newest:
        store.succeed(MODEL, snapshot(MODEL, newest=time), 0.1)
    assert entry(store).newest_sample == latest
    shown = own(store, "target_newest_sample_timestamp_seconds")
    assert [float(line.split()[-1]) for line in shown] == ([] if latest is None else [latest])


def test_success_and_failure_leave_their_marks_on_the_entry(clock: "Clock") -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.25)
    good = clock.now
    clock.now += 60
    store.fail(MODEL, "timeout", "too slow", 0.5)
    found = entry(store)
    assert (found.up, found.reason, found.error) == (False, "timeout", "too slow")
    assert (found.last_poll, found.last_success, found.duration) == (clock.now, good, 0.5)
    store.succeed(MODEL, snapshot(MODEL), 0.25)
    assert (entry(store).up, entry(store).reason, entry(store).error) == (True, "", "")


def test_the_version_changes_with_the_page_and_only_then(clock: "Clock") -> None:
    store = new_store(clock)
    versions = [store.version]

    def changed() -> bool:
        versions.append(store.version)
        return versions[-1] != versions[-2]

    assert not changed()
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    assert changed()
    store.view()
    store.ready()
    clock.now += STALE_AFTER - 1
    assert not changed()
    store.fail(MODEL, "timeout", "no", 0.1)
    assert changed()
    store.fail(OTHER, "timeout", "no", 0.1)
    assert not changed()
    clock.now += 1
    assert changed()
    clock.now += STALE_AFTER
    assert not changed()
    store.retarget([OTHER], STALE_AFTER)
    assert changed()


def test_a_view_is_of_one_version(clock: "Clock") -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    version, entries = store.view()
    store.succeed(MODEL, snapshot(MODEL, 8.0), 0.1)
    assert version != store.version
    assert b" 7.0\n" in entries[0].pieces["baseten_model_x"].lines


@pytest.mark.parametrize("good", [True, False])
def test_ready_means_that_every_target_was_polled(clock: "Clock", good: bool) -> None:  # noqa: FBT001 - a table
    store = new_store(clock, MODEL, OTHER)
    assert not store.ready()
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    assert not store.ready()
    if good:
        store.succeed(OTHER, empty(), 0.1)
    else:
        store.fail(OTHER, "timeout", "no", 0.1)
    assert store.ready()


def test_a_new_target_makes_it_unready_until_polled(clock: "Clock") -> None:
    store = new_store(clock)
    store.succeed(MODEL, snapshot(MODEL), 0.1)
    store.retarget([MODEL, OTHER], STALE_AFTER)
    assert not store.ready()


# The page by metric family


def piece_of(target: Target, text: str) -> Snapshot:
    return Snapshot(exposition.pieces([Family("x", text, (Sample((), 1.0),))], target.labels), 1, None)


def test_a_family_has_one_help_the_first_of_those_that_are_there(clock: "Clock") -> None:
    store = new_store(clock, MODEL, OTHER)

    def help_text() -> str | None:
        share = store.families()[1].get("x")
        return share and share.help

    said = [help_text()]
    for target, text in [(MODEL, "b"), (OTHER, "a"), (OTHER, "c"), (MODEL, "d")]:
        store.succeed(target, piece_of(target, text), 0.1)
        said.append(help_text())
    store.retarget([MODEL], STALE_AFTER)
    said.append(help_text())
    store.succeed(MODEL, empty(), 0.1)
    said.append(help_text())
    assert said == [None, "b", "a", "b", "c", "d", None]
