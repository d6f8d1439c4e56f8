"""What scrapers say they accept, and what they get for it."""

import pytest

from exporter.exposition import Format
from exporter.web.negotiation import accepts_gzip, page_format

TEXT, OPENMETRICS = Format.TEXT, Format.OPENMETRICS
PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3_PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
PROMETHEUS_3_TEXT = (
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.3"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param(PROMETHEUS_2_42, OPENMETRICS, id="prometheus 2.42"),
        pytest.param(PROMETHEUS_3, OPENMETRICS, id="prometheus 3"),
        pytest.param(PROMETHEUS_3_PROTOBUF, OPENMETRICS, id="prometheus 3 with native histograms"),
        pytest.param(PROMETHEUS_3_TEXT, TEXT, id="prometheus 3 told to take text"),
        pytest.param("text/plain;version=0.0.4;q=1,*/*;q=0.1", TEXT, id="victoriametrics"),
        pytest.param("*/*", TEXT, id="curl"),
        pytest.param(BROWSER, TEXT, id="browser"),
        pytest.param("", TEXT, id="nothing"),
        pytest.param("application/openmetrics-text", OPENMETRICS, id="no version"),
        pytest.param("application/openmetrics-text;version=0.0.1", OPENMETRICS, id="old version"),
        pytest.param("application/openmetrics-text;version=2.0.0", TEXT, id="unknown version"),
        pytest.param("application/openmetrics-text;q=0", TEXT, id="refused"),
        pytest.param("application/openmetrics-text;q=0, */*", TEXT, id="refused, anything else taken"),
        pytest.param("text/plain;q=0", TEXT, id="text refused, and nothing else wanted"),
        pytest.param("text/plain;q=0.1, application/openmetrics-text;q=0.2", OPENMETRICS, id="better last"),
        pytest.param("text/plain, application/openmetrics-text", TEXT, id="first of equals"),
        pytest.param("text/*;q=0.9, application/openmetrics-text;q=0.8", TEXT, id="a family of types"),
        pytest.param(
            "APPLICATION/OpenMetrics-Text ; Version=1.0.0 ; Q=0.5", OPENMETRICS, id="case and spaces"
        ),
        pytest.param('application/openmetrics-text;version="1.0.0"', OPENMETRICS, id="a quoted parameter"),
        pytest.param("application/json", TEXT, id="only what there is not"),
        pytest.param("application/openmetrics-text;q=high", TEXT, id="a quality that is no number"),
        pytest.param("application/openmetrics-text;q=nan", TEXT, id="a quality that is not a number"),
        pytest.param(";;,,=;q=,;q", TEXT, id="garbage"),
        pytest.param("application/openmetrics-text;q=0.5;q", TEXT, id="a quality taken back"),
    ],
)
def test_accept_decides_the_format(accept: str, expected: Format) -> None:
    assert page_format(accept) is expected


@pytest.mark.parametrize(
    ("accept_encoding", "expected"),
    [
        ("gzip", True),
        ("gzip, deflate, br, zstd", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("GZip", True),
        ("*", True),
        ("gzip;q=0.001", True),
        ("*;q=0, gzip", True),
        ("", False),
        ("identity", False),
        ("deflate, br", False),
        ("gzip;q=0", False),
        ("gzip;q=0, *", False),
        ("*;q=0", False),
        ("gzip;q=maybe", False),
        ("gzipped", False),
        (",;,", False),
    ],
)
def test_accept_encoding_decides_on_gzip(accept_encoding: str, expected: bool) -> None:  # noqa: FBT001 - a table
    assert accepts_gzip(accept_encoding) is expected
