"""Servers that are scraped in turns, each alone while it is measured."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from statistics import median
from typing import NamedTuple

import msgspec

from benchmarks.client import Scrapers, get
from benchmarks.deployments import parsed
from benchmarks.peers import EXPORTER, NGINX, Peers, Server, ours, page_of
from benchmarks.report import milliseconds
from benchmarks.timing import Turns, alternate, percentile

SCRAPERS = (1, 4, 16)
_POLLS = 20
_LARGE = 10_000
"""Targets from which on one server of prometheus_client, which take as long, has to be enough."""

_TURNS = 5
BEFORE = "before any scrape"


class Size(NamedTuple):
    """So many targets; a measure takes about `seconds`, an exchange with a peer at most `longest`."""

    targets: int
    seconds: float
    longest: float


class _Cost(msgspec.Struct, frozen=True):
    """What polls cost, in CPU seconds of each, and how many pages were built so far."""

    cpu: float
    builds: int


class Kind(NamedTuple):
    """Whose page, how it is asked for, and by how many at a time."""

    name: str
    changed: bool
    gzip: bool
    scrapers: int

    def __str__(self) -> str:
        change = {True: ", one target changed", False: ", unchanged"}[self.changed]
        return f"{self.name}{change if self.name == EXPORTER else ''}{', gzip' if self.gzip else ''}"


@dataclass(slots=True)
class Measured:
    """One kind of scrape, in seconds: the latency of each, and the server's CPU time per scrape."""

    latencies: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def p50(self) -> float:
        return median(self.latencies)

    def __str__(self) -> str:
        return f"{milliseconds(self.p50)} / {milliseconds(percentile(self.latencies, 0.99))}"


class Found(NamedTuple):
    """All of one size. Memory by server, in bytes that came with its series."""

    series: int
    scrapes: dict[Kind, Measured]
    memory: dict[str, int]
    poll: float
    builds: int

    def one(self, name: str, *, gzip: bool, changed: bool = False) -> Measured | None:
        return self.scrapes.get(Kind(name, changed, gzip, 1))


class Contender:
    """One kind of scrape of one server."""

    def __init__(self, server: Server, kind: Kind) -> None:
        self._server = server
        self.kind = kind
        self._scrapers = Scrapers(server.port, kind.scrapers, gzip=kind.gzip)
        self.measured = Measured()

    def warm_up(self) -> None:
        """The first answer is nobody's usual one: ours builds its pages, others grow their heaps."""
        if self.kind.scrapers == 1 and self._server.name in (EXPORTER, NGINX):
            self._scrapers.scrape()

    def turn(self) -> None:
        if self.kind.changed:
            polls(self._server, 1)
        before = self._server.running.cpu
        self.measured.latencies += self._scrapers.scrape()
        self.measured.cpu.append((self._server.running.cpu - before) / self.kind.scrapers)

    def close(self) -> None:
        self._scrapers.close()


def polls(server: Server, count: int) -> _Cost:
    """Have ours poll so many targets, whose values have moved."""
    response = get(server.port, f"/bench/polls?count={count}", method="POST")
    assert response.status == 200, response.body
    return msgspec.json.decode(response.body, type=_Cost)


def measure(size: Size, peers: Peers) -> Found:
    with ExitStack() as running:
        exporter = running.enter_context(ours(size.targets))
        polled = exporter.running.resident - exporter.empty
        page = running.enter_context(page_of(exporter))
        others = running.enter_context(peers.serving(page, wsgi=size.targets < _LARGE))
        if size.targets <= 100:
            _same_series(exporter, others)
        series = page.plain.read_bytes().count(b"\nbaseten_")
        alone = _one_by_one((exporter, *others), size)
        memory = {server.name: server.running.resident - server.empty for server in (exporter, *others)}
        scrapes = alone | _at_once((exporter, *others), alone, size)
        cost = median([polls(exporter, _POLLS).cpu for _ in range(_TURNS)])
        return Found(series, scrapes, memory | {BEFORE: polled}, cost, _builds(exporter))


def _one_by_one(servers: Sequence[Server], size: Size) -> dict[Kind, Measured]:
    contenders = [
        Contender(server, Kind(server.name, changed, gzip, 1))
        for server, gzip in product(servers, (False, True))
        for changed in ((True, False) if server.name == EXPORTER else (False,))
    ]
    return _alternate(contenders, size)


def _at_once(servers: Sequence[Server], alone: dict[Kind, Measured], size: Size) -> dict[Kind, Measured]:
    """Several scrapers; of peers, where what one scrape takes says that they do not take too long."""
    by_name = {server.name: server for server in servers}
    contenders = [
        Contender(by_name[kind.name], kind._replace(scrapers=count))
        for count in SCRAPERS[1:]
        for kind, measured in alone.items()
        if kind.name == EXPORTER or measured.p50 * count <= size.longest
    ]
    return _alternate(contenders, size)


def _alternate(contenders: Sequence[Contender], size: Size) -> dict[Kind, Measured]:
    for each in contenders:
        each.warm_up()
    alternate([each.turn for each in contenders], Turns(_TURNS, size.seconds))
    for each in contenders:
        each.close()
    return {each.kind: each.measured for each in contenders}


def _same_series(exporter: Server, others: Sequence[Server]) -> None:
    """Assert that all show what ours shows; each has metrics of itself besides."""
    expected = _data(exporter)
    for server in others:
        assert _data(server) == expected, f"{server.name} shows something else"


def _data(server: Server) -> dict[object, float]:
    series = parsed(get(server.port, "/metrics").body)
    prefixes = ("baseten_model_", "baseten_loops_", "baseten_exporter_target_")
    return {key: value for key, value in series.items() if key[0].startswith(prefixes)}


def _builds(exporter: Server) -> int:
    """How many pages are built when one target changed and sixteen scrapers ask at once."""
    scrapers = Scrapers(exporter.port, 16, gzip=True)
    before = polls(exporter, 1).builds
    scrapers.scrape()
    scrapers.close()
    return polls(exporter, 1).builds - before
