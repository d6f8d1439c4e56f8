"""The demo: a simulated Baseten API, and the config of an exporter that polls it as the real one."""

import time

from exporter.simulator import Simulator, World

KEY_VARIABLE = "BASETEN_API_KEY"


def simulator(targets: int | None) -> Simulator:
    """An organization with one of everything, in which things happen, or one with so many targets."""
    world = World.demo(start=time.time()) if targets is None else World.sized(targets)
    return Simulator(world, key="demo-key-no-secret")


def config(api: Simulator) -> str:
    """The YAML an operator would write to have everything polled, only more often."""
    return f"""\
poll: {{interval: 15s}}
workspaces:
  - name: demo
    api_key_env: {KEY_VARIABLE}
    api_url: {api.url}
    requests_per_second: 90
    discovery: {{interval: 15s, models: {{}}, loops: {{scope: org}}}}
"""
