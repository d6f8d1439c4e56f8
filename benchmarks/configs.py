"""Config files for simulated deployments, all kinds mixed."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import KEY_VARIABLE
from exporter.simulator import TargetId, World

HIGHEST_RATE = 100
_TIMEOUT = 10
ONE_ANSWER = ("current", "summary")
"""Modes in which a poll is one answer."""


def write(  # noqa: PLR0913  # every one has a default but where and what
    path: Path,
    url: str,
    targets: int,
    *,
    modes: Sequence[str],
    workspaces: int = 1,
    interval: float = 60,
    concurrency: int = 32,
    metadata_labels: Sequence[str] = ("model_name", "environment", "base_model"),
) -> None:
    """Poll so many deployments, dealt out to workspaces that have the same key; `interval` in seconds.

    Without `metadata_labels` nothing has to be listed before the first polls.
    """
    found = World.sized(targets).targets()
    document = {
        "poll": {
            "interval": _duration(interval),
            "timeout": _duration(min(interval, _TIMEOUT)),
            "concurrency": concurrency,
        },
        "workspaces": [
            {
                **_workspace(f"w{nth}", url, found[nth::workspaces], modes),
                "metadata_labels": metadata_labels,
            }
            for nth in range(workspaces)
        ],
    }
    path.write_text(json.dumps(document))


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"


def _workspace(name: str, url: str, targets: Sequence[TargetId], modes: Sequence[str]) -> dict[str, object]:
    models = [each for each in targets if each.kind == "model"]
    return {
        "name": name,
        "api_key_env": KEY_VARIABLE,
        "api_url": url,
        "requests_per_second": HIGHEST_RATE,
        "models": [
            {
                "model_id": each.model_id,
                "deployment_id": each.deployment_id,
                "mode": modes[number % len(modes)],
            }
            for number, each in enumerate(models)
        ],
        "loops": [{"deployment_id": each.deployment_id} for each in targets if each.kind == "loops"],
    }
