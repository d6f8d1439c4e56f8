"""Which targets the status page shows, and in which order."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from urllib.parse import urlencode

from exporter.web.status import TargetStatus

LIMIT = 300
"""How many targets stand on a page unless all are asked for."""

BROKEN_FIRST = ("down", "pending", "up")

SORTABLE = tuple(field for field in TargetStatus.__struct_fields__ if field != "labels")


@dataclass(frozen=True, slots=True)
class View:
    """What the page's query asks for, each part optional.

    `q` is looked for in all that is said of a target, `state`, `workspace` and `kind` are as in its
    fields, `sort` is the field to sort by, `order` asc or desc, and `show` is "all" for all at once.
    """

    q: str = ""
    state: str = ""
    workspace: str = ""
    kind: str = ""
    sort: str = "state"
    order: str = "asc"
    show: str = ""

    @staticmethod
    def of(query: Mapping[str, str]) -> "View":
        """The view a query asks for; what it does not know, it leaves out."""
        asked = {field.name: query[field.name] for field in fields(View) if field.name in query}
        if asked.get("sort") not in SORTABLE:
            asked.pop("sort", None)
        return View(**asked)

    def link(self, **changes: str) -> str:
        """The query of this view with some changes: what a link to it says."""
        usual = asdict(View())
        asked = {**asdict(self), **changes}
        return "?" + urlencode({name: value for name, value in asked.items() if value != usual[name]})

    @property
    def filters(self) -> bool:
        return any((self.q, self.state, self.workspace, self.kind))

    def choose(self, targets: Iterable[TargetStatus]) -> list[TargetStatus]:
        """Those that match, in order; where the field to sort by says nothing, last in either order."""
        by_name = sorted(filter(self._matches, targets), key=_names)
        said = [target for target in by_name if getattr(target, self.sort) is not None]
        unsaid = [target for target in by_name if getattr(target, self.sort) is None]
        return sorted(said, key=_key(self.sort), reverse=self.order == "desc") + unsaid

    def _matches(self, target: TargetStatus) -> bool:
        return (
            self.state in ("", target.state)
            and self.workspace in ("", target.workspace)
            and self.kind in ("", target.kind)
            and self.q.strip().casefold() in _words(target)
        )


def _key(sort: str) -> Callable[[TargetStatus], str | float]:
    if sort == "state":
        return lambda target: BROKEN_FIRST.index(target.state)
    return lambda target: getattr(target, sort)


def _names(target: TargetStatus) -> tuple[str, ...]:
    return (target.workspace, target.kind, target.model_id or "", target.deployment_id)


def _words(target: TargetStatus) -> str:
    said = (*_names(target), target.state, target.reason, target.error, *target.labels.values())
    return "\n".join(filter(None, said)).casefold()
