"""Hypothesis strategies for the documents that a JSON Schema describes, and for what mutates them."""

import json
import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Json = Any
Schema = dict[str, Any]

_MOST = 2
"""Items of a list, and keys of an object whose keys are free."""

_EXACT = 2**53
"""Whole numbers up to here are whole as floats, too."""

_MEANINGFUL = [
    *('"', "\\", "\n", "%s", "%", "{}", "é", "\ud800", "?", "x" * 300),
    *("stat", "avg", "__name__", "workspace", "le", "0"),
]
TEXTS = st.text(st.characters(codec=None, exclude_categories=[]), max_size=6) | st.sampled_from(_MEANINGFUL)
"""Any text, lone surrogates included, and some that means something to somebody."""

_HOUR = 1_790_000_000
MOMENTS = st.one_of(
    st.integers(-3600, 600).map(lambda offset: datetime.fromtimestamp(_HOUR + offset, UTC).isoformat()),
    st.just("0001-01-01T00:00:00+23:59"),
)
"""Timestamps, most of them in one hour."""


def documents(schema: Schema) -> SearchStrategy[Json]:
    """Documents that keep to the schema; of JSON Schema, what the schemas of the tests use."""
    return _Reader(schema.get("$defs", {})).strategy(schema)


class _Reader:
    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions

    def strategy(self, schema: Schema) -> SearchStrategy[Json]:
        if "$ref" in schema:
            return self.strategy(self._definitions[schema["$ref"].removeprefix("#/$defs/")])
        if "anyOf" in schema:
            return st.one_of([self.strategy(each) for each in schema["anyOf"]])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        types = schema["type"]
        makers: dict[str, Callable[[Schema], SearchStrategy[Json]]] = {
            "object": self._object,
            "array": self._array,
            "string": _string,
            "integer": _integer,
            "number": _number,
            "boolean": lambda _: st.booleans(),
            "null": lambda _: st.none(),
        }
        return st.one_of([makers[each](schema) for each in ([types] if isinstance(types, str) else types)])

    def _object(self, schema: Schema) -> SearchStrategy[Json]:
        fields = {name: self.strategy(each) for name, each in schema.get("properties", {}).items()}
        required = set(schema.get("required", ()))
        named = st.fixed_dictionaries(
            {name: each for name, each in fields.items() if name in required},
            optional={name: each for name, each in fields.items() if name not in required},
        )
        more = schema.get("additionalProperties", True)
        if more is False:
            return named
        keys = _string(schema["propertyNames"]) if "propertyNames" in schema else TEXTS
        values = self.strategy(more) if isinstance(more, dict) else JUNK
        return st.dictionaries(keys, values, max_size=_MOST) if not fields else named

    def _array(self, schema: Schema) -> SearchStrategy[Json]:
        items = self.strategy(schema["items"])
        key = partial(json.dumps, sort_keys=True) if schema.get("uniqueItems") else None
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=_MOST, unique_by=key)


def _string(schema: Schema) -> SearchStrategy[str]:
    pattern = schema.get("pattern", "")
    if pattern.startswith(r"^\d{4}-"):
        return MOMENTS
    if pattern == r"^\d+$":
        return st.integers(0, 99).map(str)
    return TEXTS.filter(lambda text: len(text) >= schema.get("minLength", 0))


def _integer(schema: Schema) -> SearchStrategy[int]:
    return st.integers(schema.get("minimum", -_EXACT), schema.get("maximum", _EXACT))


def _number(schema: Schema) -> SearchStrategy[float]:
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    excluded = "exclusiveMinimum" in schema
    floats = st.floats(low, high, exclude_min=excluded, allow_nan=False, allow_infinity=False)
    return floats | st.sampled_from([1, 1.0] if excluded else [0, 1, 0.5])


# What is not in any schema


def _nested(depth: int) -> Json:
    inner: Json = 1
    for _ in range(depth):
        inner = [inner] if depth % 2 else {"": inner}
    return inner


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | MOMENTS
_HUGE = [math.nan, math.inf, 10**19, 10**400, -(10**4200), 5e-324, 1.7e308, -0.0]
_ODD = st.sampled_from([*_HUGE, _nested(40), _nested(41)])
JUNK = _SCALARS | _ODD | st.lists(_SCALARS, max_size=2) | st.dictionaries(TEXTS, _SCALARS, max_size=2)


class Change(NamedTuple):
    """Something done to one place of a document."""

    act: Callable[[Any, Any, Json], None]
    place: int
    junk: Json


def _replace(holder: Any, key: Any, junk: Json) -> None:
    holder[key] = deepcopy(junk)


def _delete(holder: Any, key: Any, _: Json) -> None:
    del holder[key]


def _duplicate(holder: Any, key: Any, junk: Json) -> None:
    _insert(holder, key, holder[key])


def _insert(holder: Any, key: Any, junk: Json) -> None:
    if isinstance(holder, list):
        holder.insert(key, deepcopy(junk))
    else:
        holder[junk if isinstance(junk, str) else f"{key}2"] = deepcopy(junk)


CHANGES = st.lists(
    st.builds(Change, st.sampled_from([_replace, _delete, _duplicate, _insert]), st.integers(0, 2**16), JUNK),
    max_size=3,
)


def changed(document: Json, changes: list[Change]) -> Json:
    """The document, which must be of one's own, after the changes."""
    for change in changes:
        places = list(_places(document))
        if places:
            change.act(*places[change.place % len(places)], change.junk)
    return document


def _places(value: Json) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    for key, inner in items:
        yield value, key
        yield from _places(inner)


class Blow(NamedTuple):
    """Something done to the bytes of a document."""

    act: Callable[[bytes, int, bytes], bytes]
    place: int
    junk: bytes


_ACTS: list[Callable[[bytes, int, bytes], bytes]] = [
    lambda text, place, junk: text[:place],
    lambda text, place, junk: text[:place] + junk + text[place:],
    lambda text, place, junk: text[:place] + junk + text[place + len(junk) :],
    lambda text, place, junk: text[:place] + text[place + len(junk) :],
    lambda text, place, junk: text[:place] + text[place // 2 :],
]
_TOKENS = [
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"1" * 5000,
    b"null",
    b'"',
    b"\\",
    b"\\ud800",
    b"\xff",
    b"{",
    b"[" * 2000,
]
BLOWS = st.lists(
    st.builds(
        Blow, st.sampled_from(_ACTS), st.integers(0, 2**16), st.binary(max_size=3) | st.sampled_from(_TOKENS)
    ),
    min_size=1,
    max_size=3,
)


def struck(text: bytes, blows: list[Blow]) -> bytes:
    for blow in blows:
        text = blow.act(text, blow.place % (len(text) + 1), blow.junk)
    return text
