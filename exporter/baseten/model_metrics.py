"""Model deployments: what to ask, and what the answers mean. Pure."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from exporter.baseten import catalogue
from exporter.baseten.answers import Descriptor, ModelAnswer
from exporter.baseten.harvest import Harvest
from exporter.baseten.values import clean_text, label_text
from exporter.model import Labels, ModelOptions

_SETTLING_KINDS = ("COUNTER", "HISTOGRAM")
"""Kinds whose values are only right some minutes after the traffic; all others are read at once."""

_EXPORTED = "exported_"


@dataclass(frozen=True, slots=True)
class Question:
    """One request to the metrics endpoint.

    `names` is None for what the API returns unasked; `span` is (start, end) in seconds since the
    epoch, None in mode CURRENT. Of the answer, only `settling` kinds are used (True), only the
    others (False), or all (None). Of a SERIES, steps of settling kinds must have ended by `settled_at`.
    """

    mode: Literal["CURRENT", "SUMMARY", "SERIES"]
    names: tuple[str, ...] | None
    span: tuple[int, int] | None
    settling: bool | None
    settled_at: float = math.inf

    def params(self, names: tuple[str, ...] | None) -> list[tuple[str, str]]:
        """The query string's pairs, asking for `names` (some of `self.names`)."""
        span = self.span or ()
        times = zip(("start_epoch_millis", "end_epoch_millis"), span, strict=False)
        return [
            ("mode", self.mode),
            *((key, str(seconds * 1000)) for key, seconds in times),
            *(("metrics", name) for name in names or ()),
        ]


def questions(options: ModelOptions, now: float, kind_of: Callable[[str], str]) -> Iterator[Question]:
    """The requests of one poll, each made when its turn comes.

    `kind_of` tells the kind of a metric name as far as it is known: what an answer teaches counts for
    the next question already.
    """
    names = _names(options.metrics)
    end = int(now - options.delay)
    start = int(end - options.window)
    if options.mode == "current":
        yield Question("CURRENT", names, None, None)
    elif options.mode == "summary":
        yield Question("SUMMARY", names, (start, end), None)
    elif options.mode == "series":
        yield Question("SERIES", names, (start, int(now)), None, now - options.delay)
    else:
        fresh = names and tuple(name for name in names if kind_of(name) not in _SETTLING_KINDS)
        if fresh != ():
            yield Question("CURRENT", fresh, None, settling=False)
        settled = names and tuple(name for name in names if kind_of(name) in _SETTLING_KINDS)
        if settled != ():
            yield Question("SUMMARY", settled, (start, end), settling=True)


def _names(metrics: str | tuple[str, ...]) -> tuple[str, ...] | None:
    if isinstance(metrics, tuple):
        return metrics
    return tuple(catalogue.CATALOGUE) if metrics == "all" else None


class _Step(NamedTuple):
    """One column of values. `end` is None where the answer does not say; times in seconds."""

    values: list[Any]
    seconds: float | None
    end: float


def translate(
    answer: ModelAnswer, question: Question, own_labels: Labels, now: float, harvest: Harvest
) -> None:
    """Add what the answer says to the harvest; `own_labels` are the target's."""
    steps = list(_steps(answer, question, now))
    names = _LabelNames(own_labels)
    for index, descriptor in enumerate(answer.metric_descriptors):
        settling = descriptor.kind in _SETTLING_KINDS
        if question.settling in (None, settling):
            latest = question.settled_at if settling else math.inf
            _Row(descriptor, index, names).into(harvest, [step for step in steps if step.end <= latest])


def _steps(answer: ModelAnswer, question: Question, now: float) -> Iterator[_Step]:
    """The complete steps, newest first."""
    start, end = _seconds(answer.start_epoch_millis), _seconds(answer.end_epoch_millis)
    if question.mode != "SERIES":
        for values in answer.metric_values[:1]:
            length = end - start if start is not None and end is not None and end > start else None
            yield _Step(values.values, length, now if end is None else end)
        return
    window_end = now if end is None else end
    next_start = window_end
    starts = [(_seconds(values.start_epoch_millis), values) for values in answer.metric_values]
    begun = [(begin, values) for begin, values in starts if begin is not None]
    for begin, values in sorted(begun, key=itemgetter(0), reverse=True):
        finish = begin + answer.step_seconds if answer.step_seconds else next_start
        next_start = begin
        if begin < finish <= window_end:
            yield _Step(values.values, finish - begin, finish)


def _seconds(millis: float | None) -> float | None:
    return millis / 1000 if millis is not None and math.isfinite(millis) else None


class _Row:
    """One descriptor with its values in every step."""

    def __init__(self, descriptor: Descriptor, index: int, names: "_LabelNames") -> None:
        self._name = clean_text(descriptor.name)
        self._kind = descriptor.kind or ""
        self._unit_hint = descriptor.unit_hint or ""
        self._label_sets = descriptor.label_sets or []
        self._index = index
        self._names = names

    def into(self, harvest: Harvest, steps: list[_Step]) -> None:
        columns = [(step, column) for step in steps if (column := self._column(step)) is not None]
        if len(columns) < len(steps):
            harvest.drop("misaligned", len(self._label_sets) or 1)
        elif columns:
            for position, label_set in enumerate(self._label_sets):
                self._add(harvest, label_set, *_newest(columns, position))

    def _column(self, step: _Step) -> list[Any] | None:
        """The descriptor's values in one step, None where they do not line up with its label sets."""
        column = step.values[self._index] if self._index < len(step.values) else None
        return column if isinstance(column, list) and len(column) == len(self._label_sets) else None

    def _add(self, harvest: Harvest, label_set: dict[str, Any], step: _Step, raw: object) -> None:
        labels, stat = self._labels(label_set)
        if labels is None:
            harvest.drop("bad_label")
            return
        naming = catalogue.name(
            self._name, self._kind, self._unit_hint, stat=stat, span_known=step.seconds is not None
        )
        per = step.seconds if naming.per_span and step.seconds else 1.0
        harvest.add(naming.family, naming.help, labels, raw, step.end, naming.scale, per)

    def _labels(self, label_set: dict[str, Any]) -> tuple[Labels | None, str]:
        """The series' labels, sorted, and the value of its `stat` label; None where one is no text."""
        labels: dict[str, str] = {}
        stat = ""
        for name, raw in label_set.items():
            text = label_text(raw)
            if text is None:
                return None, ""
            if name == "stat":
                stat = text
            elif text and self._names.own.get(name) != text:
                labels.setdefault(self._names[name], text)
        return tuple(sorted(labels.items())), stat


def _newest(columns: list[tuple[_Step, list[Any]]], position: int) -> tuple[_Step, object]:
    """The newest value that is none, and its step; of nulls the newest. Newest first in `columns`."""
    for step, column in columns:
        if column[position] is not None:
            return step, column[position]
    return columns[0][0], None


class _LabelNames(dict[str, str]):
    """The label names of one answer, by what it calls them: few, and needed for every series."""

    def __init__(self, own: Labels) -> None:
        super().__init__()
        self.own = dict(own)

    def __missing__(self, name: str) -> str:
        """Legal, and different from the target's own, renamed as Prometheus itself would."""
        clean = catalogue.sanitize(name)
        while clean in self.own or clean.startswith("__") or clean[:1].isdigit() or not clean:
            clean = _EXPORTED + clean
        return self.setdefault(name, clean)
