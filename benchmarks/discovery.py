"""Listing a large organization: requests, time, and the memory it keeps, in a fresh process."""

import gc
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from benchmarks.processes import KEY, resident, simulator
from benchmarks.report import Goal, Report, table
from exporter.app import Exporter
from exporter.config import load
from exporter.logs import Redactor

_GOAL = 60
"""MB, for 2,000 models of three deployments."""

_RATE = 100
_CONFIG = """
workspaces:
  - name: production
    api_key_env: KEY
    api_url: {url}
    requests_per_second: {rate}
    discovery: {{models: {{}}, environments: true, prices: true}}
"""


class Found(NamedTuple):
    """What one run through the listings took; memory in bytes."""

    requests: int
    seconds: float
    targets: int
    series: int
    memory: int


def report(models: int) -> Report:
    """The figures of an organization of so many models, three deployments each."""
    spawn = multiprocessing.get_context("spawn")
    with simulator(f"--organization={models}") as url, ProcessPoolExecutor(1, spawn) as pool:
        found = pool.submit(_discover, url).result()
    rows = [
        ("requests", f"{found.requests:,}"),
        (f"time at {_RATE} requests per second and endpoint", f"{found.seconds:.1f} s"),
        ("targets found", f"{found.targets:,}"),
        ("series that describe what is listed", f"{found.series:,}"),
        ("memory kept", f"{found.memory / 1e6:.0f} MB"),
    ]
    title = f"discovery of {models:,} models, {3 * models:,} deployments"
    goal = Goal(f"{title}: memory kept", found.memory / 1e6, "at most", _GOAL, " MB")
    return Report([table((title, "exporter"), rows)], [goal])


def _discover(url: str) -> Found:
    """List everything once, before anything is polled."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(_CONFIG.format(url=url, rate=_RATE))
        exporter = Exporter(lambda: load(path, {"KEY": KEY}), Redactor())
    gc.collect()
    before, started = resident(), perf_counter()
    exporter.list_once()
    seconds = perf_counter() - started
    gc.collect()
    after = resident()
    families = exporter.store.families()[1]
    series = sum(lines.count(b"\n") for share in families.values() for lines in share.lines)
    return Found(_requests(exporter), seconds, len(exporter.targets), series, after - before)


def _requests(exporter: Exporter) -> int:
    metrics = exporter.telemetry.registry.collect()
    samples = [sample for metric in metrics for sample in metric.samples]
    return int(sum(each.value for each in samples if each.name == "baseten_exporter_api_requests_total"))
