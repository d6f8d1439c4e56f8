"""Ten thousand deployments: the installed exporter, the API in a process of its own, Prometheus' scrapes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import NamedTuple

from benchmarks import configs, schedule
from benchmarks.client import Scrapers
from benchmarks.processes import Running, exporter, free_port, simulator
from benchmarks.report import Goal, Report, milliseconds, table

_PUNCTUAL, _CPU = 99.9, 40
_PER_SERIES, _FIXED = 400, 150e6
_HEALTH = 4
"""Series that each target has besides its own."""

_WORKSPACES = 2
_SCRAPES = 4


class Size(NamedTuple):
    """`interval` in seconds; what is measured takes one."""

    targets: int
    interval: float


class Api(NamedTuple):
    """Seconds before each answer, and how many polls of a workspace run at once."""

    latency: float
    concurrency: int


class Minute(NamedTuple):
    """One interval: shares in percent, seconds, bytes."""

    punctual: float
    latest: float
    skipped: int
    answers: float
    cpu: float
    memory: int
    series: int
    scrape: float


APIS = (Api(0.2, 32), Api(2.0, 256))


def report(size: Size) -> Report:
    found = dict(zip(APIS, _run(size), strict=True))
    heads = [f"API latency {api.latency * 1000:g} ms, concurrency {api.concurrency}" for api in found]
    rows = [
        ("answers per second", *[f"{each.answers:.0f}" for each in found.values()]),
        ("polls within 1 s of their time", *[f"{each.punctual:.2f}%" for each in found.values()]),
        ("latest of them", *[f"{each.latest:.2f} s" for each in found.values()]),
        ("polls skipped", *[f"{each.skipped}" for each in found.values()]),
        ("CPU, of one core", *[f"{each.cpu:.0f}%" for each in found.values()]),
        ("memory", *[f"{each.memory / 1e6:,.0f} MB" for each in found.values()]),
        ("series", *[f"{each.series:,}" for each in found.values()]),
        (f"longest of {_SCRAPES} gzip scrapes", *[milliseconds(each.scrape) for each in found.values()]),
    ]
    title = f"{size.targets:,} targets every {size.interval:g} s"
    goals = [goal for api, minute in found.items() for goal in _goals(f"{title}, {api.latency:g} s", minute)]
    return Report([table((title, *heads), rows)], goals)


def _goals(title: str, found: Minute) -> list[Goal]:
    room = _FIXED + _PER_SERIES * found.series
    return [
        Goal(f"{title}: polls within 1 s", found.punctual, "at least", _PUNCTUAL, "%"),
        Goal(f"{title}: CPU of one core", found.cpu, "at most", _CPU, "%"),
        Goal(f"{title}: memory", found.memory / 1e6, "at most", round(room / 1e6), " MB"),
    ]


def _run(size: Size) -> list[Minute]:
    port = free_port()
    found = []
    with TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        with _api(APIS[0], size, config), exporter(config, port) as running:
            running.wait_for(port, "/-/ready")
            sleep(size.interval / 2)  # first polls are off the schedule, and next ones half an interval later
            found.append(_measure(running, port, size))
            with _api(APIS[1], size, config):
                running.signal(signal.SIGHUP)
                sleep(size.interval / 4)  # reading the config, and the polls that are late for it
                found.append(_measure(running, port, size))
    return found


@contextmanager
def _api(api: Api, size: Size, config: Path) -> Iterator[None]:
    """Serve it, and have the config ask it."""
    with simulator(f"--targets={size.targets}", f"--latency={api.latency}") as url:
        configs.write(
            config,
            url,
            size.targets,
            modes=configs.ONE_ANSWER,
            workspaces=_WORKSPACES,
            interval=size.interval,
            concurrency=api.concurrency,
            metadata_labels=(),
        )
        yield


def _measure(running: Running, port: int, size: Size) -> Minute:
    polls, skipped = _polls(port)
    started, cpu = monotonic(), running.cpu
    scrapes = _scrape(port, size.interval)
    seconds, cpu = monotonic() - started, running.cpu - cpu
    late = schedule.lateness(port, size.interval)
    polls, skipped = (after - before for after, before in zip(_polls(port), (polls, skipped), strict=True))
    return Minute(
        punctual=schedule.punctual(late, int(skipped)),
        latest=max(late),
        skipped=int(skipped),
        answers=polls / seconds,
        cpu=100 * cpu / seconds,
        memory=running.resident,
        series=int(schedule.total(port, "baseten_exporter_target_series")) + _HEALTH * size.targets,
        scrape=max(scrapes),
    )


def _polls(port: int) -> tuple[float, float]:
    """How many ran, and how many were skipped."""
    ran, skipped = "baseten_exporter_polls_total", "baseten_exporter_polls_skipped_total"
    return schedule.total(port, ran), schedule.total(port, skipped)


def _scrape(port: int, seconds: float) -> list[float]:
    scrapers = Scrapers(port, 1, gzip=True)
    latencies = []
    for _ in range(_SCRAPES):
        latencies += scrapers.scrape()
        sleep(max(0, seconds / _SCRAPES - latencies[-1]))
    scrapers.close()
    return latencies
