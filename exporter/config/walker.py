"""Walks plain data along the schema and notes every problem, not only the first."""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from exporter.config.problems import shown, without_keys

_S = TypeVar("_S", bound=msgspec.Struct)
_EMPTY = "is empty: write a value, or take the key out if it is optional"
_NO_MAPPING = "is empty: write {} for its defaults, or take the key out if it is optional"
_IN_CLEAR = (
    "a key does not belong in this file, which ends up in git, in ConfigMaps and in `helm get values`: "
    "write api_key_env with the name of an environment variable, or api_key_file with the path of a file"
)
_KEY_LIKE = re.compile(r"(api)?[-_]?(key|token)", re.IGNORECASE)


class Walker:
    """Collects `problems`, path to message, and the `given` paths (the others are defaults).

    A bad value is replaced by its default, or by its own path where it has none, so that the rest can
    still be judged. Nobody uses the result once there are problems.
    """

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.given: set[str] = set()

    def refuse(self, message: str, *paths: str) -> None:
        """Note a problem at the first path, unless one of the paths or a place above it is noted already."""
        if not any(place in self.problems for path in paths for place in _and_above(path)):
            self.problems[paths[0]] = without_keys(message)

    def struct(self, value: object, shape: type[_S], path: str = "") -> _S:
        """A mapping as a `shape`, whatever is wrong with it."""
        mapping = self._mapping(value, path)
        known = {info.name: info for info in fields(shape)}
        for key in mapping:
            if key not in known:
                self.refuse(_unknown(key, known), _child(path, key))
        return shape(**{name: self._field(mapping, info, path) for name, info in known.items()})

    def _field(self, mapping: dict[Any, Any], info: FieldInfo, path: str) -> object:
        child = _child(path, info.name)
        if info.name in mapping:
            self.given.add(child)
            walked = self._walk(mapping[info.name], info.type, child)
            if walked is not msgspec.UNSET:
                return walked
        elif info.required:
            self.refuse("is missing", child)
        if info.default_factory is not msgspec.NODEFAULT:
            return info.default_factory()
        return child if info.required else info.default

    def _walk(self, value: object, shape: object, path: str) -> object:
        """`value` as the type `shape`; UNSET where it is bad."""
        bare = get_args(shape)[0] if get_origin(shape) is Annotated else shape
        if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            return self.struct(value, bare, path)
        if get_origin(bare) is dict:
            return self._dict(value, bare, path)
        if get_origin(bare) is tuple and value is None:
            return ()
        item = _item_shape(bare)
        if item is not None and isinstance(value, list):
            return tuple(self._item(each, item, f"{path}[{index}]") for index, each in enumerate(value))
        return self._leaf(value, shape, path)

    def _item(self, value: object, shape: object, path: str) -> object:
        walked = self._walk(value, shape, path)
        return path if walked is msgspec.UNSET else walked

    def _dict(self, value: object, shape: object, path: str) -> dict[object, object]:
        name, content = get_args(shape)
        walked = {}
        for key, each in self._mapping(value, path).items():
            place = _child(path, key)
            walked[self._leaf(key, name, place)] = self._leaf(each, content, place)
        return {key: each for key, each in walked.items() if msgspec.UNSET not in (key, each)}

    def _mapping(self, value: object, path: str) -> dict[Any, Any]:
        if isinstance(value, dict):
            return value
        wrong = (
            _NO_MAPPING if value is None else f"{shown(value)} stands where a mapping (key: value) belongs"
        )
        self.refuse(wrong, path)
        return {}

    def _leaf(self, value: object, shape: object, path: str) -> object:
        try:
            return cast("object", msgspec.convert(value, shape))
        except msgspec.ValidationError:
            self.refuse(_complaint(value, shape), path)
            return msgspec.UNSET


def _item_shape(shape: object) -> object:
    """What a list may hold where `shape`, or one side of the union it is, is a tuple; else None."""
    sides = [shape, *get_args(shape)]
    return next((get_args(side)[0] for side in sides if get_origin(side) is tuple), None)


def _complaint(value: object, shape: object) -> str:
    if value is None:
        return _EMPTY
    notes = [note for note in getattr(shape, "__metadata__", ()) if isinstance(note, msgspec.Meta)]
    title = next(note.title for note in notes if note.title)
    extra = {key: each for note in notes for key, each in (note.extra or {}).items()}
    text = value if isinstance(value, str) else shown(value)
    given = "the value" if re.search(extra.get("hidden", "(?!)"), text) else shown(value)
    return f"{given} is not {title}{_advice(value, text, extra.get('unit'), get_args(shape)[0])}"


def _advice(value: object, text: str, unit: str | None, wanted: object) -> str:
    """How to write what was meant, where that can be told."""
    if unit:
        return f": write {text}{unit}" if re.fullmatch("[0-9]{1,10}", text) else ""
    if wanted is str and isinstance(value, int | float):
        return f": YAML reads it as {'true or false' if isinstance(value, bool) else 'a number'}, quote it"
    return ""


def _unknown(key: object, known: Iterable[str]) -> str:
    if isinstance(key, str) and _KEY_LIKE.fullmatch(key) and "api_key_env" in known:
        return _IN_CLEAR
    near = difflib.get_close_matches(str(key), known, n=1) if isinstance(key, str) else []
    return (
        f"unknown key, did you mean {near[0]}?" if near else f"unknown key; the keys are {', '.join(known)}"
    )


def _child(path: str, key: object) -> str:
    if not isinstance(key, str) or not re.fullmatch(r"[\w-]{1,60}", key, re.ASCII):
        return f"{path}[{shown(key)}]"
    return f"{path}.{key}" if path else key


def _and_above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
