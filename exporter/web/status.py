"""What is known of every target, for people (`/`) and for programs (`/api/v1/targets`)."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from html import escape

import msgspec

from exporter import __version__
from exporter.model import Target
from exporter.store import Entry


class TargetStatus(msgspec.Struct, frozen=True):
    """One target. Times are RFC 3339 in UTC, durations seconds; null means never or unknown."""

    workspace: str
    kind: str
    model_id: str | None
    deployment_id: str
    state: str
    reason: str | None
    error: str | None
    series: int
    last_poll: datetime | None
    last_success: datetime | None
    newest_sample: datetime | None
    next_poll: datetime | None
    poll_duration_seconds: float | None


def statuses(entries: Iterable[Entry], next_poll: Callable[[Target], float | None]) -> list[TargetStatus]:
    return [_status(entry, next_poll(entry.target)) for entry in entries]


def to_json(targets: list[TargetStatus]) -> bytes:
    return msgspec.json.encode({"version": __version__, "targets": targets})


def to_html(targets: list[TargetStatus], now: float, telemetry_path: str) -> str:
    fields = TargetStatus.__struct_fields__
    head = "".join(f"<th>{field.replace('_', ' ')}</th>" for field in fields)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(_text(getattr(target, field)))}</td>' for field in fields)}</tr>"
        for target in targets
    )
    return _PAGE.format(
        version=escape(__version__),
        metrics=escape(telemetry_path.removeprefix("/")),  # relative: a proxy may put us below a path
        now=_text(_time(now)),
        count=len(targets),
        head=head,
        rows=rows,
    )


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>baseten-exporter</title>
<link rel="icon" href="data:,">
<style>
body {{ font-family: sans-serif; margin: 1rem }}
table {{ border-collapse: collapse }}
th, td {{ border: 1px solid #888; padding: 0.25rem 0.5rem; text-align: left }}
</style>
</head>
<body>
<h1>baseten-exporter {version}</h1>
<p>
<a href="{metrics}">metrics</a> <a href="api/v1/targets">targets as JSON</a> <a href="-/ready">ready?</a>
</p>
<p>{count} targets at {now}</p>
<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>
</body>
</html>
"""


def _status(entry: Entry, next_poll: float | None) -> TargetStatus:
    target = entry.target
    return TargetStatus(
        workspace=target.workspace,
        kind=target.kind,
        model_id=target.model_id or None,
        deployment_id=target.deployment_id,
        state={None: "pending", True: "up", False: "down"}[entry.up],
        reason=entry.reason or None,
        error=entry.error or None,
        series=entry.snapshot.series if entry.snapshot else 0,
        last_poll=_time(entry.last_poll),
        last_success=_time(entry.last_success),
        newest_sample=_time(entry.newest_sample),
        next_poll=_time(next_poll),
        poll_duration_seconds=entry.duration,
    )


def _time(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):  # the API's own time, beyond the calendar
        return None


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}Z"
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else str(value)
