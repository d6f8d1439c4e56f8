"""The status page: what the person on call opens first.

It is whole without scripts: the filter is a form, the order is links, and both are in the address.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from exporter.web.markup import Html, element, join
from exporter.web.status import EndpointStatus, Status, TargetStatus, WorkspaceStatus
from exporter.web.style import STYLE
from exporter.web.view import BROKEN_FIRST, LIMIT, View

_SYMBOLS = {"down": "✕", "pending": "…", "up": "✓"}  # so that colour alone tells nothing
_NONE = element("span", "\N{EN DASH}", class_="none")
_UNITS = ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h"), (float("inf"), 86400, "d"))


def render(facts: Status, view: View, time: float, telemetry_path: str) -> str:
    """The page as it is at a time, in seconds since the epoch."""
    now = datetime.fromtimestamp(time, UTC)
    states: Counter[str] = Counter(target.state for target in facts.targets)
    main = element(
        "main",
        _counts(states, view),
        _workspaces(facts, view, now) if facts.workspaces else None,
        _targets(facts, view, now),
    )
    footer = element("footer", "Times are in UTC. The page does not refresh by itself.")
    body = element("body", _banner(facts, view, now, telemetry_path), main, footer)
    return "<!DOCTYPE html>\n" + element("html", _head(states["down"]), body, lang="en")


def _head(down: int) -> Html:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{down:,} down · " if down else None, "baseten-exporter"),
        element("link", rel="icon", href="data:,"),
        element("style", Html(STYLE)),
    )


def _banner(facts: Status, view: View, now: datetime, telemetry_path: str) -> Html:
    links = (
        ("Refresh", view.link()),
        ("Metrics", telemetry_path.removeprefix("/")),  # relative: a proxy may put us below a path
        ("JSON", "api/v1/targets"),
        ("Ready?", "-/ready"),
    )
    shard = f", shard {facts.shard} of {facts.total_shards}" if facts.total_shards > 1 else ""
    return element(
        "header",
        element("h1", f"baseten-exporter {facts.version}{shard}"),
        element("p", element("time", f"{now:%Y-%m-%d %H:%M:%S} UTC", datetime=_iso(now))),
        element("nav", *(element("a", text, href=href) for text, href in links), aria_label="Pages"),
    )


def _counts(states: Counter[str], view: View) -> Html:
    """How many there are in each state; each leads to them."""
    told = {state: _state(state, states[state]) for state in BROKEN_FIRST}
    links = (
        element(
            "a",
            text,
            href=view.link(state=state) + "#targets",
            aria_current="true" if state == view.state else None,
        )
        for state, text in {**told, "": Html(f"All {states.total():,}")}.items()
    )
    return element("ul", *(element("li", link) for link in links), class_="counts", aria_label="States")


# Workspaces


def _workspaces(facts: Status, view: View, now: datetime) -> Html:
    states: Counter[tuple[str, str]] = Counter((it.workspace, it.state) for it in facts.targets)

    def trouble(workspace: WorkspaceStatus) -> tuple[bool, int, str]:
        return (workspace.circuit == "closed", -states[workspace.workspace, "down"], workspace.workspace)

    own = ("Workspace", "Targets", "Circuit", "Last listed")
    heads = (element("th", text, scope="col") for text in (*own, *_ENDPOINT))
    groups = (_workspace(each, states, view, now) for each in sorted(facts.workspaces, key=trouble))
    return element(
        "section",
        element("h2", "Workspaces", id="workspaces"),
        element("table", element("thead", element("tr", *heads)), *groups, class_="still"),
        aria_labelledby="workspaces",
    )


def _workspace(
    workspace: WorkspaceStatus, states: Mapping[tuple[str, str], int], view: View, now: datetime
) -> Html:
    """A group of rows: one for each endpoint, the first begins with what is said of all."""
    name = workspace.workspace
    counts = [
        element("a", _state(state, count), href=view.link(workspace=name, state=state) + "#targets")
        for state in BROKEN_FIRST
        if (count := states[name, state])
    ]
    rows = max(1, len(workspace.endpoints))
    own = (
        element("th", element("bdi", name), scope="rowgroup", class_="name", rowspan=rows),
        _cell("Targets", "counted", *(counts or [_NONE]), rowspan=rows),
        _cell("Circuit", "circuit", *_circuit(workspace, now), rowspan=rows),
        _cell("Last listed", "circuit", *_listed(workspace, now), rowspan=rows),
    )
    first, *more = [_endpoint(each, now) for each in workspace.endpoints] or [[]]
    lines = (element("tr", *own, *first), *(element("tr", *line) for line in more))
    broken = workspace.circuit == "open" or workspace.listing_error
    return element("tbody", *lines, class_="broken" if broken else None)


def _listed(workspace: WorkspaceStatus, now: datetime) -> Iterable[Html]:
    yield _age(workspace.last_listed, now)
    if workspace.listing_error:
        yield element("small", _mark("down", "Failed"), " ", element("bdi", workspace.listing_error))


def _circuit(workspace: WorkspaceStatus, now: datetime) -> Iterable[Html]:
    if workspace.circuit == "closed":
        yield _mark("up", "Closed")
        return
    yield _mark("down", "Open")
    yield element("small", "since ", _age(workspace.circuit_since, now, " at "))
    yield element("small", "next probe ", _age(workspace.next_probe, now, " at "))
    yield element("div", element("bdi", workspace.circuit_reason))


_ENDPOINT = ("Endpoint", "Polled", "Every", "Requests/s", "Paused")


def _endpoint(endpoint: EndpointStatus, now: datetime) -> list[Html]:
    told = (
        (element("span", endpoint.endpoint, class_="plain"),),
        (f"{endpoint.targets:,}",),
        _interval(endpoint),
        _budget(endpoint),
        _pause(endpoint, now),
    )
    return [_cell(heading, "text", *what) for heading, what in zip(_ENDPOINT, told, strict=True)]


def _interval(endpoint: EndpointStatus) -> Iterable[object]:
    yield _seconds(endpoint.effective_interval_seconds)
    if endpoint.effective_interval_seconds > endpoint.interval_seconds:
        yield element("small", _mark("pending", "Stretched"), " from ", _seconds(endpoint.interval_seconds))


def _budget(endpoint: EndpointStatus) -> Iterable[object]:
    share = endpoint.budget_share
    # The meter says what the words beside it say.
    meter = element("meter", value=f"{share:.3f}", low="0.8", high="0.95", optimum="0", aria_hidden="true")
    yield element("span", meter, f" {share:.0%}", class_="plain")
    needed, allowed = endpoint.needed_requests_per_second, endpoint.allowed_requests_per_second
    yield element("small", f"{_number(needed)} of {_number(allowed)} allowed")


def _pause(endpoint: EndpointStatus, now: datetime) -> Iterable[Html]:
    if endpoint.paused_until is None or endpoint.paused_until <= now:
        yield _NONE
        return
    yield _mark("pending", "Paused")
    yield element("small", "ends ", _age(endpoint.paused_until, now, " at "))


# Targets


class Column(NamedTuple):
    """`field` is what it sorts by, `cell` says what stands in it of a target at a time."""

    heading: str
    field: str
    style: str
    cell: Callable[[TargetStatus, datetime], object]


COLUMNS = (
    Column("State", "state", "plain", lambda it, _: _state(it.state)),
    Column("Deployment", "deployment_id", "id name", lambda it, _: _deployment(it)),
    Column("Model", "model_id", "id model", lambda it, _: _model(it)),
    Column("Workspace", "workspace", "text", lambda it, _: element("bdi", it.workspace)),
    Column("Kind", "kind", "plain", lambda it, _: it.kind),
    Column("Last poll", "last_poll", "plain", lambda it, now: _age(it.last_poll, now)),
    Column("Last success", "last_success", "plain", lambda it, now: _age(it.last_success, now)),
    Column("Newest data", "newest_sample", "plain", lambda it, now: _age(it.newest_sample, now)),
    Column("Next poll", "next_poll", "plain", lambda it, now: _age(it.next_poll, now)),
    Column("Took", "poll_duration_seconds", "number", lambda it, _: _seconds(it.poll_duration_seconds)),
    Column(
        "Every", "effective_interval_seconds", "number", lambda it, _: _seconds(it.effective_interval_seconds)
    ),
    Column("Series", "series", "number", lambda it, _: f"{it.series:,}"),
    Column("Last error", "reason", "error", lambda it, _: _error(it)),
)


def _targets(facts: Status, view: View, now: datetime) -> Html:
    chosen = view.choose(facts.targets)
    shown = chosen if view.show == "all" else chosen[:LIMIT]
    return element(
        "section",
        element("h2", "Targets", id="targets", tabindex="-1"),
        _form(facts, view),
        element("p", *_said(len(facts.targets), len(chosen), len(shown), view), class_="note"),
        _table(shown, view, now) if shown else None,
        aria_labelledby="targets",
    )


def _form(facts: Status, view: View) -> Html:
    workspaces = {each.workspace for each in facts.workspaces} | {each.workspace for each in facts.targets}
    return element(
        "form",
        element("label", "Find ", element("input", type="search", name="q", value=view.q)),
        _select("State", "state", BROKEN_FIRST, view.state),
        _select("Workspace", "workspace", sorted(workspaces), view.workspace),
        _select("Kind", "kind", ("model", "loops"), view.kind),
        element("input", type="hidden", name="sort", value=view.sort),
        element("input", type="hidden", name="order", value=view.order),
        element("button", "Filter"),
        element("a", "Clear", href=View(sort=view.sort, order=view.order).link() + "#targets")
        if view.filters
        else None,
        action="#targets",
        role="search",
        aria_label="Targets",
    )


def _select(label: str, name: str, values: Iterable[str], chosen: str) -> Html:
    options = (
        element("option", value, value=value, selected="" if value == chosen else None) for value in values
    )
    return element(
        "label", f"{label} ", element("select", element("option", "any", value=""), *options, name=name)
    )


def _said(total: int, chosen: int, shown: int, view: View) -> Iterable[object]:
    """How much of all there is the table shows."""
    if not total:
        yield "There are no targets yet: none is in the config, or none was listed."
    elif not chosen:
        yield f"None of {total:,} targets matches."
    elif shown < chosen:
        yield f"The first {shown:,} of {chosen:,} targets. "
        yield element("a", f"Show all {chosen:,}", href=view.link(show="all") + "#targets")
        yield " or filter."
    else:
        yield f"{shown:,} of {total:,} targets."


def _table(targets: Iterable[TargetStatus], view: View, now: datetime) -> Html:
    return element(
        "table",
        element("thead", element("tr", *(_heading(column, view) for column in COLUMNS))),
        element("tbody", *(_row(target, now) for target in targets)),
        class_="cards",
    )


def _heading(column: Column, view: View) -> Html:
    """A link that sorts by the column, the other way the second time, and stays in focus."""
    up = view.order != "desc"
    sorted_by = view.sort == column.field
    order = "desc" if sorted_by and up else "asc"
    arrow = element("span", " ▲" if up else " ▼", aria_hidden="true") if sorted_by else None
    place = f"by-{column.field}"
    link = element(
        "a", column.heading, arrow, href=f"{view.link(sort=column.field, order=order)}#{place}", id=place
    )
    direction = "ascending" if up else "descending"
    return element("th", link, scope="col", aria_sort=direction if sorted_by else None)


def _row(target: TargetStatus, now: datetime) -> Html:
    cells = (
        _cell(column.heading, column.style, column.cell(target, now))
        if column.field != "deployment_id"
        else element("th", column.cell(target, now), scope="row", class_=column.style)
        for column in COLUMNS
    )
    return element("tr", *cells, class_="broken" if target.state == "down" else None)


def _deployment(target: TargetStatus) -> Html:
    return join(element("bdi", target.deployment_id), _aside(target.labels.get("environment")))


def _model(target: TargetStatus) -> Html:
    name = target.labels.get("model_name") or target.labels.get("base_model")
    return join(element("bdi", target.model_id) if target.model_id else None, _aside(name))


def _error(target: TargetStatus) -> Html:
    if target.reason is None and target.error is None:
        return _NONE
    return join(element("b", target.reason), " ", element("bdi", target.error))


# Words


def _cell(heading: str, style: str, *children: object, rowspan: int | None = None) -> Html:
    return element("td", *children, class_=style, data_label=heading, rowspan=rowspan)


def _aside(text: str | None) -> Html | None:
    return element("small", element("bdi", text)) if text else None


def _state(state: str, count: int | None = None) -> Html:
    return _mark(state, state.capitalize() if count is None else f"{state.capitalize()} {count:,}")


def _mark(state: str, text: str) -> Html:
    return element("span", element("span", _SYMBOLS[state], aria_hidden="true"), f" {text}", class_=state)


def _age(time: datetime | None, now: datetime, between: str = "") -> Html:
    """How long ago, or in how long; and the time of day, with the date unless that is today's."""
    if time is None:
        return _NONE
    clock = f"{time:%H:%M:%S}" if time.date() == now.date() else f"{time:%Y-%m-%d %H:%M:%S}"
    absolute = f"{between}{clock}" if between else element("small", clock)
    return element("time", age((time - now).total_seconds()), absolute, datetime=_iso(time))


def age(ahead: float) -> str:
    """The seconds from now to a moment, in words: the sign says whether it is past."""
    size, unit = next((size, unit) for limit, size, unit in _UNITS if abs(ahead) < limit)
    count = f"{abs(ahead) / size:.0f} {unit}"
    return f"in {count}" if ahead > 0 else f"{count} ago"


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _seconds(value: float | None) -> Html | str:
    return _NONE if value is None else f"{_number(value)} s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
