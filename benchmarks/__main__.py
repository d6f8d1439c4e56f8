"""Runs every measure once and prints the table; the exit status says nothing of the figures."""

import argparse
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from benchmarks import discovery, memory, poll, scrape
from benchmarks.report import Row, table

_PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
_BEGIN, _END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


class Size(NamedTuple):
    targets: int
    rounds: int
    models: int


FULL = Size(targets=1000, rounds=11, models=2000)
SMOKE = Size(targets=20, rounds=1, models=10)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--smoke", action="store_true", help="small and quick: only to see that it runs")
    choice.add_argument("--write", action="store_true", help=f"write the table into docs/{_PAGE.name} too")
    args = parser.parse_args()
    size = SMOKE if args.smoke else FULL
    results = "\n\n".join([table(_measure(size)), discovery.table(size.models), _circumstances()])
    print(results)
    if args.smoke:
        print("Far too small to judge the goals: this shows only that everything runs.")
    if args.write:
        _write(results)


def _measure(size: Size) -> list[Row]:
    return [
        *scrape.rows(size.targets, size.rounds),
        *poll.rows(size.rounds * 5),
        *memory.rows(size.targets),
    ]


def _circumstances() -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    client = f"prometheus_client {version('prometheus-client')}"
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"Medians of one run: {python}, {client}, {system}."


def _write(results: str) -> None:
    before, _, rest = _PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    _PAGE.write_text(f"{before}{_BEGIN}\n{results}\n{_END}{after}")


if __name__ == "__main__":
    main()
