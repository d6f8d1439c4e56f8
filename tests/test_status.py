"""What people and programs are told about each workspace and target."""

import json
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from msgspec.structs import replace

from exporter import __version__
from exporter.model import LoopsOptions, ModelOptions, Snapshot, Target
from exporter.sharding import Shard
from exporter.store import Entry
from exporter.web.page import age, render
from exporter.web.status import EndpointStatus, Status, WorkspaceStatus, moment, status, to_json
from exporter.web.style import STYLE
from exporter.web.view import LIMIT, SORTABLE, View
from tools import status_schema

if TYPE_CHECKING:
    from tests.conftest import Clock

NOW = 1_790_000_000.0
MODEL = Target("team", "m1", "d1", ModelOptions(), (("team", "search"),), (("model_name", "Llama"),))
LOOPS = Target("team", "", "l1", LoopsOptions())
GOOD = Entry(MODEL, Snapshot({}, 5, 50.0), up=True, last_poll=60.0, last_success=60.0, newest_sample=50.0)
BAD = Entry(LOOPS, up=False, reason="timeout", error="too slow", last_poll=60.0, duration=10.0)

MODEL_METRICS = EndpointStatus(
    endpoint="model_metrics",
    kind="model",
    targets=1,
    interval_seconds=60,
    effective_interval_seconds=84.21,
    needed_requests_per_second=19,
    allowed_requests_per_second=20,
    budget_share=1.33,
    paused_until=moment(NOW + 42),
)
CLOSED = WorkspaceStatus(
    workspace="team",
    circuit="closed",
    circuit_reason=None,
    circuit_since=None,
    next_probe=None,
    last_listed=moment(NOW - 200),
    listing_error=None,
    endpoints=(MODEL_METRICS,),
)
OPEN = WorkspaceStatus(
    workspace="research",
    circuit="open",
    circuit_reason="connection refused",
    circuit_since=moment(NOW - 750),
    next_probe=moment(NOW + 21),
    last_listed=None,
    listing_error="models: connection refused",
    endpoints=(),
)

IDS = {"workspace": "team", "kind": "model", "model_id": "m1", "deployment_id": "d1"}
LABELS = {"team": "search", "model_name": "Llama"}
NEVER = dict.fromkeys(
    [
        *("reason", "error", "last_poll", "last_success", "newest_sample", "next_poll"),
        *("poll_duration_seconds", "effective_interval_seconds"),
    ]
)
HOSTILE = '<script>alert("1")</script>&\'{count}%s'


def facts(*entries: Entry, workspaces: tuple[WorkspaceStatus, ...] = ()) -> Status:
    return status(entries, lambda _: None, workspaces)


def told(entry: Entry, next_poll: float | None = None, *workspaces: WorkspaceStatus) -> Any:
    answer = json.loads(to_json(status([entry], lambda _: next_poll, workspaces)))
    assert answer["version"] == __version__
    return answer["targets"][0]


@pytest.mark.parametrize(
    ("shard", "title"),
    [
        pytest.param(Shard(), f"baseten-exporter {__version__} ", id="alone"),
        pytest.param(Shard(2, 4), f"baseten-exporter {__version__}, shard 2 of 4 ", id="one of several"),
    ],
)
def test_it_says_which_shard_it_is(shard: Shard, title: str) -> None:
    facts = status([], lambda _: None, [], shard)
    answer = json.loads(to_json(facts))
    assert (answer["shard"], answer["total_shards"]) == (shard.index, shard.total)
    assert title in text(render(facts, View(), NOW, "/metrics"))


def page(*entries: Entry, query: dict[str, str] | None = None, workspaces: Any = ()) -> str:
    return render(facts(*entries, workspaces=workspaces), View.of(query or {}), NOW, "/metrics")


def text(html: str) -> str:
    """What can be read of some HTML, in one line."""
    read = re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)
    return " ".join(read.split()).replace("\N{EN DASH}", "-")


def rows(html: str) -> list[str]:
    """What can be read in each row of the table of targets."""
    return [text(row) for row in re.findall("<tr.*?</tr>", html.partition('class="cards"')[2])[1:]]


