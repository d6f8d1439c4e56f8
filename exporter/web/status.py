"""What is known of every workspace and target: the facts of the status page, and the JSON of them."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from exporter import __version__
from exporter.model import Kind, Target
from exporter.sharding import WHOLE, Shard
from exporter.store import Entry

Moment = Annotated[datetime, Meta(tz=True)]


class EndpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a workspace asks of one of the API's metrics endpoints."""

    endpoint: Annotated[str, Meta(description="Its name, as in the exporter's metrics.")]
    kind: Annotated[Kind, Meta(description="The kind of targets that it is asked about.")]
    targets: Annotated[int, Meta(description="How many of them there are.")]
    interval_seconds: Annotated[float, Meta(description="Between two polls of a target, as configured.")]
    effective_interval_seconds: Annotated[
        float, Meta(description="The same as it is: stretched where the targets need more than is allowed.")
    ]
    needed_requests_per_second: Annotated[
        float, Meta(description="What polling needs at the effective interval.")
    ]
    allowed_requests_per_second: Annotated[float, Meta(description="What the config allows.")]
    budget_share: Annotated[
        float, Meta(description="Needed at the configured interval, of allowed; stretched where above 0.95.")
    ]
    paused_until: Annotated[
        Moment | None, Meta(description="Until when a 429 asked to be left alone; may be past.")
    ]


class WorkspaceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One workspace. The circuit is open while only probes go out, after failures in a row."""

    workspace: str
    circuit: Literal["closed", "open"]
    circuit_reason: Annotated[str | None, Meta(description="The error that opened it, keys taken out.")]
    circuit_since: Annotated[Moment | None, Meta(description="When it opened.")]
    next_probe: Annotated[Moment | None, Meta(description="When one request is let through again.")]
    last_listed: Annotated[Moment | None, Meta(description="When all of it was last listed.")]
    listing_error: Annotated[
        str | None, Meta(description="What could not be listed the last time, keys taken out.")
    ]
    endpoints: tuple[EndpointStatus, ...]


class TargetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One target."""

    workspace: str
    kind: Kind
    model_id: Annotated[str | None, Meta(description="null for a Loops trainer.")]
    deployment_id: str
    labels: Annotated[
        dict[str, str], Meta(description="Those of its series, beside its ids: its names, and the config's.")
    ]
    state: Annotated[
        Literal["pending", "up", "down"], Meta(description="Of its last poll; pending before the first.")
    ]
    reason: Annotated[str | None, Meta(description="The kind of failure, as in the exporter's metrics.")]
    error: Annotated[str | None, Meta(description="The last error, keys taken out.")]
    series: Annotated[int, Meta(description="How many of its series are on the page of metrics.")]
    last_poll: Moment | None
    last_success: Moment | None
    newest_sample: Annotated[Moment | None, Meta(description="The time of its newest value.")]
    next_poll: Moment | None
    poll_duration_seconds: Annotated[float | None, Meta(description="Of its last poll.")]
    effective_interval_seconds: Annotated[
        float | None, Meta(description="Between two of its polls, as stretched by the workspace's budget.")
    ]


class Status(msgspec.Struct, frozen=True):
    """The answer of `/api/v1/targets`: times in UTC, durations in seconds, null for never or unknown."""

    version: Annotated[str, Meta(description="Of the exporter.")]
    shard: Annotated[int, Meta(description="Which of total_shards answers, from 0; the targets are its own.")]
    total_shards: Annotated[int, Meta(description="How many exporters share the config.")]
    workspaces: tuple[WorkspaceStatus, ...]
    targets: tuple[TargetStatus, ...]


def status(
    entries: Iterable[Entry],
    next_poll: Callable[[Target], float | None],
    workspaces: Sequence[WorkspaceStatus],
    shard: Shard = WHOLE,
) -> Status:
    intervals = {
        (each.workspace, endpoint.kind): endpoint.effective_interval_seconds
        for each in workspaces
        for endpoint in each.endpoints
    }
    targets = (
        _target(entry, next_poll(entry.target), intervals.get((entry.target.workspace, entry.target.kind)))
        for entry in entries
    )
    return Status(__version__, shard.index, shard.total, tuple(workspaces), tuple(targets))


def to_json(facts: Status) -> bytes:
    return msgspec.json.encode(facts)


def moment(seconds: float | None) -> datetime | None:
    """The time that is so many seconds after the epoch; None where there is none."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):  # the API's own time, beyond the calendar
        return None


def _target(entry: Entry, next_poll: float | None, interval: float | None) -> TargetStatus:
    target = entry.target
    return TargetStatus(
        workspace=target.workspace,
        kind=target.kind,
        model_id=target.model_id or None,
        deployment_id=target.deployment_id,
        labels=dict((*target.extra_labels, *target.metadata)),
        state="pending" if entry.up is None else "up" if entry.up else "down",
        reason=entry.reason or None,
        error=entry.error or None,
        series=entry.snapshot.series if entry.snapshot else 0,
        last_poll=moment(entry.last_poll),
        last_success=moment(entry.last_success),
        newest_sample=moment(entry.newest_sample),
        next_poll=moment(next_poll),
        poll_duration_seconds=entry.duration,
        effective_interval_seconds=interval,
    )
