"""Pages: one gzip member, one build per change, and the exporter's own part always fresh."""

import asyncio
import gzip
import random
import re
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, Counter

from exporter import exposition
from exporter.exposition import Families, Format
from exporter.model import Family, ModelOptions, Sample, Snapshot, Target
from exporter.store import Store
from exporter.web.pages import Pages

if TYPE_CHECKING:
    from tests.conftest import Clock, Eventually

TARGETS = [Target("team", f"m{number}", "d", ModelOptions()) for number in range(3)]
FORMATS = pytest.mark.parametrize("page_format", list(Format))
ENCODINGS = pytest.mark.parametrize("encoding", ["plain", "gzip"])


class WatchedStore(Store):
    """Counts how often its content is taken, which is once per build, and can hold or break builds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.builds = 0
        self.go = threading.Event()
        self.go.set()
        self.broken = False

    def families(self) -> tuple[int, Families]:
        self.builds += 1
        taken = super().families()
        self.go.wait()
        if self.broken:
            raise RuntimeError("no view")
        return taken


class Site:
    """A store with data, a registry with one counter, and the pages made of both."""

    def __init__(self, clock: Callable[[], float], series: int = 2) -> None:
        self.store = WatchedStore(clock)
        self.store.retarget(TARGETS, 300)
        registry = CollectorRegistry()
        self.scrapes = Counter("own_scrapes", "Own.", registry=registry)
        self.pages = Pages(self.store, registry)
        self._series = series
        self.change()

    def change(self, value: float = 1.0) -> None:
        for target in TARGETS:
            noise = random.Random(target.model_id)  # noqa: S311 - hard to compress is all it must be
            samples = tuple(
                Sample((("n", f"{number}-{noise.random()}"),), value) for number in range(self._series)
            )
            families = [
                Family("baseten_model_x", "X.", samples),
                Family("baseten_model_y", "Y.", samples[:1]),
            ]
            snapshot = Snapshot(exposition.pieces(families, target.labels), self._series + 1, None)
            self.store.succeed(target, snapshot, 0.1)

    async def page(
        self, page_format: Format = Format.TEXT, encoding: str = "plain", names: tuple[str, ...] = ()
    ) -> bytes:
        return b"".join(await self.pages.page(page_format, gzip=encoding == "gzip", names=names))

    def raw(self, page_format: Format = Format.TEXT, encoding: str = "plain") -> bytes:
        return asyncio.run(self.page(page_format, encoding))

    def get(
        self, page_format: Format = Format.TEXT, encoding: str = "plain", names: tuple[str, ...] = ()
    ) -> bytes:
        """The page as a scraper reads it."""
        page = asyncio.run(self.page(page_format, encoding, names))
        return gzip.decompress(page) if encoding == "gzip" else page


@pytest.fixture
def site(clock: "Clock") -> Site:
    return Site(clock)


def families(page: bytes) -> list[str]:
    return re.findall(r"^# TYPE (\S+)", page.decode(), re.MULTILINE)


# Gzip


@FORMATS
@pytest.mark.parametrize("series", [0, 2, 5000])
def test_a_gzip_page_is_one_member_that_holds_the_plain_page(
    clock: "Clock", page_format: Format, series: int
) -> None:
    site = Site(clock, series)
    plain, zipped = site.raw(page_format), site.raw(page_format, "gzip")
    reader = zlib.decompressobj(zlib.MAX_WBITS | 16)
    assert reader.decompress(zipped) == plain
    assert (reader.eof, reader.unused_data, reader.unconsumed_tail) == (True, b"", b"")
    assert gzip.decompress(zipped) == plain


def test_a_gzip_page_stays_valid_from_scrape_to_scrape_of_the_same_data(site: Site) -> None:
    for count in range(3):
        page = site.get(encoding="gzip")
        assert f"own_scrapes_total {float(count)}\n".encode() in page
        site.scrapes.inc()
    assert site.store.builds == 1


@ENCODINGS
def test_a_page_before_the_first_poll_is_the_exporters_own_part(clock: "Clock", encoding: str) -> None:
    pages = Pages(Store(clock), CollectorRegistry())
    page = b"".join(asyncio.run(pages.page(Format.OPENMETRICS, gzip=encoding == "gzip")))
    assert (gzip.decompress(page) if encoding == "gzip" else page) == b"# EOF\n"


# Formats


@ENCODINGS
@pytest.mark.parametrize("names", [(), ("baseten_model_x",), ("nope",)])
def test_openmetrics_ends_in_exactly_one_eof(site: Site, encoding: str, names: tuple[str, ...]) -> None:
    page = site.get(Format.OPENMETRICS, encoding, names)
    assert page.endswith(b"# EOF\n")
    assert page.count(b"# EOF") == 1


def test_the_text_format_has_no_eof(site: Site) -> None:
    assert b"EOF" not in site.get()


@FORMATS
@ENCODINGS
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("baseten_model_x",), ["baseten_model_x"]),
        (("baseten_model_y", "baseten_model_x"), ["baseten_model_x", "baseten_model_y"]),
        (("baseten_exporter_target_up",), ["baseten_exporter_target_up"]),
        (("own_scrapes_total",), ["own_scrapes"]),
        (("baseten_model_y", "own_scrapes_total"), ["baseten_model_y", "own_scrapes"]),
        (("nope",), []),
        (("baseten_model_y", "nope"), ["baseten_model_y"]),
    ],
)
def test_names_filter_the_page(
    site: Site,
    page_format: Format,
    encoding: str,
    names: tuple[str, ...],
    expected: list[str],
) -> None:
    found = families(site.get(page_format, encoding, names))
    assert [name.removesuffix("_total") for name in found] == expected


def test_a_filter_leaves_the_cached_page_alone(site: Site) -> None:
    whole = site.get()
    site.get(names=("nope",))
    assert site.get() == whole


# The cache


@FORMATS
@ENCODINGS
def test_a_page_is_built_once_until_something_changes(site: Site, page_format: Format, encoding: str) -> None:
    first = site.get(page_format, encoding)
    assert site.get(page_format, encoding) == first
    assert site.store.builds == 1
    site.change(2.0)
    assert site.get(page_format, encoding) != first
    assert site.store.builds == 2


def test_expiry_alone_makes_the_page_new(site: Site, clock: "Clock") -> None:
    assert "baseten_model_x" in families(site.get())
    clock.now += 300
    assert "baseten_model_x" not in families(site.get())


def test_own_metrics_are_fresh_though_the_data_is_cached(site: Site) -> None:
    assert b"own_scrapes_total 0.0\n" in site.get()
    site.scrapes.inc()
    assert b"own_scrapes_total 1.0\n" in site.get()
    assert site.store.builds == 1


def test_each_format_and_encoding_has_a_cache_of_its_own(site: Site) -> None:
    for page_format, encoding in 2 * list(product(Format, ("plain", "gzip"))):
        site.get(page_format, encoding)
    assert site.store.builds == 4


# Many scrapers


@ENCODINGS
def test_sixteen_scrapers_of_a_changed_page_cost_one_build(site: Site, encoding: str) -> None:
    async def scrape() -> list[bytes]:
        return await asyncio.gather(*[site.page(encoding=encoding) for _ in range(16)])

    assert len(set(asyncio.run(scrape()))) == 1
    assert site.store.builds == 1


async def holding(site: Site, scrapers: int, eventually: "Eventually") -> list["asyncio.Task[bytes]"]:
    """Scrapes that all wait for one build, which has begun."""
    site.store.go.clear()
    tasks = [asyncio.create_task(site.page()) for _ in range(scrapers)]
    await asyncio.to_thread(eventually, lambda: site.store.builds)
    return tasks


def test_a_scraper_that_hangs_up_does_not_hurt_the_others(site: Site, eventually: "Eventually") -> None:
    async def scrape() -> list[bytes]:
        first, *others = await holding(site, 3, eventually)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        site.store.go.set()
        return await asyncio.gather(*others)

    assert [families(page).count("baseten_model_x") for page in asyncio.run(scrape())] == [1, 1]
    assert site.store.builds == 1


def test_after_all_scrapers_hung_up_the_next_one_gets_its_page(site: Site, eventually: "Eventually") -> None:
    async def scrape() -> bytes:
        for task in await holding(site, 2, eventually):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        site.store.go.set()
        return await site.page()

    assert "baseten_model_x" in families(asyncio.run(scrape()))


def test_a_page_whose_data_changed_during_the_build_is_not_kept(site: Site, eventually: "Eventually") -> None:
    async def scrape() -> list[bytes]:
        tasks = await holding(site, 1, eventually)
        site.change(2.0)
        site.store.go.set()
        return [await tasks[0], await site.page()]

    old, new = asyncio.run(scrape())
    assert (b" 2.0\n" in old, b" 2.0\n" in new) == (False, True)


def test_a_build_that_fails_fails_for_all_who_wait_and_the_next_scrape_tries_again(
    site: Site, eventually: "Eventually"
) -> None:
    async def scrape() -> tuple[list[bytes | BaseException], bytes]:
        tasks = await holding(site, 3, eventually)
        site.store.broken = True
        site.store.go.set()
        failed = await asyncio.gather(*tasks, return_exceptions=True)
        site.store.broken = False
        return list(failed), await site.page()

    failed, page = asyncio.run(scrape())
    assert [str(error) for error in failed] == ["no view"] * 3
    assert "baseten_model_x" in families(page)
    assert site.store.builds == 2
