"""Pages of /metrics: the data part cached until it changes, the exporter's own part always fresh."""

import asyncio
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from isal import isal_zlib
from prometheus_client import CollectorRegistry, Metric

from exporter.exposition import Format, accumulated, blocks
from exporter.store import Store

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_RAW_DEFLATE = -zlib.MAX_WBITS
_LEVEL = 1  # isal's levels 2 and 3 gain little and cost much
_PART = 1024 * 1024
"""Bytes that are sent at a time, and that a scraper which does not take them has us keep for it. Parts are
cut when a page is built, since cutting copies."""


@dataclass(frozen=True, slots=True)
class _Data:
    """The targets' part of a page, in parts. In gzip it is an open member: `crc` and `size` let it go on."""

    version: int
    parts: tuple[bytes, ...]
    crc: int = 0
    size: int = 0


class Pages:
    """Builds each data part at most once per change, however many scrapers ask at a time."""

    def __init__(self, store: Store, registry: CollectorRegistry) -> None:
        self._store = store
        self._registry = registry
        self._cache: dict[tuple[Format, bool], _Data] = {}
        self._building: dict[tuple[Format, bool], asyncio.Task[_Data]] = {}
        self._own_families: dict[tuple[Format, str], tuple[Metric, bytes]] = {}

    async def page(self, page_format: Format, *, gzip: bool, names: Iterable[str] = ()) -> list[bytes]:
        """The page in parts to be sent one after the other; `names` filters by metric name."""
        only = frozenset(names) or None
        if only is None:
            data = await self._data(page_format, gzip)
        else:
            data = await asyncio.to_thread(_build, self._store, page_format, gzip, only)
        own = self._own(page_format, only)
        return [*data.parts, _gzip_tail(data, own) if gzip else own]

    async def _data(self, page_format: Format, gzip: bool) -> _Data:  # noqa: FBT001 - internal
        key = (page_format, gzip)
        cached = self._cache.get(key)
        if cached is not None and cached.version == self._store.version:
            return cached
        if key not in self._building:
            task = asyncio.create_task(asyncio.to_thread(_build, self._store, page_format, gzip))
            self._building[key] = task
            task.add_done_callback(lambda _: self._building.pop(key))
        # Shielded: a scraper that hangs up must not take the others' page with it.
        self._cache[key] = data = await asyncio.shield(self._building[key])
        return data

    def _own(self, page_format: Format, only: frozenset[str] | None) -> bytes:
        registry = self._registry if only is None else self._registry.restricted_registry(only)
        end = b"# EOF\n" if page_format is Format.OPENMETRICS else b""
        return b"".join([*(self._own_family(metric, page_format) for metric in registry.collect()), end])

    def _own_family(self, metric: Metric, page_format: Format) -> bytes:
        """Its lines: collected anew for every scrape, written anew only if a value has moved."""
        key = (page_format, metric.name)
        last, lines = self._own_families.get(key, (None, b""))
        if last != metric:
            lines = accumulated([metric], page_format)
            self._own_families[key] = (metric, lines)
        return lines


def _build(
    store: Store,
    page_format: Format,
    gzip: bool,  # noqa: FBT001 - internal
    only: frozenset[str] | None = None,
) -> _Data:
    version, families = store.families()
    parts = blocks(families, page_format, only)
    return _compress(version, parts) if gzip else _Data(version, tuple(_cut(parts)))


def _cut(parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        for start in range(0, len(part), _PART):
            yield part[start : start + _PART]


def _compress(version: int, parts: Iterable[bytes]) -> _Data:
    compressor = isal_zlib.compressobj(level=_LEVEL, wbits=_RAW_DEFLATE)
    crc, size, out = 0, 0, [_GZIP_HEADER]
    for part in parts:
        crc = isal_zlib.crc32(part, crc)
        size += len(part)
        out.append(compressor.compress(part))
    # A full flush ends on a byte and forgets the past, so other data can follow in the same member.
    out.append(compressor.flush(zlib.Z_FULL_FLUSH))
    return _Data(version, tuple(_cut([b"".join(out)])), crc, size)


def _gzip_tail(data: _Data, own: bytes) -> bytes:
    """The rest of the member: one member only, since common clients read no further."""
    compressor = isal_zlib.compressobj(level=_LEVEL, wbits=_RAW_DEFLATE)
    trailer = struct.pack("<II", isal_zlib.crc32(own, data.crc), (data.size + len(own)) & 0xFFFFFFFF)
    return compressor.compress(own) + compressor.flush() + trailer
