"""What the dashboards share around their panels: variables that chain, links, and how series are selected."""

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    AnnotationQuery,
    DashboardCursorSync,
    DashboardLinkType,
    Panel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from tools.dashboards import runbooks, style

Panels = Sequence[Builder[Panel]]
Rows = Mapping[str, Panels]
"""Panels by the title of their row; their numbers begin with that of the row."""

OVERVIEW, MODEL, LOOPS, HEALTH = "baseten-overview", "baseten-model", "baseten-loops", "baseten-exporter"

_TITLES = {
    OVERVIEW: "Baseten / Overview",
    MODEL: "Baseten / Model deployment",
    LOOPS: "Baseten / Loops trainer",
    HEALTH: "Baseten / Exporter health",
}

_KEPT = "${datasource:queryparam}&${workspace:queryparam}"
"""What a link takes along: the variables that mean the same on every dashboard."""


def dashboard(uid: str, what: str, variables: Sequence[build.QueryVariable], rows: Rows) -> build.Dashboard:
    """A dashboard of rows of panels; it has a variable for the workspace before its own."""
    frame = _frame(uid, what, variables)
    for title, panels in rows.items():
        numbers = [panel.build().id_val or 0 for panel in panels]
        frame.with_row(build.Row(title).id(numbers[0] // 10 * 10))
        for panel in panels:
            frame.with_panel(_with_runbook(uid, panel))
    return frame


def _with_runbook(uid: str, panel: Builder[Panel]) -> Builder[Panel]:
    built = panel.build()
    alert = runbooks.ALERTS[uid].get(built.id_val or 0)
    if alert is not None:
        link = build.DashboardLink(f"Runbook of {alert}").type(DashboardLinkType.LINK)
        built.links = [link.url(f"{runbooks.FOLDER}/{alert}.md").target_blank(target_blank=True).build()]
    return panel


def _frame(uid: str, what: str, variables: Sequence[build.QueryVariable]) -> build.Dashboard:
    return (
        build.Dashboard(_TITLES[uid])
        .uid(uid)
        .description(what)
        .tags(["baseten"])
        .timezone("browser")
        .time("now-3h", "now")
        .refresh("1m")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .variables([_datasource(), _workspace(), *variables])
        .links([_link(other) for other in _TITLES if other != uid])
    )


def variable(name: str, title: str, selector: str) -> build.QueryVariable:
    """Any number of the values that a label has in the selected series. All matches an absent label, too."""
    return (
        build.QueryVariable(name)
        .label(title)
        .datasource(style.SOURCE)
        .query(f"label_values({selector}, {name})")
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".*")
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


class Annotation(Builder[AnnotationQuery]):
    """Marks for as long as an expression has series; the title names their labels."""

    def __init__(self, name: str, title: str, expression: str) -> None:
        self._query = _Titled(name, style.SOURCE, enable=True, icon_color=style.BLUE, expr=expression)
        self._query.title = title

    def build(self) -> AnnotationQuery:
        return self._query


class _Titled(AnnotationQuery):
    """With the keys that only Prometheus has, which the library does not know."""

    title = ""

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {"titleFormat": self.title, "textFormat": "", "step": "60s"}


def chosen(family: str, labels: Sequence[str], *more: str) -> str:
    """The series of a family whose labels have the values that are chosen, and meet the other conditions."""
    conditions = [*(f'{label}=~"${label}"' for label in labels), *more]
    return f"{family}{{{', '.join(conditions)}}}"


def share(part: str, whole: str, *labels: str) -> str:
    """How much of a rate has a quality; 0 where nothing has it, nothing where nothing happens."""
    if not labels:
        return f"(sum({part}) or vector(0)) / (sum({whole}) > 0)"
    by = f"sum by ({', '.join(labels)})"
    return f"({by} ({part}) or 0 * {by} ({whole})) / ({by} ({whole}) > 0)"


def opened(uid: str, name: str, value: str = "__value.raw") -> str:
    """The address of another dashboard with a variable set to what was clicked, a cell of a table say."""
    return f"/d/{uid}?{_KEPT}&var-{name}=${{{value}}}"


def _datasource() -> build.DatasourceVariable:
    return build.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _workspace() -> build.QueryVariable:
    return variable("workspace", "Workspace", "baseten_exporter_target_up")


def _link(uid: str) -> build.DashboardLink:
    title = _TITLES[uid].rpartition(" / ")[2]
    link = build.DashboardLink(title).type(DashboardLinkType.LINK).icon("dashboard")
    return link.url(f"/d/{uid}?{_KEPT}").tooltip(f"Open {title}").keep_time(keep_time=True)
