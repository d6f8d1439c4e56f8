"""Memory that polled series keep: resident memory of a fresh process, before and after."""

import asyncio
import gc
import gzip
import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from benchmarks.fleet import NOW, STALE_AFTER, Fleet, shown
from benchmarks.report import Row, sizes, smaller
from exporter.exposition import Format
from exporter.model import Family, Labels, Target
from exporter.polling.poller import to_snapshot
from exporter.store import HEALTH, Store
from exporter.web.pages import Pages

_GOAL = 500
_STATM = Path("/proc/self/statm")
_WARM_UP = 25
"""Polls before the first look at memory: what every target shares is not what a series costs."""


class Kept(NamedTuple):
    """Bytes per series: polled, then after one scrape with gzip, then after one without."""

    polled: float
    gzip: float
    plain: float


def rows(targets: int) -> list[Row]:
    if not _STATM.exists():
        return []  # only Linux tells
    ours, theirs = _in_fresh_process(_exporter, targets), _in_fresh_process(_peer, targets)
    return [
        smaller("memory per series, polled", ours.polled, theirs.polled, _GOAL),
        sizes("memory per series, after a gzip scrape", ours.gzip, theirs.gzip),
        sizes("memory per series, after a plain scrape too", ours.plain, theirs.plain),
    ]


def _in_fresh_process(measure: Callable[[int], Kept], targets: int) -> Kept:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, targets).result()


def _exporter(targets: int) -> Kept:
    fleet = _warm_fleet(targets)
    store = Store(lambda: NOW)
    pages = Pages(store, CollectorRegistry())
    before = _resident()
    store.retarget(fleet.targets, STALE_AFTER)
    for target in fleet.targets:
        store.succeed(target, to_snapshot(target, fleet.harvest(target)), 0.1)
    polled = _resident()
    asyncio.run(pages.page(Format.TEXT, gzip=True))
    after_gzip = _resident()
    page = asyncio.run(pages.page(Format.TEXT, gzip=False))[0]
    return _per_series(page, before, polled, after_gzip)


def _peer(targets: int) -> Kept:
    fleet = _warm_fleet(targets)
    gauges = Gauges()
    before = _resident()
    for target in fleet.targets:
        _show(fleet, target, gauges)
    polled = _resident()
    gzip.compress(generate_latest(gauges.registry))
    after_gzip = _resident()
    page = generate_latest(gauges.registry)
    return _per_series(page, before, polled, after_gzip)


class Gauges:
    """Every family a gauge of prometheus_client's own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}

    def set(self, family: Family, labels: Labels) -> None:
        always = {"model_id": ""} if family.name in HEALTH else {}  # a gauge's label names are fixed
        for own, value in family.samples:
            pairs = always | dict(labels + own)
            gauge = self._gauges.get(family.name) or self._add(family, pairs)
            gauge.labels(**pairs).set(value)

    def _add(self, family: Family, names: Iterable[str]) -> Gauge:
        gauge = Gauge(family.name, family.help, tuple(names), registry=self.registry)
        return self._gauges.setdefault(family.name, gauge)


def _show(fleet: Fleet, target: Target, gauges: Gauges) -> None:
    """Poll one target into gauges; a store of its own says what there is to show of its health."""
    store = Store(lambda: NOW)
    store.retarget([target], STALE_AFTER)
    harvest = fleet.harvest(target)
    store.succeed(target, to_snapshot(target, harvest), 0.1)
    for family, labels in shown(store.view()[1][0], harvest.families()):
        gauges.set(family, labels)


def _warm_fleet(targets: int) -> Fleet:
    fleet = Fleet(targets)
    for target in fleet.targets[:_WARM_UP]:
        to_snapshot(target, fleet.harvest(target))
    return fleet


def _per_series(page: bytes, before: int, polled: int, after_gzip: int) -> Kept:
    """`page` is what the last scrape answered; memory is looked at before its lines are counted."""
    after_plain = _resident()
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    return Kept(*[(after - before) / series for after in (polled, after_gzip, after_plain)])


def _resident() -> int:
    gc.collect()
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
