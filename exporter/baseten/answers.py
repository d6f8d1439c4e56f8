"""The API's answers as types, read leniently.

Only what would make an answer meaningless is required. Values, labels and times stay raw here:
the translation judges them one by one, so that one bad value costs one sample.
"""

import json
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from exporter.baseten.errors import ApiError

UnitHint = Annotated[
    str | None,
    msgspec.Meta(extra={"known": ("PER_SECOND", "SECONDS", "BYTES", "MEBIBYTES", "COUNT", "RATIO")}),
]
Kind = Annotated[str | None, msgspec.Meta(extra={"known": ("GAUGE", "COUNTER", "HISTOGRAM")})]


class Descriptor(msgspec.Struct, frozen=True):
    """`label_sets[j]` describes the j-th value of every step."""

    name: str
    unit_hint: UnitHint = None
    kind: Kind = None
    label_sets: list[dict[str, Any]] | None = None


class ValueSet(msgspec.Struct, frozen=True):
    """One step; `values[i]` belongs to the i-th descriptor."""

    values: list[Any]
    start_epoch_millis: float | None = None


class ModelAnswer(msgspec.Struct, frozen=True):
    unread: ClassVar = frozenset({"mode"})

    metric_descriptors: list[Descriptor]
    metric_values: list[ValueSet]
    start_epoch_millis: float | None = None
    end_epoch_millis: float | None = None
    step_seconds: float | None = None


class Point(msgspec.Struct, frozen=True, gc=False):
    value: Any = None
    timestamp: Any = None


Points = list[Point] | None
RankPoints = dict[str, Points] | None
Rows = list[dict[str, Any]] | None
"""Points with a value in every field but `timestamp`."""


class Storage(msgspec.Struct, frozen=True):
    usage_bytes: Points = None
    utilization: Points = None


class Compute(msgspec.Struct, frozen=True):
    """What the leader and every node report."""

    gpu_memory_usage_bytes: RankPoints = None
    gpu_utilization: RankPoints = None
    cpu_usage: Points = None
    cpu_memory_usage_bytes: Points = None
    ephemeral_storage: Storage | None = None


class Node(Compute, frozen=True, kw_only=True):
    node_id: str


class LoopsMetrics(Compute, frozen=True):
    inference_volume: Points = None
    concurrent_requests: Points = None
    response_time_stats: Rows = None
    inference_volume_by_status: Rows = None
    per_node_metrics: list[Node] | None = None


class LoopsAnswer(msgspec.Struct, frozen=True):
    unread: ClassVar = frozenset({"deployment_id"})

    metrics: LoopsMetrics


class ErrorBody(msgspec.Struct, frozen=True):
    """What comes with a 4xx or 5xx, in its several forms."""

    error: Any = None
    message: Any = None
    code: Any = None
    retry_after: Any = None


Answer = TypeVar("Answer")

MAX_VALUES = 500_000
"""JSON values in an answer. Three bytes of JSON can become 64 of Python: a cap on the body is not enough."""


def decode(answer_type: type[Answer], body: bytes | bytearray) -> Answer:
    """Read an answer; ApiError `invalid_response` names the JSON path that is not as documented."""
    if len(body) > MAX_VALUES and sum(map(body.count, (b"[", b"{", b","))) > MAX_VALUES:
        raise ApiError("too_large", f"the answer holds more than {MAX_VALUES:,} values")
    try:
        return msgspec.json.decode(body, type=answer_type)
    except (msgspec.DecodeError, RecursionError) as strict:
        try:
            # Python servers write NaN and lone surrogates; the json module reads what they write.
            return msgspec.convert(json.loads(body.decode("utf-8", "replace")), answer_type)
        except msgspec.ValidationError as error:
            raise ApiError("invalid_response", f"not the documented answer: {error}") from None
        except (ValueError, RecursionError):
            raise ApiError("invalid_response", f"not JSON: {strict}") from None
