"""How soon a server answers, and how soon the exporter has all of its targets on the page."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from benchmarks import configs
from benchmarks.configs import HIGHEST_RATE
from benchmarks.peers import EXPORTER, GO, NGINX, Peers, Server, ours, page_of, python
from benchmarks.processes import Running, exporter, free_port, simulator
from benchmarks.report import MISSING, Goal, Report, table
from exporter.simulator import World

_SLACK = 1.1


Started = tuple[Running, int]


class Size(NamedTuple):
    targets: int
    rounds: int


def report(size: Size, folder: Path) -> Report:
    peers = Peers(folder)
    with simulator(f"--targets={size.targets}") as url, TemporaryDirectory() as config_folder:
        config = Path(config_folder) / "config.json"
        configs.write(config, url, size.targets, modes=["auto"])
        full = _until_full(config)
        first = _first_answers(config, peers, size)
    least = _least(size.targets)
    rows = [(f"{name}, to the first answer", f"{seconds:.2f} s") for name, seconds in first]
    rows += [(name, MISSING) for name in peers.missing]
    rows.append(
        (
            f"exporter, to the full page; listing and polling at {HIGHEST_RATE}/s take {least:.1f} s",
            f"{full:.1f} s",
        )
    )
    goal = Goal("start to the full page, of what the rate allows", full / least, "at most", _SLACK, "x")
    return Report([table((f"start with {size.targets:,} targets", "time"), rows)], [goal])


def _least(targets: int) -> float:
    """Seconds that the rate asks for: to list each model's deployments, then for two questions about each."""
    models = [target for target in World.sized(targets).targets() if target.kind == "model"]
    listings = len({target.model_id for target in models})
    return (listings + 2 * len(models)) / HIGHEST_RATE


def _until_full(config: Path) -> float:
    port = free_port()
    started = perf_counter()
    with exporter(config, port) as running:
        running.wait_for(port, "/-/ready")
        return perf_counter() - started


def _first_answers(config: Path, peers: Peers, size: Size) -> list[tuple[str, float]]:
    """Medians; the peers have the same series ready in a file, the exporter has yet to poll."""
    with ours(size.targets) as full, page_of(full) as page:
        starts: dict[str, Callable[[], AbstractContextManager[Started]]] = {
            EXPORTER: lambda: _exporter(config),
            "prometheus_client": lambda: _first(python(page)),
        }
        if GO not in peers.missing:
            starts[GO] = lambda: _one(peers.go(page))
        if NGINX not in peers.missing:
            starts[NGINX] = lambda: _one(peers.nginx(page))
        taken: dict[str, list[float]] = {name: [] for name in starts}
        for _ in range(size.rounds):
            for name, start in starts.items():
                taken[name].append(_first_answer(start))
    return [(name, median(seconds)) for name, seconds in taken.items()]


def _first_answer(start: Callable[[], AbstractContextManager[Started]]) -> float:
    begun = perf_counter()
    with start() as (running, port):
        running.wait_for(port, "/metrics")
        return perf_counter() - begun


@contextmanager
def _exporter(config: Path) -> Iterator[Started]:
    port = free_port()
    with exporter(config, port) as running:
        yield running, port


@contextmanager
def _first(servers: AbstractContextManager[Sequence[Server]]) -> Iterator[Started]:
    with servers as both:
        yield both[0].running, both[0].port


@contextmanager
def _one(server: AbstractContextManager[Server]) -> Iterator[Started]:
    with server as it:
        yield it.running, it.port
