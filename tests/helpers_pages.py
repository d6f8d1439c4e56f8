"""What a page says, as both parsers of the client library read it."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as text_families

from exporter.exposition import Format


class Series(NamedTuple):
    name: str
    labels: frozenset[tuple[str, str]]

    def has(self, **labels: str) -> bool:
        return labels.items() <= self.labels


_Parser = Callable[[str], Iterator[Metric]]
_openmetrics_families: _Parser = openmetrics_parser.text_string_to_metric_families


def read(page: str, page_format: Format = Format.TEXT) -> dict[Series, float]:
    """The series of a page; there is none that stands on it twice."""
    families = text_families if page_format is Format.TEXT else _openmetrics_families
    samples = [sample for family in families(page) for sample in family.samples]
    series = [Series(sample.name, frozenset(sample.labels.items())) for sample in samples]
    assert [each for each, times in Counter(series).items() if times > 1] == []
    return {each: sample.value for each, sample in zip(series, samples, strict=True)}
