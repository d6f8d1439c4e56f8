"""The house style: a panel is a number that stays, a title, a unit, what it says, and its queries."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import common, prometheus, stat, statetimeline, statushistory, table
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import timeseries as lines
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

SECONDS, BYTES, RATIO, DOLLARS, COUNT = "s", "bytes", "percentunit", "currencyUSD", "short"
REQUESTS, TOKENS, PER_SECOND = "reqps", "suffix: tok/s", "cps"

GREEN, AMBER, RED, BLUE, GREY = "green", "orange", "red", "blue", "#8e8e8e"

NARROW, QUARTER, THIRD, HALF, FULL = 4, 6, 8, 12, 24

_CELLS = 60
"""Points in time of a history: each is a cell that must be wide enough to be seen."""

_STEP = "1m"
"""Between points: what is polled once a minute has no finer detail, and rates then cover several polls."""

Steps = build.ThresholdsConfig


class Query(NamedTuple):
    """An expression and the name of its series, labels in double braces."""

    expression: str
    legend: str


class Column(NamedTuple):
    title: str
    expression: str
    unit: str = COUNT
    steps: Steps | None = None


class Names(NamedTuple):
    """The labels that name the rows of a table, by title, and where the cells of one of them lead."""

    titles: Mapping[str, str]
    linked: str = ""
    url: str = ""


class _Panel(Protocol):
    def id(self, id_val: int) -> Self: ...
    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def datasource(self, datasource: DataSourceRef) -> Self: ...
    def height(self, h: int) -> Self: ...
    def span(self, w: int) -> Self: ...
    def unit(self, unit: str) -> Self: ...


P = TypeVar("P", bound=_Panel)


def steps(*above: tuple[float, str], base: str = GREEN) -> Steps:
    """Colours from a value upwards."""
    colors = [Threshold(value=None, color=base), *(Threshold(value, color) for value, color in above)]
    return Steps().mode(ThresholdsMode.ABSOLUTE).steps(colors)


def timeseries(number: int, title: str, unit: str, what: str, *queries: Query) -> lines.Panel:
    return (
        _panel(lines.Panel(), number, title, unit, what)
        .span(THIRD)
        .interval(_STEP)
        .min(0)
        .fill_opacity(8)
        .show_points(options.VisibilityMode.AUTO)
        .legend(common.VizLegendOptions().calcs(["lastNotNull"]).placement(options.LegendPlacement.BOTTOM))
        .tooltip(_tooltip())
        .targets(_over_time(queries))
    )


def stacked(panel: lines.Panel) -> lines.Panel:
    """The panel with its series upon each other, since they add up."""
    stacking = common.StackingConfig().mode(options.StackingMode.NORMAL).group("A")
    return panel.stacking(stacking).fill_opacity(30)


def limited(panel: lines.Panel, limits: Steps) -> lines.Panel:
    """The panel with its limits drawn as dashed lines."""
    style = common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED)
    return panel.thresholds(limits).thresholds_style(style)


def figure(number: int, title: str, unit: str, what: str, expression: str) -> stat.Panel:
    """One large number, the newest, and how it went."""
    return (
        _panel(stat.Panel(), number, title, unit, what)
        .span(NARROW)
        .height(4)
        .thresholds(steps(base=BLUE))
        .color_scheme(build.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(options.BigValueGraphMode.AREA)
        .targets(_over_time([Query(expression, title)]))
    )


def states(
    number: int, title: str, what: str, query: Query, colors: Mapping[str, str]
) -> statetimeline.Panel:
    """A bar for as long as a series is there, coloured by the state that ends its name."""
    panel = (
        _panel(statetimeline.Panel(), number, title, COUNT, what)
        .span(FULL)
        .show_value(options.VisibilityMode.NEVER)
        .legend(common.VizLegendOptions().show_legend(show_legend=False))
        .mappings([ValueMap(options={"1": ValueMappingResult(text="yes", index=0)})])
        .color_scheme(build.FieldColor().mode(FieldColorModeId.FIXED).fixed_color(BLUE))
        .targets(_over_time([query]))
    )
    for state, color in colors.items():
        fixed = {"mode": "fixed", "fixedColor": color}
        panel.override_by_regexp(f"/ {state}$/", [DynamicConfigValue("color", fixed)])
    return panel


def history(number: int, title: str, unit: str, what: str, query: Query) -> statushistory.Panel:
    """A row of coloured cells for each series: a heat map over time."""
    return (
        _panel(statushistory.Panel(), number, title, unit, what)
        .span(HALF)
        .height(14)
        .min(0)
        .max_data_points(_CELLS)
        .color_scheme(build.FieldColor().mode(FieldColorModeId.CONTINUOUS_BL_YL_RD))
        .show_value(options.VisibilityMode.NEVER)
        .legend(common.VizLegendOptions().show_legend(show_legend=False))
        .targets(_over_time([query]))
    )


def grid(
    number: int, title: str, unit: str, what: str, expression: str, down: str, across: str
) -> table.Panel:
    """The newest values as coloured cells, a label down and a label across."""
    fields = {"rowField": down, "columnField": across, "valueField": "Value"}
    return (
        _panel(table.Panel(), number, title, unit, what)
        .span(HALF)
        .min(0)
        .color_scheme(build.FieldColor().mode(FieldColorModeId.CONTINUOUS_BL_YL_RD))
        .cell_options(options.TableColoredBackgroundCellOptions())
        .targets([_newest("A", expression)])
        .transformations([DataTransformerConfig("groupingToMatrix", options=fields)])
    )


def listing(number: int, title: str, what: str, names: Names, *columns: Column) -> table.Panel:
    """A row for each set of labels, a column for each expression."""
    lettered = dict(zip("ABCDEFGHIJ", columns, strict=False))
    panel = (
        _panel(table.Panel(), number, title, COUNT, what)
        .span(FULL)
        .height(10)
        .filterable(filterable=True)
        .targets([_newest(letter, column.expression) for letter, column in lettered.items()])
        .transformations([DataTransformerConfig("merge", options={}), _titles(names, lettered)])
    )
    for column in columns:
        panel.override_by_name(column.title, _column(column))
    if names.linked:
        link = {"title": "Open its dashboard", "url": names.url}
        panel.override_by_name(names.titles[names.linked], [DynamicConfigValue("links", [link])])
    return panel


def _panel(panel: P, number: int, title: str, unit: str, what: str) -> P:
    return panel.id(number).title(title).unit(unit).description(what).datasource(SOURCE).height(8)


def _tooltip() -> common.VizTooltipOptions:
    return (
        common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING)
    )


def _over_time(queries: Sequence[Query]) -> list[Builder[Dataquery]]:
    return [
        prometheus.Dataquery()
        .ref_id(letter)
        .datasource(SOURCE)
        .range()
        .expr(query.expression)
        .legend_format(query.legend)
        for letter, query in zip("ABCDEFGHIJ", queries, strict=False)
    ]


def _newest(letter: str, expression: str) -> Builder[Dataquery]:
    query = prometheus.Dataquery().ref_id(letter).datasource(SOURCE).instant().expr(expression)
    return query.format(PromQueryFormat.TABLE)


def _titles(names: Names, columns: Mapping[str, Column]) -> DataTransformerConfig:
    """A lone column is called Value, one of several Value #A and so on."""
    values = {f"Value #{letter}": column.title for letter, column in columns.items()}
    if len(columns) == 1:
        values = {"Value": columns["A"].title}
    titles = {**names.titles, **values}
    order = {label: place for place, label in enumerate(titles)}
    organized = {"renameByName": titles, "indexByName": order, "excludeByName": {"Time": True}}
    return DataTransformerConfig("organize", options=organized)


def _column(column: Column) -> list[DynamicConfigValue]:
    unit = DynamicConfigValue("unit", column.unit)
    if column.steps is None:
        return [unit]
    colored = DynamicConfigValue("custom.cellOptions", {"type": "color-text"})
    return [unit, DynamicConfigValue("thresholds", column.steps.build()), colored]
