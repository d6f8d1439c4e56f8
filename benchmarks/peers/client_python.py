"""prometheus_client with a custom collector that keeps finished samples: a scrape has only to write them.

`python -m benchmarks.peers.client_python PAGE` serves the gauges of a page over ASGI and WSGI.
"""

import argparse
import gc
import json
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from prometheus_client import REGISTRY, make_asgi_app, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from benchmarks.client import HOST
from benchmarks.processes import resident

_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_PREFIX = "baseten_"


class Kept(Collector):
    """The families of a page; strings that come often are one object, as good code would have it."""

    def __init__(self, page: Path) -> None:
        self._families: list[Metric] = []
        help_text, kept = "", False
        with page.open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("# HELP "):
                    help_text = line.split(" ", 3)[3].rstrip("\n")
                elif line.startswith("# TYPE "):
                    _, _, name, kind = line.split()
                    kept = kind == "gauge" and name.startswith(_PREFIX)
                    if kept:
                        self._families.append(GaugeMetricFamily(name, help_text))
                elif kept:
                    self._families[-1].samples.append(_sample(line))

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _sample(line: str) -> Sample:
    series, _, value = line.rpartition(" ")
    name, _, labels = series.partition("{")
    pairs = {sys.intern(label): sys.intern(text) for label, text in _PAIR.findall(labels)}
    return Sample(sys.intern(name), pairs, float(value))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.client_python")
    parser.add_argument("page", type=Path)
    options = parser.parse_args()
    empty = resident()
    gc.disable()  # only while millions of objects are made that stay
    REGISTRY.register(Kept(options.page))
    gc.enable()
    listener = socket.create_server((HOST, 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as uvicorn's own listeners have it
    wsgi, _ = start_http_server(0, HOST)
    ready = {"asgi": listener.getsockname()[1], "wsgi": wsgi.server_port, "empty": empty}
    print(json.dumps(ready))
    sys.stdout.flush()
    config = uvicorn.Config(make_asgi_app(), log_level="error", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
