"""The harvest keeps what is good, counts what is not, and knows how new it is."""

import math
from typing import Any

import pytest

from exporter.baseten.harvest import DROP_REASONS, Harvest
from exporter.baseten.values import clean_text
from exporter.model import Family, Sample


def test_samples_of_one_name_become_one_family_under_the_first_help() -> None:
    harvest = Harvest(oldest=0)
    harvest.add("x", "first", (("a", "1"),), 1, time=10)
    harvest.add("y", "other", (), 2, time=10)
    harvest.add("x", "second", (("a", "2"),), 3, time=10, scale=0.5)
    assert harvest.families() == [
        Family("x", "first", (Sample((("a", "1"),), 1.0), Sample((("a", "2"),), 1.5))),
        Family("y", "other", (Sample((), 2.0),)),
    ]


def test_newest_is_the_time_of_the_newest_value_kept() -> None:
    harvest = Harvest(oldest=10)
    assert harvest.newest is None
    for number, time in enumerate([20, 30, 25]):
        harvest.add("x", "", (("n", str(number)),), 1, time)
    harvest.add("x", "", (("n", "0"),), 1, time=40)
    harvest.add("x", "", (("n", "4"),), None, time=50)
    assert harvest.newest == 30


@pytest.mark.parametrize(
    ("raw", "scale", "time", "reason"),
    [
        (None, 1, 10, "null"),
        (True, 1, 10, "not_a_number"),
        ("1", 1, 10, "not_a_number"),
        (math.nan, 1, 10, "not_finite"),
        (10**400, 1.0, 10, "not_finite"),
        (1e308, 1e10, 10, "not_finite"),
        (1, 1, 9.9, "too_old"),
        (1, 1, 100.1, "bad_timestamp"),
        (1, 1, math.inf, "bad_timestamp"),
        (None, 1, 9.9, "null"),
    ],
)
def test_what_is_not_kept_is_counted(raw: object, scale: float, time: float, reason: Any) -> None:
    harvest = Harvest(oldest=10, latest=100)
    harvest.add("x", "", (), raw, time, scale)
    assert harvest.dropped == {reason: 1}
    assert harvest.families() == []
    assert reason in DROP_REASONS


@pytest.mark.parametrize("raw", [0, -1, 1.5, 1e-320, 2**70])
def test_every_finite_number_is_kept(raw: float) -> None:
    harvest = Harvest(oldest=10)
    harvest.add("x", "", (), raw, time=10)
    assert harvest.families() == [Family("x", "", (Sample((), raw),))]


def test_the_second_value_of_a_series_is_counted_and_named() -> None:
    harvest = Harvest(oldest=0)
    for value, label in ((1, "1"), (2, "1"), (3, "1"), (4, "2"), (5, "2")):
        harvest.add("x", "", (("a", label),), value, time=10)
    assert harvest.families() == [Family("x", "", (Sample((("a", "1"),), 1.0), Sample((("a", "2"),), 4.0)))]
    assert harvest.dropped == {"duplicate": 3}
    assert harvest.duplicate == "x{'a': '1'}"


def test_a_target_has_so_many_series_with_so_much_text() -> None:
    harvest = Harvest(oldest=0, max_series=3, max_text=20)
    for label in ("one", "x" * 14, "two", "three", "four"):
        harvest.add("x", "", (("a", label),), 1.0, time=10)
    (family,) = harvest.families()
    assert [labels for labels, _ in family.samples] == [(("a", text),) for text in ("one", "x" * 14)]
    assert harvest.dropped == {"too_long": 3}
    harvest.add("x", "", (), 1.0, time=10)
    harvest.add("y", "", (), 1.0, time=10)
    assert harvest.dropped == {"too_long": 3, "series_limit": 1}


def test_losses_found_elsewhere_are_counted_too() -> None:
    harvest = Harvest(oldest=0)
    harvest.drop("misaligned", 3)
    harvest.drop("bad_label")
    assert harvest.dropped == {"misaligned": 3, "bad_label": 1}


@pytest.mark.parametrize(
    ("text", "clean"), [("plain", "plain"), ("ü€😀", "ü€😀"), ("a\ud800b", "a?b"), ("", "")]
)
def test_clean_text_can_be_encoded(text: str, clean: str) -> None:
    assert clean_text(text) == clean
    clean_text(text).encode()
