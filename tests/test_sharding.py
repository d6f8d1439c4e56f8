"""Who polls what: every target one shard, no target two, and few move when the number changes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Family, Labels, Sample
from exporter.sharding import WHOLE, Shard, ShardError

KEYS = [("team", "model", f"m{number % 400}", f"d{number}") for number in range(10_000)]

keys = st.lists(st.text(), min_size=1, max_size=4)


def owner(key: tuple[str, ...], total: int) -> int:
    (index,) = (index for index in range(total) if Shard(index, total).owns(key))
    return index


@pytest.mark.parametrize(
    ("text", "total", "shard"),
    [
        ("0", 1, WHOLE),
        ("3", 4, Shard(3, 4)),
        ("baseten-exporter-3", 4, Shard(3, 4)),
        ("team-7-baseten-exporter-0", 4, Shard(0, 4)),
        ("007", 8, Shard(7, 8)),
    ],
)
def test_a_shard_is_written_as_its_number_or_the_name_of_its_pod(text: str, total: int, shard: Shard) -> None:
    assert Shard.of(text, total) == shard


@pytest.mark.parametrize(
    ("text", "total", "message"),
    [
        ("4", 4, "4 is not one of 4 shards, which count from 0 to 3"),
        ("exporter-4", 4, "4 is not one of 4 shards, which count from 0 to 3"),
        ("0", 0, "0 is not a number of shards: 1 or more"),
        ("0", -1, "-1 is not a number of shards: 1 or more"),
        ("exporter", 4, "'exporter' is neither a number nor a name that ends in one, such as exporter-0"),
        ("-", 4, "'-' is neither a number nor a name that ends in one, such as exporter-0"),
        ("-1", 4, "'-1' is neither a number nor a name that ends in one, such as exporter-0"),
        ("", 4, "'' is neither a number nor a name that ends in one, such as exporter-0"),
        ("1.5", 4, "'1.5' is neither a number nor a name that ends in one, such as exporter-0"),
    ],
)
def test_a_shard_that_cannot_be(text: str, total: int, message: str) -> None:
    with pytest.raises(ShardError) as caught:
        Shard.of(text, total)
    assert str(caught.value) == message


@given(keys, st.integers(1, 12))
def test_everything_is_on_exactly_one_shard(key: list[str], total: int) -> None:
    assert sum(Shard(index, total).owns(key) for index in range(total)) == 1


@pytest.mark.parametrize("total", [2, 4, 5, 12])
def test_shards_are_of_about_the_same_size(total: int) -> None:
    sizes = Counter(owner(key, total) for key in KEYS)
    assert len(sizes) == total
    assert max(sizes.values()) < 1.15 * len(KEYS) / total
    assert min(sizes.values()) > 0.85 * len(KEYS) / total


@pytest.mark.parametrize("total", [1, 4, 11])
def test_one_more_shard_takes_its_part_and_moves_nothing_else(total: int) -> None:
    moves = [(owner(key, total), owner(key, total + 1)) for key in KEYS]
    moved = [new for old, new in moves if old != new]
    assert set(moved) == {total}
    assert len(moved) == pytest.approx(len(KEYS) / (total + 1), rel=0.15)


def test_the_hash_is_the_same_in_every_version() -> None:
    assert [owner(key, 4) for key in KEYS[:12]] == PLACES


PLACES = [0, 2, 3, 0, 0, 3, 1, 3, 1, 2, 2, 3]
"""Changing these moves the targets of every installation at its next update."""


def family(name: str, *label_sets: Labels) -> Family:
    return Family(name, "help", tuple(Sample(labels, 1.0) for labels in label_sets))


def deployment(number: int, status: str = "ACTIVE") -> Labels:
    return (("deployment_id", f"d{number}"), ("model_id", f"m{number % 7}"), ("status", status))


LISTED = [
    family("baseten_model_deployment_status", *(deployment(number) for number in range(40))),
    family("baseten_loops_deployment_status", *((("deployment_id", f"t{number}"),) for number in range(9))),
    family("baseten_instance_type_price", *((("instance_type", f"i{number}"),) for number in range(9))),
]


def test_what_is_listed_is_shared_out_without_loss() -> None:
    shares = [Shard(index, 3).share("team", LISTED) for index in range(3)]
    for family in LISTED:
        parts = [
            sample
            for share in shares
            for each in share
            if each.name == family.name
            for sample in each.samples
        ]
        assert sorted(parts) == sorted(family.samples)
    assert all(each.samples for share in shares for each in share)


def test_the_only_shard_has_all_that_is_listed() -> None:
    assert WHOLE.share("team", LISTED) == LISTED


def test_what_is_said_of_a_model_stays_on_its_shard_when_it_changes() -> None:
    shards = {
        (dict(sample.labels)["model_id"], index)
        for index in range(3)
        for status in ("ACTIVE", "FAILED", "SCALED_TO_ZERO")
        for family_ in Shard(index, 3).share(
            "team", [family("status", *(deployment(number, status) for number in range(40)))]
        )
        for sample in family_.samples
    }
    assert len(shards) == 7
