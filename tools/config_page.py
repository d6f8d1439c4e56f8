"""Write docs/configuration.md from the schema the exporter itself checks files with."""

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from exporter.config import schema

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

RULES = (
    (
        "There is at least one workspace, and at least one entry under `models` or `loops`, or a "
        "`discovery`, in one of them."
    ),
    "No two workspaces have the same `name`.",
    (
        "A workspace has either `api_key_env` or `api_key_file`, and the key is there when the file is read. "
        "The key itself is refused wherever it is written as `api_key` or the like."
    ),
    "`poll.timeout` is at most `poll.interval`: a poll must not outlast its turn.",
    "`poll.stale_after` is at least `poll.interval`: series would flicker.",
    "`window` is at most 7d, every other duration at most 1y. Only `delay` may be 0s.",
    "An entry under `models` has either `deployment_id` or `environment`.",
    (
        "A workspace names no deployment twice, and no environment of a model. The names in `metrics` and "
        "`metadata_labels` stand there once, too."
    ),
    "With `mode: current` there is neither `window` nor `delay`.",
    "`delay` is shorter than `poll.max_sample_age`: every value would be too old.",
    "With `mode: series`, and for trainers, `window` and `delay` together are at most 7d.",
    "`step` is a whole number of seconds and at most the `window`.",
    "`discovery` has `models`, `loops` or both.",
    "`metrics` and `statuses` are not empty lists.",
    (
        "`labels` do not begin with `__`, and are none of those that the exporter sets: `base_model`, "
        "`condition`, `deployment_id`, `environment`, `gpu`, `gpu_rank`, `kind`, `le`, "
        "`loops_deployment_id`, `model_id`, `model_name`, `node_id`, `quantile`, "
        "`replica`, `stat`, `status`, `workspace`."
    ),
    (
        "Patterns are regular expressions as Python's `re` reads them, and match whole names. What Python "
        "only warns of, such as `[[:alpha:]]`, is refused."
    ),
    "`ca_file` holds PEM certificates, and the port in `api_url` is one that exists.",
)
"""What no single key's type can say; by hand, and each with a test."""

_INTRODUCTION = """\
# Configuration

Every key of the file that `--config.file` names (`config.yaml` by default). This page is generated
(`python -m tools.config_page`) from the types that the exporter itself checks the file with.
[A file with all of them](../config.example.yaml) shows where they stand.

The file is strict YAML. Unknown keys, keys that stand twice and values of another type are refused, and
`baseten-exporter check` names every mistake at once, with its place. A bad file ends a start with status 1;
on a reload the old config stays.

- Only what is *required* has to be written, and what the [rules](#rules-between-keys) ask for.
- Relative paths start at the folder of the file.
- An id that is made of digits only needs quotes, and so does any other text that YAML reads as a number.
- Nothing is replaced in the file: no variables, no templates.
"""

_DURATIONS = """\
## Durations

Numbers with units, the longest unit first, as in Prometheus: `500ms`, `60s`, `5m`, `1h30m`, `7d`. The units
are {units}; a day is 24 hours, a year 365 days. A number without a unit is refused.
"""

_RULES = """\
## Rules between keys
"""

_ON_WHEN_WRITTEN = (schema.Discovery, schema.DiscoverModels, schema.DiscoverLoops)
_Shape = type[msgspec.Struct]


def page() -> str:
    units = ", ".join(f"`{unit}`" for unit in schema._UNITS)  # noqa: SLF001 - the schema's own table
    rules = "\n".join(textwrap.fill(f"- {rule}", 110, subsequent_indent="  ") for rule in RULES)
    tables = (_section(place, shape) for place, shape in sections())
    return "\n".join([_INTRODUCTION, *tables, _DURATIONS.format(units=units), _RULES, rules, ""])


def sections(shape: _Shape = schema.Config, place: str = "") -> Iterator[tuple[str, _Shape]]:
    """Every mapping of the file and the place where it stands, `[]` for the entries of a list."""
    yield place, shape
    for info in fields(shape):
        inner = _struct(info.type)
        if inner is not None:
            yield from sections(inner, _below(place, info))


def _section(place: str, shape: _Shape) -> str:
    lines = [f"## {_heading(place)}", "", (shape.__doc__ or "").strip(), ""]
    lines += ["| key | what it is | default | what it means |", "|---|---|---|---|"]
    for info in fields(shape):
        cells = (f"`{info.name}`", _words(info, place), _default(info), _note(info.type, "description"))
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join([*lines, ""])


def _words(info: FieldInfo, place: str) -> str:
    """The type, in words."""
    bare = _bare(info.type)
    if _struct(info.type) is not None:
        kind = "a list of mappings" if get_origin(bare) is tuple else "a mapping"
        return f"[{kind}](#{_anchor(_heading(_below(place, info)))})"
    if get_origin(bare) is dict:
        name, content = get_args(bare)
        return f"a mapping: {_note(name, 'title')} to {_note(content, 'title')}"
    if any((note.extra or {}).get("unit") for note in _notes(info.type)):
        return "[a duration](#durations)"
    title = _note(info.type, "title")
    if get_origin(bare) is tuple:
        item = _note(get_args(bare)[0], "title")
        return f"{title}, each {item}"
    return title


def _default(info: FieldInfo) -> str:
    if info.required:
        return "*required*"
    bare = _bare(info.type)
    if bare in _ON_WHEN_WRITTEN:
        return "off"
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return "those of its keys"
    value = info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
    if value == "":
        return "none"
    return f"`{_yaml(value)}`"


def _yaml(value: object) -> str:
    if isinstance(value, str):
        return value
    return f"[{', '.join(map(_yaml, value))}]" if isinstance(value, tuple) else json.dumps(value)


def _struct(shape: object) -> _Shape | None:
    """The struct that a value, or an item of a list of them, is; None for anything else."""
    bare = _bare(shape)
    if get_origin(bare) is tuple:
        return _struct(get_args(bare)[0])
    return bare if isinstance(bare, type) and issubclass(bare, msgspec.Struct) else None


def _bare(shape: Any) -> Any:  # noqa: ANN401 - a type of any form
    return get_args(shape)[0] if get_origin(shape) is Annotated else shape


def _notes(shape: object) -> list[msgspec.Meta]:
    return [note for note in getattr(shape, "__metadata__", ()) if isinstance(note, msgspec.Meta)]


def _note(shape: object, what: str) -> str:
    return next(str(text) for note in _notes(shape) if (text := getattr(note, what)))


def _below(place: str, info: FieldInfo) -> str:
    item = "[]" if get_origin(_bare(info.type)) is tuple else ""
    return f"{place}.{info.name}{item}".lstrip(".")


def _heading(place: str) -> str:
    return f"`{place}`" if place else "The file"


def _anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
