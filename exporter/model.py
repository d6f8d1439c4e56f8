"""The words the rest of the exporter speaks; everything here is frozen."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Labels = tuple[tuple[str, str], ...]
"""Label pairs; names are unique, values are not empty."""

Kind = Literal["model", "loops"]
KINDS: tuple[Kind, ...] = ("model", "loops")

Mode = Literal["auto", "current", "summary", "series"]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What to ask of a model deployment; durations in seconds.

    `metrics` is "all" (every name in the catalogue), "default" (what the API returns unasked)
    or the names themselves.
    """

    mode: Mode = "auto"
    window: float = 300
    delay: float = 120
    metrics: Literal["all", "default"] | tuple[str, ...] = "all"


@dataclass(frozen=True, slots=True)
class LoopsOptions:
    """What to ask of a Loops trainer; durations in seconds."""

    window: float = 300
    step: int = 30
    delay: float = 120


@dataclass(frozen=True, slots=True)
class Target:
    """One deployment to poll. `model_id` is empty for a Loops trainer.

    `extra_labels` are those of its config entry, `metadata` what the listings say of it.
    """

    workspace: str
    model_id: str
    deployment_id: str
    options: ModelOptions | LoopsOptions
    extra_labels: Labels = ()
    metadata: Labels = ()

    @property
    def kind(self) -> Kind:
        return "model" if isinstance(self.options, ModelOptions) else "loops"

    @property
    def key(self) -> tuple[str, Kind, str, str]:
        """What makes two entries the same target, whatever their options."""
        return (self.workspace, self.kind, self.model_id, self.deployment_id)

    @property
    def labels(self) -> Labels:
        """The labels of every series of this target."""
        return (("workspace", self.workspace), *self.ids, *self.extra_labels, *self.metadata)

    @property
    def ids(self) -> Labels:
        ids = (("model_id", self.model_id), ("deployment_id", self.deployment_id))
        return tuple((name, value) for name, value in ids if value)

    def __str__(self) -> str:
        return "/".join(filter(None, self.key))


@dataclass(frozen=True, slots=True)
class Followed:
    """A config entry that names an environment: whatever deployment is in it is polled."""

    model_id: str
    environment: str
    options: ModelOptions
    extra_labels: Labels = ()


@dataclass(frozen=True, slots=True)
class ModelSelector:
    """Which listed deployments are polled: patterns match whole model names; no `environments` means any."""

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    environments: tuple[str, ...]
    statuses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoopsSelector:
    """Which listed trainers are polled: patterns match whole base models."""

    scope: Literal["mine", "org"]
    include: tuple[re.Pattern[str], ...]


@dataclass(frozen=True, slots=True)
class Discovery:
    """What to list, every `interval` seconds; None where a kind is not discovered."""

    interval: float
    models: ModelSelector | None
    loops: LoopsSelector | None
    environments: bool
    prices: bool


class Sample(NamedTuple):
    """One series' latest value. `labels` are its own, without the target's."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    help: str
    samples: tuple[Sample, ...]


class Piece(NamedTuple):
    """One target's share of a metric family, as it will stand on the page."""

    help: str
    lines: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one good poll of one target yielded.

    `pieces` by family name; `series` counts their lines; `newest` is the time of the newest value
    (seconds since the epoch), None where there is no value at all.
    """

    pieces: Mapping[str, Piece]
    series: int
    newest: float | None
