"""The text of every dashboard's file."""

import json
from typing import TYPE_CHECKING

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools.dashboards import health, loops, model, overview

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders.dashboard import Dashboard


def documents() -> dict[str, str]:
    """JSON by name of the file, which is the dashboard's UID."""
    built = (overview.dashboard(), model.dashboard(), loops.dashboard(), health.dashboard())
    return {f"{each.build().uid}.json": _text(each) for each in built}


def _text(dashboard: "Dashboard") -> str:
    return json.dumps(dashboard.build(), cls=JSONEncoder, indent=2) + "\n"
