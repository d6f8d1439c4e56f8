"""What the tests of `exporter.baseten` share: JSON in, exposition text out."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from exporter import exposition
from exporter.baseten import loops_metrics, model_metrics
from exporter.baseten.answers import LoopsAnswer, ModelAnswer, decode
from exporter.baseten.drift import Unknown
from exporter.baseten.harvest import Harvest
from exporter.baseten.model_metrics import Question
from exporter.model import Labels, LoopsOptions, Piece

Json = dict[str, Any]

NOW = 1000.0
"""A short epoch keeps the milliseconds of the tables readable."""

ALWAYS = -math.inf
"""The oldest time a value may have where a test is not about age."""

CURRENT = Question("CURRENT", None, None, None)
SUMMARY = Question("SUMMARY", None, (0, 600), None)
SERIES = Question("SERIES", None, (0, 1000), None, settled_at=880.0)


def encoded(answer: object) -> bytes:
    return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def metric(name: str, kind: str | None, unit_hint: str | None, *label_sets: Json) -> Json:
    """A descriptor; without label sets, one of a plain metric."""
    return {"name": name, "kind": kind, "unit_hint": unit_hint, "label_sets": label_sets or ({},)}


def model_answer(metrics: Sequence[Json], steps: Iterable[tuple[float | None, Any]], **more: Any) -> Json:
    """An answer; each step is its start in seconds and its values. `more` adds or replaces fields."""
    value_sets = [
        {"start_epoch_millis": None if start is None else start * 1000, "values": values}
        for start, values in steps
    ]
    times = {"start_epoch_millis": 0, "end_epoch_millis": 1_000_000, "step_seconds": None}
    return times | {"metric_descriptors": metrics, "metric_values": value_sets} | more


def translated(
    answer: object,
    question: Question = CURRENT,
    own: Labels = (),
    *,
    now: float = NOW,
    oldest: float = ALWAYS,
) -> Harvest:
    harvest = Harvest(oldest)
    model_metrics.translate(decode(ModelAnswer, encoded(answer)), question, own, now, harvest)
    return harvest


def loops_translated(
    answer: object, *, now: float = NOW, delay: float = 120, oldest: float = ALWAYS
) -> Harvest:
    harvest = Harvest(oldest)
    options = LoopsOptions(delay=delay)
    loops_metrics.translate(decode(LoopsAnswer, encoded(answer)), options, now, harvest)
    return harvest


def page(harvest: Harvest, own: Labels = (), page_format: exposition.Format = exposition.Format.TEXT) -> str:
    pieces = exposition.pieces(harvest.families(), own)
    return b"".join(exposition.blocks(grouped([pieces]), page_format)).decode()


def grouped(targets: Iterable[Mapping[str, Piece]]) -> exposition.Families:
    """What several targets have, by metric family."""
    families: dict[str, list[Piece]] = {}
    for target in targets:
        for name, piece in target.items():
            families.setdefault(name, []).append(piece)
    return {
        name: exposition.Share(min(piece.help for piece in pieces), [piece.lines for piece in pieces])
        for name, pieces in families.items()
    }


def lines(harvest: Harvest, own: Labels = ()) -> list[str]:
    """The page's samples, in order of their text."""
    return sorted(line for line in page(harvest, own).splitlines() if not line.startswith("#"))


def expected(text: str) -> list[str]:
    """Samples as a table writes them, in the order of `lines`."""
    return sorted(line.strip() for line in text.splitlines() if line.strip())


class Told:
    """An observer that remembers what it was told."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str, float]] = []
        self.waits: list[tuple[str, str, float]] = []
        self.unknowns: list[tuple[str, Unknown]] = []
        self.retries: list[str] = []
        self.pauses: list[tuple[str, float]] = []

    def requested(self, workspace: str, endpoint: str, code: str, seconds: float) -> None:
        self.requests.append((workspace, endpoint, code, seconds))

    def waited(self, workspace: str, endpoint: str, seconds: float) -> None:
        self.waits.append((workspace, endpoint, seconds))

    def retried(self, workspace: str, endpoint: str) -> None:
        self.retries.append(endpoint)

    def paused(self, workspace: str, endpoint: str, seconds: float) -> None:
        self.pauses.append((endpoint, seconds))

    def unknown(self, endpoint: str, item: Unknown) -> None:
        self.unknowns.append((endpoint, item))
