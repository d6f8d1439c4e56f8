"""What people and programs are told about each target."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from exporter import __version__
from exporter.model import LoopsOptions, ModelOptions, Snapshot, Target
from exporter.store import Entry
from exporter.web.status import statuses, to_html, to_json

if TYPE_CHECKING:
    from tests.conftest import Clock

MODEL = Target("team", "m1", "d1", ModelOptions())
LOOPS = Target("team", "", "l1", LoopsOptions())
NEVER = dict.fromkeys(
    ["reason", "error", "last_poll", "last_success", "newest_sample", "next_poll", "poll_duration_seconds"]
)
IDS = {"workspace": "team", "kind": "model", "model_id": "m1", "deployment_id": "d1"}
HOSTILE = '<script>alert("1")</script>&\'{count}%s'


def told(entry: Entry, next_poll: float | None = None) -> Any:
    answer = json.loads(to_json(statuses([entry], lambda _: next_poll)))
    assert answer["version"] == __version__
    return answer["targets"][0]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param(Entry(MODEL), {**IDS, **NEVER, "state": "pending", "series": 0}, id="pending"),
        pytest.param(
            Entry(LOOPS),
            {
                **IDS,
                **NEVER,
                "kind": "loops",
                "model_id": None,
                "deployment_id": "l1",
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


@pytest.mark.parametrize("time", [1e30, -1e30, float("inf"), float("nan")])
def test_a_time_beyond_the_calendar_is_unknown(time: float) -> None:
    """Times of values come from the API: a silly one must not cost the page."""
    assert told(Entry(MODEL, newest_sample=time))["newest_sample"] is None


def test_html_shows_every_target_in_its_row(clock: "Clock") -> None:
    page = to_html(statuses([Entry(MODEL, up=True), Entry(LOOPS)], lambda _: None), clock(), "/metrics")
    assert page.count("<tr>") == 3
    assert "<td>d1</td>" in page
    assert "2 targets at 2026-09-21 14:13:20Z" in page


def test_html_links_to_the_metrics_wherever_they_are(clock: "Clock") -> None:
    assert '<a href="custom/path">' in to_html([], clock(), "/custom/path")


def test_hostile_names_and_errors_are_only_text(clock: "Clock") -> None:
    target = Target(HOSTILE, HOSTILE, HOSTILE, ModelOptions())
    entry = Entry(target, up=False, reason="server_error", error=HOSTILE)
    page = to_html(statuses([entry], lambda _: None), clock(), '/"><script>')
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#x27;{count}%s") == 4
    assert told(entry)["deployment_id"] == HOSTILE
