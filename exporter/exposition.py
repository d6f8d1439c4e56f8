"""Snapshots to pages: the text format 0.0.4 and OpenMetrics 1.0.

A poll renders its sample lines once, at poll time (`Renderer`); a page only joins them (`blocks`).
What the client libraries check at render time holds here by construction: names and labels are
clean and series unique when a `Family` is made, a target's labels differ from every other
target's, and all lines of one family are joined under one header.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from math import inf
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.samples import Sample as LibrarySample
from prometheus_client.utils import floatToGoString

from exporter.model import Family, Labels, Piece

_any_float: Callable[[float], str] = floatToGoString


class Format(Enum):
    """The two formats; the value is the Content-Type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Renderer:
    """Renders the families of one target; its labels are escaped and sorted only once."""

    def __init__(self, labels: Labels) -> None:
        self._labels = {name: _escape(value).replace("%", "%%") for name, value in labels}
        self._templates: dict[tuple[str, ...], str] = {}

    def piece(self, family: Family) -> Piece:
        lines = []
        for labels, value in family.samples:
            names = tuple([name for name, _ in labels])
            template = self._templates.get(names) or self._template(names)
            filled = template % {name: _escape(text) for name, text in labels}
            lines.append(f"{family.name}{filled} {_go_float(value)}\n")
        return Piece(family.help, "".join(lines).encode())

    def _template(self, names: tuple[str, ...]) -> str:
        """All labels in order of their names, as client libraries write them; `%(x)s` for a sample's own."""
        labels = self._labels | {name: f"%({name})s" for name in names}
        pairs = ",".join(f'{name}="{labels[name]}"' for name in sorted(labels))
        template = f"{{{pairs}}}" if pairs else ""
        return self._templates.setdefault(names, template)


def pieces(families: Iterable[Family], labels: Labels) -> dict[str, Piece]:
    renderer = Renderer(labels)
    return {family.name: renderer.piece(family) for family in families}


class Share(NamedTuple):
    """What all targets have of one metric family: its help, and each target's lines."""

    help: str
    lines: Sequence[bytes]


Families = Mapping[str, Share]
"""A whole page's metric families, by name."""

_JOINED = 500
"""Pieces joined at a time: about what a processor's cache holds, so that compressing finds them there."""


def blocks(families: Families, page_format: Format, only: frozenset[str] | None = None) -> Iterator[bytes]:
    """The page in blocks of bytes, families in order of their names; `only` filters by name."""
    for name in sorted(families if only is None else families.keys() & only):
        help_text, lines = families[name]
        yield _header(name, help_text, page_format)
        for start in range(0, len(lines), _JOINED):
            yield b"".join(lines[start : start + _JOINED])


def accumulated(metrics: Iterable[Metric], page_format: Format) -> bytes:
    """What the client library collected: gauges, counters and histograms, without `_created` samples.

    The bytes are the library's own, made in a third of its time: they are made anew for every scrape.
    """
    out = []
    for metric in metrics:
        is_text_counter = metric.type == "counter" and page_format is Format.TEXT
        name = f"{metric.name}_total" if is_text_counter else metric.name
        out.append(_header(name, metric.documentation, page_format, metric.type))
        lines = [_line(sample) for sample in metric.samples if not sample.name.endswith("_created")]
        out.append("".join(lines).encode())
    return b"".join(out)


def _line(sample: LibrarySample) -> str:
    pairs = ",".join([f'{name}="{_escape(value)}"' for name, value in sorted(sample.labels.items())])
    labels = f"{{{pairs}}}" if pairs else ""
    return f"{sample.name}{labels} {_go_float(sample.value)}\n"


def _header(name: str, help_text: str, page_format: Format, kind: str = "gauge") -> bytes:
    escaped = help_text.replace("\\", r"\\").replace("\n", r"\n")
    if page_format is Format.OPENMETRICS:
        escaped = escaped.replace('"', r"\"")
    return f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n".encode()


def _go_float(value: float) -> str:
    """As client libraries write it, which is as Python does up to a million."""
    return repr(float(value)) if -inf < value < 1e6 else _any_float(value)


def _escape(value: str) -> str:
    if "\\" in value or "\n" in value or '"' in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value