# JSON


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param(
            Entry(MODEL), {**IDS, **NEVER, "labels": LABELS, "state": "pending", "series": 0}, id="pending"
        ),
        pytest.param(
            Entry(LOOPS),
            {
                **NEVER,
                "workspace": "team",
                "kind": "loops",
                "model_id": None,
                "deployment_id": "l1",
                "labels": {},
                "state": "pending",
                "series": 0,
            },
            id="loops",
        ),
        pytest.param(
            Entry(
                MODEL,
                snapshot=Snapshot({}, 5, 50.0),
                up=True,
                last_poll=60.0,
                last_success=60.0,
                newest_sample=50.0,
                duration=0.25,
            ),
            {
                **IDS,
                **NEVER,
                "labels": LABELS,
                "state": "up",
                "series": 5,
                "last_poll": "1970-01-01T00:01:00Z",
                "last_success": "1970-01-01T00:01:00Z",
                "newest_sample": "1970-01-01T00:00:50Z",
                "poll_duration_seconds": 0.25,
            },
            id="up",
        ),
        pytest.param(
            Entry(MODEL, up=False, reason="timeout", error="too slow", last_poll=60.0, duration=10.0),
            {
                **IDS,
                **NEVER,
                "labels": LABELS,
                "state": "down",
                "series": 0,
                "reason": "timeout",
                "error": "too slow",
                "last_poll": "1970-01-01T00:01:00Z",
                "poll_duration_seconds": 10.0,
            },
            id="down",
        ),
    ],
)
def test_json_says_what_is_known_and_null_for_the_rest(entry: Entry, expected: dict[str, object]) -> None:
    assert told(entry) == expected


def test_json_says_when_the_next_poll_is(clock: "Clock") -> None:
    assert told(Entry(MODEL), clock.now)["next_poll"] == "2026-09-21T14:13:20Z"


def test_json_says_how_often_a_target_is_polled_as_its_workspace_says() -> None:
    assert told(GOOD, None, OPEN, CLOSED)["effective_interval_seconds"] == 84.21
    assert told(BAD, None, OPEN, CLOSED)["effective_interval_seconds"] is None


def test_json_says_of_a_workspace_what_was_put_in() -> None:
    (workspace,) = json.loads(to_json(facts(workspaces=(OPEN,))))["workspaces"]
    assert workspace == {
        "workspace": "research",
        "circuit": "open",
        "circuit_reason": "connection refused",
        "circuit_since": "2026-09-21T14:00:50Z",
        "next_probe": "2026-09-21T14:13:41Z",
        "last_listed": None,
        "listing_error": "models: connection refused",
        "endpoints": [],
    }


@pytest.mark.parametrize("time", [1e30, -1e30, float("inf"), float("nan")])
def test_a_time_beyond_the_calendar_is_unknown(time: float) -> None:
    """Times of values come from the API: a silly one must not cost the page."""
    assert told(Entry(MODEL, newest_sample=time))["newest_sample"] is None


def test_the_schema_in_the_docs_is_the_one_the_types_give() -> None:
    assert status_schema.PAGE.read_text(encoding="utf-8") == status_schema.page(), "run `make docs`"


@pytest.mark.parametrize(
    "entries",
    [(), (Entry(MODEL), Entry(LOOPS)), (GOOD, BAD)],
    ids=["no targets", "pending", "up and down"],
)
def test_an_answer_is_as_the_schema_says(entries: tuple[Entry, ...]) -> None:
    schema = json.loads(status_schema.PAGE.read_text(encoding="utf-8"))
    validator = Draft202012Validator(schema, format_checker=FormatChecker())
    answer = json.loads(to_json(facts(*entries, workspaces=(CLOSED, OPEN))))
    validator.validate(answer)
    del answer["targets"]
    (field,) = (error.message for error in validator.iter_errors(answer))
    assert field == "'targets' is a required property"


def test_the_answer_in_the_docs_has_every_field_and_is_as_the_schema_says() -> None:
    docs = (status_schema.PAGE.parent / "status-page.md").read_text(encoding="utf-8")
    example = json.loads(docs.partition("```json\n")[2].partition("```")[0])
    Draft202012Validator(json.loads(status_schema.page()), format_checker=FormatChecker()).validate(example)
    here = json.loads(to_json(facts(GOOD, workspaces=(CLOSED,))))
    assert shape(example) == shape(here)
    assert set(re.findall(r"^\| `(\w+)` \|", docs, re.MULTILINE)) == {field.name for field in fields(View)}


