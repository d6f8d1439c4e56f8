"""Listing a large organization: requests, time, and the memory it keeps, in a fresh process."""

import gc
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from exporter.app import Exporter
from exporter.config import load
from exporter.logs import Redactor

_GOAL = 60
"""MB, for 2,000 models of three deployments."""

_KEY = "benchmark-key"
_RATE = 100
_STATM = Path("/proc/self/statm")
_CONFIG = """
workspaces:
  - name: production
    api_key_env: KEY
    api_url: {url}
    requests_per_second: {rate}
    discovery: {{models: {{}}, environments: true, prices: true}}
"""


class Found(NamedTuple):
    """What one run through the listings took; memory in bytes, None where the system does not tell."""

    requests: int
    seconds: float
    targets: int
    series: int
    memory: int | None


def table(models: int) -> str:
    """The figures of an organization of so many models, three deployments each."""
    with _simulator(models) as url, ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(_discover, url).result()
    rows = [
        ("requests", f"{found.requests:,}", ""),
        (f"time at {_RATE} requests per second and endpoint", f"{found.seconds:.1f} s", ""),
        ("targets found", f"{found.targets:,}", ""),
        ("series that describe what is listed", f"{found.series:,}", ""),
    ]
    if found.memory is not None:
        megabytes = found.memory / 1e6
        reached = "yes" if megabytes <= _GOAL else "NO"
        rows.append(("memory kept", f"{megabytes:.0f} MB", f"at most {_GOAL} MB: {reached}"))
    head = (f"discovery of {models:,} models, {3 * models:,} deployments", "exporter", "goal")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [_line(cells, widths) for cells in (head, *rows)]
    rule = f"|{'-' * (widths[0] + 2)}|{'-' * (widths[1] + 1)}:|{'-' * (widths[2] + 2)}|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    measure, figure, goal = cells
    return f"| {measure.ljust(widths[0])} | {figure.rjust(widths[1])} | {goal.ljust(widths[2])} |"


@contextmanager
def _simulator(models: int) -> Iterator[str]:
    command = [sys.executable, "-m", "exporter.simulator"]
    options = [f"--organization={models}", "--limit=0", f"--key={_KEY}"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _discover(url: str) -> Found:
    """List everything once, before anything is polled."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(_CONFIG.format(url=url, rate=_RATE))
        exporter = Exporter(lambda: load(path, {"KEY": _KEY}), Redactor())
    before, started = _resident(), perf_counter()
    exporter.list_once()
    seconds, after = perf_counter() - started, _resident()
    pieces = exporter.store.pieces()[1]
    series = sum(piece.lines.count(b"\n") for share in pieces for piece in share.values())
    memory = None if before is None or after is None else after - before
    return Found(_requests(exporter), seconds, len(exporter.targets), series, memory)


def _requests(exporter: Exporter) -> int:
    metrics = exporter.telemetry.registry.collect()
    samples = [sample for metric in metrics for sample in metric.samples]
    return int(sum(each.value for each in samples if each.name == "baseten_exporter_api_requests_total"))


def _resident() -> int | None:
    gc.collect()
    if not _STATM.exists():  # only Linux tells
        return None
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
