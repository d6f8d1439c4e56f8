"""Whole polls over HTTP, as the exporter makes them: CPU of its own process, the API in another."""

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks import configs
from benchmarks.processes import KEY, KEY_VARIABLE, simulator
from benchmarks.report import milliseconds, table
from benchmarks.timing import Call, Turns, cpu_of_calls
from exporter.app import Exporter
from exporter.config import load
from exporter.logs import Redactor
from exporter.model import ModelOptions, Target

_TARGETS = 50


class Cost(NamedTuple):
    kind: str
    series: int
    cpu: float


def cost_table(turns: Turns) -> str:
    head = ("CPU of a whole poll, one answer over HTTP", "exporter")
    rows = [(f"{cost.kind}, {cost.series} series", milliseconds(cost.cpu)) for cost in _measure(turns)]
    return table(head, rows)


def _measure(turns: Turns) -> list[Cost]:
    with simulator(f"--targets={_TARGETS}") as url, TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        configs.write(config, url, _TARGETS, modes=configs.ONE_ANSWER)
        exporter = Exporter(lambda: load(config, {KEY_VARIABLE: KEY}), Redactor())
        exporter.list_once()
        targets: dict[str, list[Target]] = defaultdict(list)
        for target in exporter.targets:
            targets[_kind(target)].append(target)
        costs = cpu_of_calls([_all(exporter, each) for each in targets.values()], turns)
        found = [
            Cost(kind, _series(exporter, each) // len(each), cpu / len(each))
            for (kind, each), cpu in zip(targets.items(), costs, strict=True)
        ]
        exporter.close()
        return found


def _kind(target: Target) -> str:
    return f"model {target.options.mode.upper()}" if isinstance(target.options, ModelOptions) else "Loops"


def _all(exporter: Exporter, targets: list[Target]) -> Call:
    def poll() -> None:
        for target in targets:
            exporter.poller.poll(target)

    return poll


def _series(exporter: Exporter, targets: list[Target]) -> int:
    entries = {entry.target: entry for entry in exporter.store.view()[1]}
    snapshots = [entries[target].snapshot for target in targets]
    assert all(snapshots), "a poll failed"
    return sum(snapshot.series for snapshot in snapshots if snapshot)
