"""What scrapes and polls do to each other."""

import json
import subprocess
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import NamedTuple

from benchmarks import configs, schedule
from benchmarks.client import Scrapers
from benchmarks.contest import polls
from benchmarks.peers import Server, ours
from benchmarks.processes import PYTHON, exporter, free_port, simulator
from benchmarks.report import Goal, Report, milliseconds, table
from benchmarks.timing import percentile

_QUIET = 40
_NODES = 2
_PAUSE = 0.1
_STORM = 16
_CONCURRENCY = 64


class Size(NamedTuple):
    """`rate` in answers per second, `seconds` for each half."""

    targets: int
    rate: float
    seconds: float
    latency: float


class _Polling(NamedTuple):
    """Latencies and lateness in seconds, answers per second."""

    scrapes: list[float]
    answers: float
    late: list[float]
    late_in_scrapes: list[float]
    scraped: int


def report(size: Size) -> Report:
    with ours(size.targets, _NODES) as server:
        changed, unchanged = _quiet(server, changed=True), _quiet(server, changed=False)
    found = _polling(size)
    p50, p99 = median(changed), percentile(found.scrapes, 0.99)
    scrapes = {
        "no polls, page unchanged": unchanged,
        "no polls, one target changed before each": changed,
        f"{found.answers:.0f} answers/s meanwhile": found.scrapes,
    }
    polling = {
        "no scrapes": found.late,
        f"{found.scraped / size.seconds:.0f} scrapes/s of {_STORM} without pause": found.late_in_scrapes,
    }
    goal = Goal("p99 of scrapes in a storm of polls, of the quiet p50", p99 / p50, "at most", 3, "x")
    return Report([_scrapes(size, scrapes), _polls(found, polling)], [goal])


def _scrapes(size: Size, found: dict[str, list[float]]) -> str:
    head = (f"gzip scrapes of {size.targets:,} targets' series", "p50", "p99")
    return table(head, [(name, *_p50_p99(each)) for name, each in found.items()])


def _polls(found: _Polling, late: dict[str, list[float]]) -> str:
    head = (f"polls at {found.answers:.0f} answers/s, start after their time", "p50", "p99", "within 1 s")
    rows = [(name, *_p50_p99(each), f"{schedule.punctual(each):.1f}%") for name, each in late.items()]
    return table(head, rows)


def _p50_p99(seconds: list[float]) -> tuple[str, str]:
    return milliseconds(median(seconds)), milliseconds(percentile(seconds, 0.99))


def _quiet(server: Server, *, changed: bool) -> list[float]:
    scrapers = Scrapers(server.port, 1, gzip=True)
    scrapers.scrape()
    latencies = []
    for _ in range(_QUIET):
        if changed:
            polls(server, 1)
        latencies += scrapers.scrape()
    scrapers.close()
    return latencies


def _polling(size: Size) -> _Polling:
    interval = size.targets / size.rate
    port = free_port()
    with (
        simulator(f"--targets={size.targets}", f"--latency={size.latency}") as url,
        TemporaryDirectory() as folder,
    ):
        config = Path(folder) / "config.json"
        configs.write(
            config,
            url,
            size.targets,
            modes=configs.ONE_ANSWER,
            interval=interval,
            concurrency=_CONCURRENCY,
        )
        with exporter(config, port) as running:
            running.wait_for(port, "/-/ready")
            sleep(1.5 * interval)  # until every target is on its own time
            late = schedule.lateness(port, interval)
            before = schedule.total(port, "baseten_exporter_polls_total")
            scrapes = _scrape(port, size.seconds)
            answers = schedule.total(port, "baseten_exporter_polls_total") - before
            scraped, late_in_scrapes = _scrape_storm(port, interval, size.seconds)
    return _Polling(scrapes, answers / size.seconds, late, late_in_scrapes, scraped)


def _scrape(port: int, seconds: float) -> list[float]:
    scrapers = Scrapers(port, 1, gzip=True)
    end = monotonic() + seconds
    latencies: list[float] = []
    while monotonic() < end:
        latencies += scrapers.scrape()
        sleep(_PAUSE)
    scrapers.close()
    return latencies


def _scrape_storm(port: int, interval: float, seconds: float) -> tuple[int, list[float]]:
    """How many scrapes there were, and the lateness of the polls of the last interval."""
    command = [*PYTHON, "benchmarks.client", str(port), f"--scrapers={_STORM}", f"--seconds={seconds}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as storm:
        sleep(seconds - 0.5)
        late = schedule.lateness(port, interval)
        output, _ = storm.communicate()
    return len(json.loads(output)), late