def shape(answer: Any) -> Any:
    """The names of an answer, without what they stand for; labels are the user's."""
    if isinstance(answer, dict):
        return {name: None if name == "labels" else shape(inner) for name, inner in answer.items()}
    return [shape(answer[0])] if isinstance(answer, list) else None


# What the page says


def test_a_target_has_all_that_is_known_in_its_row() -> None:
    entry = Entry(
        MODEL,
        Snapshot({}, 1234, NOW - 200),
        up=False,
        reason="timeout",
        error="too slow",
        last_poll=NOW - 12,
        last_success=NOW - 72,
        newest_sample=NOW - 200_000,
        duration=0.2513,
    )
    html = render(status([entry], lambda _: NOW + 48, [CLOSED]), View(), NOW, "/metrics")
    (row,) = rows(html)
    assert row == (
        "✕ Down d1 m1 Llama team model 12 s ago 14:13:08 72 s ago 14:12:08 2 d ago 2026-09-19 06:40:00 "
        "in 48 s 14:14:08 0.251 s 84.2 s 1,234 timeout too slow"
    )


def test_a_workspace_has_all_that_is_known_in_its_row() -> None:
    html = page(GOOD, BAD, workspaces=(CLOSED, OPEN))
    workspaces = text(html.partition('id="workspaces"')[2].partition("</table>")[0])
    assert workspaces.partition("Paused ")[2] == (
        "research - ✕ Open since 12 min ago at 14:00:50 next probe in 21 s at 14:13:41 connection refused - "
        "✕ Failed models: connection refused "
        "team ✕ Down 1 ✓ Up 1 ✓ Closed 3 min ago 14:10:00 "
        "model_metrics 1 84.2 s … Stretched from 60 s 133% 19 of 20 allowed … Paused ends in 42 s at 14:14:02"
    )


@pytest.mark.parametrize("paused_until", [None, NOW - 1], ids=["never", "no longer"])
def test_what_is_as_usual_is_not_said(paused_until: float | None) -> None:
    endpoint = replace(MODEL_METRICS, effective_interval_seconds=60, paused_until=moment(paused_until))
    said = text(page(workspaces=(replace(CLOSED, endpoints=(endpoint,)),)))
    assert "model_metrics 1 60 s 133% 19 of 20 allowed - Targets" in said
    assert "Stretched" not in said


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (0, "0 s ago"),
        (-12.4, "12 s ago"),
        (-89, "89 s ago"),
        (-90, "2 min ago"),
        (-3600, "60 min ago"),
        (-36 * 3600 + 1, "36 h ago"),
        (-3 * 86_400, "3 d ago"),
        (18, "in 18 s"),
        (400, "in 7 min"),
    ],
)
def test_an_age_is_in_the_unit_one_would_say_it_in(ahead: float, words: str) -> None:
    assert age(ahead) == words


def test_the_title_says_how_many_are_down() -> None:
    assert "<title>2 down · baseten-exporter</title>" in page(BAD, Entry(MODEL, up=False))
    assert "<title>baseten-exporter</title>" in page(GOOD)


def test_it_links_to_the_metrics_wherever_they_are() -> None:
    assert '<a href="custom/path">' in render(facts(), View(), NOW, "/custom/path")


def test_nothing_to_show_is_said() -> None:
    assert "There are no targets yet" in page()
    assert "None of 1 targets matches." in page(GOOD, query={"q": "nowhere"})


def test_hostile_names_and_errors_are_only_text() -> None:
    target = Target(HOSTILE, HOSTILE, HOSTILE, ModelOptions(), (), (("model_name", HOSTILE),))
    entry = Entry(target, up=False, reason="server_error", error=HOSTILE)
    hostile = replace(OPEN, workspace=HOSTILE, circuit_reason=HOSTILE)
    query = dict.fromkeys(("q", "workspace", "state", "kind", "sort", "order", "show"), HOSTILE)
    for asked in (query, {}):
        html = render(facts(entry, workspaces=(hostile,)), View.of(asked), NOW, '/"><script>')
        assert "<script" not in html
        assert "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#x27;{count}%s" in html
    assert html.count("<bdi>&lt;script&gt;") == 7
    assert told(entry)["deployment_id"] == HOSTILE


# Which targets, and in which order

