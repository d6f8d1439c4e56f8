"""Scrapes, memory and the whole cost per minute, ours beside the peers', on the same series."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks import poll
from benchmarks.contest import BEFORE, SCRAPERS, Found, Kind, Size, measure
from benchmarks.peers import ASGI, EXPORTER, GO, NGINX, WSGI, Peers
from benchmarks.report import MISSING, Goal, Report, milliseconds, table, times
from benchmarks.timing import Turns, slope

_SCRAPES_A_MINUTE = 4


def report(sizes: Sequence[Size], folder: Path, turns: Turns) -> Report:
    peers = Peers(folder)
    found = [measure(size, peers) for size in sizes]
    answers = poll.measure(turns)
    tables = [_scrapes(each, peers.missing) for each in found]
    tables += [_memory(found, peers.missing), _per_minute(found[-1], sizes[-1], answers)]
    return Report(tables, [*_goals(found[-1]), *_growth(found)])


def _scrapes(found: Found, missing: Sequence[str]) -> str:
    head = (
        f"scrape of {found.series:,} series, p50 / p99",
        *(f"{count} scraper{'s' * (count > 1)}" for count in SCRAPERS),
        "CPU per scrape",
        "times ours",
    )
    kinds = [kind for kind in found.scrapes if kind.scrapers == 1]
    rows = [_row(found, kind, head) for kind in sorted(kinds, key=lambda kind: (kind.gzip, not kind.changed))]
    return table(head, [*rows, *[(name, MISSING, *[""] * (len(head) - 2)) for name in missing]])


def _row(found: Found, kind: Kind, head: Sequence[str]) -> tuple[str, ...]:
    """`times ours`: of the page that changed, and for nginx of the one that did not."""
    measured = found.scrapes[kind]
    reference = found.one(EXPORTER, gzip=kind.gzip, changed=kind.name != NGINX)
    assert reference is not None
    scrapes = [str(found.scrapes.get(kind._replace(scrapers=count), "")) for count in SCRAPERS]
    ratio = "" if kind.name == EXPORTER else times(measured.p50 / reference.p50)
    return (str(kind), *scrapes, milliseconds(median(measured.cpu)), ratio)[: len(head)]


def _memory(sizes: Sequence[Found], missing: Sequence[str]) -> str:
    names = {EXPORTER: EXPORTER, ASGI: "prometheus_client", GO: GO}
    head = (
        "bytes per series, after plain and gzip scrapes",
        *[f"{found.series:,} series" for found in sizes],
    )
    rows = [
        (label, *[f"{found.memory[name] / found.series:,.0f}" for found in sizes])
        for name, label in {BEFORE: "exporter, before any scrape", **names}.items()
        if name not in missing
    ]
    return table(head, rows)


def _per_minute(found: Found, size: Size, answers: "poll.Found") -> str:
    """Polls and scrapes together: a poll of every target and four scrapes."""
    head = (
        f"CPU seconds a minute, {size.targets:,} targets",
        "polls",
        f"{_SCRAPES_A_MINUTE} gzip scrapes",
        "together",
    )
    polled = size.targets * found.poll
    costs = {EXPORTER: (polled, True), ASGI: (polled * answers.times_ours, False), GO: (None, False)}
    rows = [
        (name, *_sum(polling, _SCRAPES_A_MINUTE * median(scrape.cpu)))
        for name, (polling, changed) in costs.items()
        if (scrape := found.one(name, gzip=True, changed=changed)) is not None
    ]
    return table(head, rows)


def _sum(polling: float | None, scraping: float) -> tuple[str, str, str]:
    if polling is None:
        return ("not measured", f"{scraping:.2f}", f"more than {scraping:.2f}")
    return (f"{polling:.2f}", f"{scraping:.2f}", f"{polling + scraping:.2f}")


def _goals(found: Found) -> Iterator[Goal]:
    what = f"{found.series:,} series"
    for gzip in (False, True):
        changed = found.one(EXPORTER, gzip=gzip, changed=True)
        assert changed is not None
        for name, aim in ((GO, 15), (ASGI, 40), (WSGI, 40)):
            peer = found.one(name, gzip=gzip)
            if peer is not None:
                title = f"{what}, one target changed{', gzip' * gzip}: faster than {name}"
                yield Goal(title, peer.p50 / changed.p50, "at least", aim, "x")
    static, unchanged = found.one(NGINX, gzip=True), found.one(EXPORTER, gzip=True)
    if static is not None and unchanged is not None:
        ratio = unchanged.p50 / static.p50
        yield Goal(f"{what}, unchanged, gzip: slower than nginx gzip_static", ratio, "at most", 1.5, "x")
    yield Goal("pages built for 16 scrapers of a changed page", found.builds, "at most", 1)


def _growth(sizes: Sequence[Found]) -> Iterator[Goal]:
    """Log-log slopes from the smallest size to the largest."""
    first, last = sizes[0], sizes[-1]
    if first is last:
        return
    polled = [(each.series, each.poll * each.series) for each in (first, last)]
    memory = [(each.series, each.memory[EXPORTER]) for each in (first, last)]
    changed = [(each.series, each.one(EXPORTER, gzip=True, changed=True)) for each in (first, last)]
    for what, points in (("polls", polled), ("memory", memory)):
        grown = slope(points[0], points[1])
        yield Goal(f"growth of {what} with series, log-log slope", grown, "at least", 0.9)
        yield Goal(f"growth of {what} with series, log-log slope", grown, "at most", 1.1)
    costs = [(series, each.p50) for series, each in changed if each is not None]
    yield Goal("growth of a gzip scrape, log-log slope", slope(costs[0], costs[1]), "at most", 1.25)
