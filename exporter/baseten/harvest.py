"""What one poll's answers yield, gathered value by value: nothing bad costs anything good."""

import math
from collections import Counter
from typing import Literal, get_args

from exporter.model import Family, Labels, Sample

DropReason = Literal[
    "null",  # the API has no value: the normal case of an idle deployment
    "not_a_number",  # a boolean, a string, a list or an object
    "not_finite",  # NaN or an infinity
    "too_old",  # older than max_sample_age
    "bad_timestamp",  # a time that cannot be read, or lies in the future
    "bad_label",  # a label that is no text
    "misaligned",  # values and label_sets do not line up: the whole descriptor is lost
    "duplicate",  # two sources land on one series: the first wins
    "too_long",  # more text in all the names and labels than a target may have
    "series_limit",  # more series than max_series_per_target: the first ones win
]
DROP_REASONS: tuple[DropReason, ...] = get_args(DropReason)


class Harvest:
    """Gathers samples into families.

    A value's time lies from `oldest` to `latest`, and there are at most `max_series` of them, with at most
    `max_text` characters in their names and labels: a long name in an answer is on every line of a page.
    `dropped` counts what was lost and why, `duplicate` names the first series that came twice, and
    `newest` is the time of the newest value kept.
    """

    def __init__(
        self,
        oldest: float,
        latest: float = math.inf,
        max_series: float = math.inf,
        max_text: float = math.inf,
    ) -> None:
        self.dropped: Counter[DropReason] = Counter()
        self.duplicate: str | None = None
        self.newest: float | None = None
        self._oldest = oldest
        self._latest = latest
        self._max_series = max_series
        self._max_text = max_text
        self._series = 0
        self._text = 0
        self._families: dict[str, dict[Labels, Sample]] = {}
        self._help: dict[str, str] = {}

    def add(
        self,
        name: str,
        help_text: str,
        labels: Labels,
        raw: object,
        time: float,
        scale: float = 1.0,
        per: float = 1.0,
    ) -> None:
        """Take one raw value times `scale` divided by `per`, or count why not; `labels` are sorted."""
        value = self._number(raw, scale, per)
        if value is None:
            return
        if not self._oldest <= time <= self._latest:
            self.dropped["too_old" if time < self._oldest else "bad_timestamp"] += 1
            return
        if labels in self._families.get(name, ()):
            self.dropped["duplicate"] += 1
            if self.duplicate is None:
                self.duplicate = f"{name}{dict(labels)}"
            return
        if self._series >= self._max_series:
            self.dropped["series_limit"] += 1
            return
        text = len(name) + sum([len(each) for _, each in labels])
        if self._text + text > self._max_text:
            self.dropped["too_long"] += 1
            return
        self._series += 1
        self._text += text
        self._help.setdefault(name, help_text)
        self._families.setdefault(name, {})[labels] = Sample(labels, value)
        if self.newest is None or time > self.newest:
            self.newest = time

    def drop(self, reason: DropReason, count: int = 1) -> None:
        self.dropped[reason] += count

    def families(self) -> list[Family]:
        return [
            Family(name, self._help[name], tuple(samples.values()))
            for name, samples in self._families.items()
        ]

    def _number(self, raw: object, scale: float, per: float) -> float | None:
        if raw is None:
            self.dropped["null"] += 1
        elif type(raw) is not float and type(raw) is not int:
            self.dropped["not_a_number"] += 1
        else:
            try:
                value = raw * scale / per
            except OverflowError:  # an integer beyond what a float holds
                value = math.inf
            if math.isfinite(value):
                return value
            self.dropped["not_finite"] += 1
        return None
