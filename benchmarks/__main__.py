"""Runs what is asked for, or everything; the exit status says nothing of the figures."""

import argparse
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from benchmarks import contest, discovery, fleet, poll, scrape, start, storm
from benchmarks.report import Report, goals
from benchmarks.timing import Turns

_PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
_BEGIN, _END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


class Size(NamedTuple):
    """How large every section is; together they take less than ten minutes, or one."""

    scrape: tuple[contest.Size, ...]
    turns: Turns
    start: start.Size
    storm: storm.Size
    fleet: fleet.Size
    models: int


FULL = Size(
    scrape=(contest.Size(100, 0.5, 5), contest.Size(1000, 0.8, 3), contest.Size(10_000, 1.5, 3)),
    turns=Turns(rounds=10, seconds=1.5),
    start=start.Size(1000, rounds=3),
    storm=storm.Size(1000, rate=100, seconds=15, latency=0.2),
    fleet=fleet.Size(10_000, interval=60),
    models=2000,
)
SMOKE = Size(
    scrape=(contest.Size(5, 0.01, 0.1), contest.Size(10, 0.01, 0.1)),
    turns=Turns(rounds=1, seconds=0.01),
    start=start.Size(10, rounds=1),
    storm=storm.Size(20, rate=10, seconds=2, latency=0.01),
    fleet=fleet.Size(10, interval=3),
    models=5,
)


def main() -> None:
    sections: dict[str, Callable[[Size, Path], Report]] = {
        "scrape": lambda size, folder: scrape.report(size.scrape, folder, size.turns),
        "poll": lambda size, _: poll.report(size.turns),
        "start": lambda size, folder: start.report(size.start, folder),
        "storm": lambda size, _: storm.report(size.storm),
        "fleet": lambda size, _: fleet.report(size.fleet),
        "discovery": lambda size, _: discovery.report(size.models),
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"some of: {', '.join(sections)} (default: all)"
    )
    parser.add_argument("--smoke", action="store_true", help="small and quick: only to see that it runs")
    parser.add_argument("--write", action="store_true", help=f"write everything into docs/{_PAGE.name} too")
    args = parser.parse_args()
    chosen = args.sections or list(sections)
    if unknown := set(chosen) - sections.keys():
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    if args.write and (args.smoke or args.sections):
        parser.error("--write is for a full run of all sections")
    size = SMOKE if args.smoke else FULL
    with TemporaryDirectory() as folder:
        reports = [_run(name, sections[name], size, Path(folder)) for name in chosen]
    reached = [goal for report in reports for goal in report.goals]
    if args.smoke:
        print("Far too small to judge the goals: this shows only that everything runs.\n")
    print(f"{goals(reached)}\n\n{_circumstances()}")
    if args.write:
        tables = [table for report in reports for table in report.tables]
        _write("\n\n".join([*tables, goals(reached), _circumstances()]))


def _run(name: str, section: Callable[[Size, Path], Report], size: Size, folder: Path) -> Report:
    """Run one section and print its tables as soon as they are there."""
    started = perf_counter()
    report = section(size, folder)
    print("\n\n".join([*report.tables, f"({name}: {perf_counter() - started:.0f} s)\n"]), flush=True)
    return report


def _circumstances() -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    client = f"prometheus_client {version('prometheus-client')}"
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"Medians of one run: {python}, {client}, {system}, which servers and scrapers share."


def _write(results: str) -> None:
    before, _, rest = _PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    _PAGE.write_text(f"{before}{_BEGIN}\n{results}\n{_END}{after}")


if __name__ == "__main__":
    main()