SOME = (
    Entry(Target("b", "m1", "d1", ModelOptions()), up=True, last_poll=3.0),
    Entry(Target("a", "m2", "d2", ModelOptions()), up=True, last_poll=1.0),
    Entry(Target("a", "m3", "d3", ModelOptions()), up=False, reason="auth", error="Bad Key", last_poll=2.0),
    Entry(Target("a", "", "d4", LoopsOptions(), (), (("base_model", "Qwen"),))),
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, ["d3", "d4", "d2", "d1"], id="broken first, then by name"),
        pytest.param({"order": "desc"}, ["d2", "d1", "d4", "d3"], id="broken last"),
        pytest.param({"sort": "deployment_id"}, ["d1", "d2", "d3", "d4"], id="by name"),
        pytest.param({"sort": "deployment_id", "order": "desc"}, ["d4", "d3", "d2", "d1"], id="backwards"),
        pytest.param({"sort": "last_poll"}, ["d2", "d3", "d1", "d4"], id="never is last"),
        pytest.param({"sort": "last_poll", "order": "desc"}, ["d1", "d3", "d2", "d4"], id="last even so"),
        pytest.param({"sort": "nonsense", "order": "odd"}, ["d3", "d4", "d2", "d1"], id="unknown order"),
        pytest.param({"state": "up"}, ["d2", "d1"], id="state"),
        pytest.param({"workspace": "b"}, ["d1"], id="workspace"),
        pytest.param({"kind": "loops"}, ["d4"], id="kind"),
        pytest.param({"state": "up", "workspace": "a"}, ["d2"], id="two filters"),
        pytest.param({"state": "nonsense"}, [], id="unknown state"),
        pytest.param({"q": " bad key "}, ["d3"], id="words of the error, in any case"),
        pytest.param({"q": "qwen"}, ["d4"], id="words of a label"),
        pytest.param({"q": "M2"}, ["d2"], id="an id"),
        pytest.param({"q": "", "x": "y"}, ["d3", "d4", "d2", "d1"], id="nothing, and something unknown"),
    ],
)
def test_a_query_chooses_targets_and_their_order(query: dict[str, str], expected: list[str]) -> None:
    chosen = View.of(query).choose(facts(*SOME).targets)
    assert [target.deployment_id for target in chosen] == expected
    assert len(rows(page(*SOME, query=query))) == len(expected)


@pytest.mark.parametrize("field", SORTABLE)
def test_every_field_sorts(field: str) -> None:
    both = [
        View(sort=field, order=order).choose(facts(*SOME, GOOD, BAD).targets) for order in ("asc", "desc")
    ]
    assert [len(targets) for targets in both] == [6, 6]


def test_a_link_says_only_what_is_unusual() -> None:
    view = View(q="a&b", sort="series")
    assert View().link() == "?"
    assert view.link(order="desc", state="down") == "?q=a%26b&state=down&sort=series&order=desc"
    assert view.link(q="", sort="state") == "?"


def test_ten_thousand_targets_are_told_in_part_unless_all_are_asked_for() -> None:
    entries = [Entry(Target("team", "m", f"d{n:05}", ModelOptions()), up=n % 100 > 0) for n in range(10_000)]
    html = page(*entries)
    assert len(rows(html)) == LIMIT
    assert f"The first {LIMIT} of 10,000 targets. Show all 10,000 or filter." in text(html)
    assert len(html) < 1 << 20
    assert len(rows(page(*entries, query={"show": "all"}))) == 10_000
    assert len(rows(page(*entries, query={"state": "down"}))) == 100
    assert len(json.loads(to_json(facts(*entries)))["targets"]) == 10_000


# Colours


def palettes() -> list[dict[str, str]]:
    """The colours of each theme, by name; short ones written out."""
    return [
        {
            name: value if len(value) > 4 else f"#{''.join(2 * digit for digit in value[1:])}"
            for name, value in pairs
        }
        for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
        if (pairs := re.findall(r"--(\w+): (#\w+)", block))
    ]


def luminance(colour: str) -> float:
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("palette", palettes(), ids=["light", "dark"])
def test_every_colour_can_be_read_on_every_ground(palette: dict[str, str]) -> None:
    for ground in ("page", "raised", "alarm"):
        for ink in ("ink", "soft", "link", "down", "pending", "up"):
            assert contrast(palette[ink], palette[ground]) >= 4.5, (ink, ground)
    assert contrast(palette["edge"], palette["page"]) >= 3
