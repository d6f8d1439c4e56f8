"""What the API sends and the code does not know: the first sign that one of the two has changed."""

import logging
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import msgspec
from msgspec import inspect

log = logging.getLogger(__name__)

_EVERY = 600.0
"""Seconds between two looks at one endpoint: reading an answer once more costs as much as a poll."""

_MOST = 1000


class Unknown(NamedTuple):
    """A field, or a value of an enumeration, by its path in the answer."""

    what: Literal["field", "value"]
    path: str


class Drift:
    """Looks at an answer now and then; every unknown item is told and logged once.

    `clock` is monotonic, in seconds. Types say what is known: a field that is documented and of no use
    here stands in the type's `unread`, the values of an enumeration in its `known` metadata.
    """

    def __init__(
        self, workspace: str, told: Callable[[str, Unknown], None], clock: Callable[[], float]
    ) -> None:
        self._workspace = workspace
        self._told = told
        self._clock = clock
        self._next: dict[str, float] = {}
        self.found: dict[tuple[str, Unknown], None] = {}

    def look(self, endpoint: str, body: bytes | bytearray, answer_type: type) -> None:
        """Compare an answer, already found good, with its type."""
        now = self._clock()
        if now < self._next.get(endpoint, now):
            return
        self._next[endpoint] = now + _EVERY
        try:
            raw = msgspec.json.decode(body)
        except msgspec.DecodeError:  # only read by the lenient way; the values tell enough
            return
        for item in dict.fromkeys(unknown(raw, inspect.type_info(answer_type))):
            self._tell(endpoint, item)

    def _tell(self, endpoint: str, item: Unknown) -> None:
        if (endpoint, item) in self.found or len(self.found) >= _MOST:
            return
        self.found[endpoint, item] = None
        self._told(endpoint, item)
        log.warning(
            "the API sends something this version does not know; it is taken as it comes",
            extra={"workspace": self._workspace, "endpoint": endpoint, "what": item.what, "path": item.path},
        )


def unknown(raw: object, info: inspect.Type, path: str = "$") -> Iterator[Unknown]:
    """The unknown items in plain data that is read as the type `info` describes."""
    if isinstance(info, inspect.Metadata):
        known = (info.extra or {}).get("known")
        if known and isinstance(raw, str) and raw not in known:
            yield Unknown("value", f"{path}={raw[:100]}")
        yield from unknown(raw, info.type, path)
    elif isinstance(info, inspect.UnionType):
        for side in info.types:
            yield from unknown(raw, side, path)
    elif isinstance(info, inspect.StructType) and isinstance(raw, dict):
        yield from _in_struct(raw, info, path)
    elif isinstance(info, inspect.ListType) and isinstance(raw, list):
        for item in raw:
            yield from unknown(item, info.item_type, f"{path}[]")
    elif isinstance(info, inspect.DictType) and isinstance(raw, dict):
        for item in raw.values():
            yield from unknown(item, info.value_type, f"{path}.*")


def _in_struct(raw: dict[str, object], info: inspect.StructType, path: str) -> Iterator[Unknown]:
    fields = {field.encode_name: field.type for field in info.fields}
    for name, value in raw.items():
        if name in fields:
            yield from unknown(value, fields[name], f"{path}.{name}")
        elif name not in getattr(info.cls, "unread", ()):
            yield Unknown("field", f"{path}.{name[:100]}")
