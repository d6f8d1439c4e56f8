"""A scrape of a large page: ours, and a prometheus_client collector that shows the same series."""

import asyncio
import gzip
import itertools
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from benchmarks.fleet import NOW, STALE_AFTER, WORKSPACE, Fleet, parsed, shown
from benchmarks.report import Row, faster
from benchmarks.timing import Contender, medians
from exporter.exposition import Format
from exporter.model import Family, Labels, Target
from exporter.polling.poller import to_snapshot
from exporter.store import Store
from exporter.telemetry import Telemetry
from exporter.web.pages import Pages

_CHANGED, _UNCHANGED = 25, 1000
"""The goals: how many times faster."""

_MOMENT = 1.0


class Exporter:
    """The serving side with a store full of polls."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._now = NOW
        self.store = Store(lambda: self._now)
        self.store.retarget(fleet.targets, STALE_AFTER)
        self.pages = Pages(self.store, telemetry().registry)
        self._loop = asyncio.new_event_loop()
        self.families = {target.key: self._poll(target) for target in fleet.targets}
        self._next = itertools.cycle(fleet.targets)

    def poll(self) -> None:
        """Poll the next target, a moment later: its values have moved."""
        before = self.store.version
        self._now += _MOMENT
        self._poll(next(self._next))
        assert self.store.version != before, "nothing to build a page for"

    def _poll(self, target: Target) -> list[Family]:
        harvest = self._fleet.harvest(target, self._now)
        self.store.succeed(target, to_snapshot(target, harvest), 0.1)
        return harvest.families()

    def scrape(self) -> list[bytes]:
        return self._loop.run_until_complete(self.pages.page(Format.TEXT, gzip=False))

    def scrape_gzip(self) -> list[bytes]:
        return self._loop.run_until_complete(self.pages.page(Format.TEXT, gzip=True))

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class Peer:
    """Keeps finished samples, its labels merged when they arrived: a scrape has only to write them."""

    def __init__(self, families: Iterable[tuple[Family, Labels]]) -> None:
        self._families: dict[str, tuple[str, list[Sample]]] = {}
        for family, labels in families:
            _, samples = self._families.setdefault(family.name, (family.help, []))
            samples += [Sample(family.name, dict(labels + own), value) for own, value in family.samples]
        self.registry = telemetry().registry
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        for name, (help_text, samples) in sorted(self._families.items()):
            metric = GaugeMetricFamily(name, help_text)
            metric.samples = samples
            yield metric

    def scrape(self) -> bytes:
        return generate_latest(self.registry)

    def scrape_gzip(self) -> bytes:
        return gzip.compress(generate_latest(self.registry))


def telemetry() -> Telemetry:
    own = Telemetry()
    own.watch([WORKSPACE])
    return own


def rows(targets: int, rounds: int) -> list[Row]:
    exporter = Exporter(Fleet(targets))
    entries = exporter.store.view()[1]
    peer = Peer(each for entry in entries for each in shown(entry, exporter.families[entry.target.key]))
    series = _same_page(exporter, peer.registry)
    changed, unchanged, theirs, changed_gzip, unchanged_gzip, theirs_gzip = medians(
        [
            Contender(exporter.scrape, exporter.poll, times=5),
            Contender(exporter.scrape, times=20),
            Contender(peer.scrape),
            Contender(exporter.scrape_gzip, exporter.poll, times=5),
            Contender(exporter.scrape_gzip, times=20),
            Contender(peer.scrape_gzip),
        ],
        rounds,
    )
    exporter.close()
    what = f"scrape of {series:,} series"
    return [
        faster(f"{what}, one target changed", changed, theirs, _CHANGED),
        faster(f"{what}, one target changed, gzip", changed_gzip, theirs_gzip, _CHANGED),
        faster(f"{what}, nothing changed", unchanged, theirs, _UNCHANGED),
        faster(f"{what}, nothing changed, gzip", unchanged_gzip, theirs_gzip, _UNCHANGED),
    ]


def _same_page(exporter: Exporter, registry: CollectorRegistry) -> int:
    """Assert that both sides say the same, compressed or not; return the number of series."""
    ours, theirs = parsed(b"".join(exporter.scrape())), parsed(generate_latest(registry))
    # The client library adds when it made each counter: a few dozen samples that the exporter leaves out.
    theirs = {key: value for key, value in theirs.items() if not key[0].endswith("_created")}
    assert ours.keys() == theirs.keys()
    assert gzip.decompress(b"".join(exporter.scrape_gzip())).count(b"\n") > len(ours)
    data = [key for key in ours if key[0].startswith(("baseten_model_", "baseten_loops_"))]
    assert all(ours[key] == theirs[key] for key in data)
    return len(ours)
