"""The demo: a simulated Baseten API, and the config of an exporter that polls it as the real one."""

import json
import time

from exporter.simulator import Simulator, World

KEY_VARIABLE = "BASETEN_API_KEY"
_INTERVAL = "15s"


def simulator(targets: int | None) -> Simulator:
    """An organization with one of everything, or with so many targets."""
    world = World.demo(start=time.time()) if targets is None else World.sized(targets)
    return Simulator(world, key="demo-key-no-secret")


def config(api: Simulator) -> str:
    """The YAML an operator would write for what `api` has."""
    lines = [
        f"poll: {{interval: {_INTERVAL}}}",
        "workspaces:",
        "  - name: demo",
        f"    api_key_env: {KEY_VARIABLE}",
        f"    api_url: {api.url}",
        "    requests_per_second: 90",
        *_entries(
            "models", [(t.model_id, t.deployment_id) for t in api.world.targets() if t.kind == "model"]
        ),
        *_entries("loops", [("", t.deployment_id) for t in api.world.targets() if t.kind == "loops"]),
    ]
    return "\n".join(lines) + "\n"


def _entries(section: str, ids: list[tuple[str, str]]) -> list[str]:
    """JSON is YAML, and quotes every id."""
    keys = ("model_id", "deployment_id")
    entries = [{key: value for key, value in zip(keys, pair, strict=True) if value} for pair in ids]
    return [f"    {section}:", *(f"      - {json.dumps(entry)}" for entry in entries)]
