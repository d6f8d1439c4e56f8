"""What the status page says of each workspace: its circuit, its pauses and its budget."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from exporter import budget
from exporter.baseten.fetch import Api
from exporter.config import Config
from exporter.model import Target
from exporter.polling.discovery import Discovery
from exporter.web.status import EndpointStatus, WorkspaceStatus, moment


def workspaces(
    config: Config,
    targets: Collection[Target],
    apis: Mapping[str, Api],
    discoveries: Mapping[str, Discovery],
    redact: Callable[[str], str],
    now: float,
) -> Iterator[WorkspaceStatus]:
    """One status per workspace of the config; `now` in seconds since the epoch."""
    endpoints = list(_endpoints(config, targets, apis, now))
    to_epoch = now - time.monotonic()
    for workspace in config.workspaces:
        outage = apis[workspace.name].client.outage
        discovery = discoveries[workspace.name]
        yield WorkspaceStatus(
            workspace=workspace.name,
            circuit="open" if outage else "closed",
            circuit_reason=redact(str(outage.error)) if outage else None,
            circuit_since=moment(outage.since + to_epoch) if outage else None,
            next_probe=moment(outage.next_probe + to_epoch) if outage else None,
            last_listed=moment(discovery.last_listed),
            listing_error=redact(f"{discovery.error.endpoint}: {discovery.error}")
            if discovery.error
            else None,
            endpoints=tuple(status for name, status in endpoints if name == workspace.name),
        )


def _endpoints(
    config: Config, targets: Collection[Target], apis: Mapping[str, Api], now: float
) -> Iterator[tuple[str, EndpointStatus]]:
    """The name of a workspace, and the status of an endpoint that it polls."""
    counts = Counter((target.workspace, target.kind) for target in targets)
    allowed = {workspace.name: workspace.requests_per_second for workspace in config.workspaces}
    for each in budget.polls(config, targets):
        pause = apis[each.workspace].client.paused(each.endpoint)
        yield (
            each.workspace,
            EndpointStatus(
                endpoint=each.endpoint,
                kind=each.kind,
                targets=counts[each.workspace, each.kind],
                interval_seconds=config.poll.interval,
                effective_interval_seconds=config.poll.interval * each.stretch,
                needed_requests_per_second=each.per_minute / 60 / each.stretch,
                allowed_requests_per_second=allowed[each.workspace],
                budget_share=each.share_of_rate,
                paused_until=moment(now + pause) if pause > 0 else None,
            ),
        )
