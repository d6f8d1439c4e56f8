"""Those who scrape, in a process of their own so that what they cost does not slow the API down.

`python -m tests.soak.scrapers PORT SECONDS KNOWN` prints what it found as JSON. KNOWN is a file with the
ids of all targets there can be: [[workspace, model, deployment], ...].
"""

import gzip
import http.client
import json
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text

from tests.soak.process import MARK

PER_SECOND = 20
_THREADS = 10
_SLOW = 3
_SIP = 8192
_SIP_EVERY = 0.02
"""A slow scraper takes so many bytes at a time, and so many seconds between."""

_PARSE_EVERY = 3.0
"""Seconds between two pages that are parsed whole: that costs more than all the rest."""

_TIMEOUT = 60.0
OPENMETRICS = "application/openmetrics-text"

Ids = tuple[str, str, str]


def _named(*names: str) -> str:
    """The route with a filter; the last name is one that is always there."""
    return "/metrics?" + "&".join(f"name[]={name}" for name in (*names, "baseten_exporter_build_info"))


class Ask(NamedTuple):
    """A way to scrape."""

    name: str
    path: str = "/metrics"
    accept: str = "text/plain"
    encoding: str = "identity"


ASKS = (
    Ask("gzip", encoding="gzip"),
    Ask("name[]", _named("baseten_exporter_target_up", "baseten_model_replicas_active")),
    Ask("plain"),
    Ask("name[] gzip", _named("baseten_loops_node_gpu_utilization_ratio"), encoding="gzip"),
    Ask("OpenMetrics gzip", accept=OPENMETRICS, encoding="gzip"),
    Ask("name[] OpenMetrics", _named("baseten_exporter_polls_skipped_total"), accept=OPENMETRICS),
)


def problems(page: str, accept: str, known: Collection[Ids]) -> list[str]:
    """What is wrong with a page, read by the client library: nothing, as a rule."""
    parse: Callable[[str], Iterable[Any]] = openmetrics if accept == OPENMETRICS else text
    found, seen = [], set()
    for family in parse(page):
        for sample in family.samples:
            one = (sample.name, tuple(sorted(sample.labels.items())))
            if one in seen:
                found.append(f"twice: {one}")
            seen.add(one)
            if not _attributable(sample.labels, known):
                found.append(f"of an unknown target: {one}")
    return found


def _attributable(labels: dict[str, str], known: Collection[Ids]) -> bool:
    if "deployment_id" not in labels:
        return True
    return (labels["workspace"], labels.get("model_id", ""), labels["deployment_id"]) in known


class Scrapers:
    """Asks so often a second, on a few connections that are kept; `known` are all targets there can be."""

    def __init__(self, port: int, known: Collection[Ids], parsers: ProcessPoolExecutor) -> None:
        self._port = port
        self._known = known
        self._parsers = parsers
        self._parsing: Future[list[str]] | None = None
        self._parse_next = 0.0
        self._lock = Lock()
        self.latencies: list[float] = []
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.parsed = self.slow = 0

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        work = [Thread(target=self._scrape, args=(nth, end)) for nth in range(_THREADS)]
        work += [Thread(target=self._sip, args=(end,)) for _ in range(_SLOW)]
        for each in work:
            each.start()
        for each in work:
            each.join()
        self._collect()

    def _scrape(self, nth: int, end: float) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT)
        due = time.monotonic() + nth / PER_SECOND
        turn = nth
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._once(connection, ASKS[turn % len(ASKS)])
            except (OSError, http.client.HTTPException, EOFError) as error:
                self._blame(f"{ASKS[turn % len(ASKS)].name}: {error!r}")
                connection.close()
            turn += 1
            due = max(due + _THREADS / PER_SECOND, time.monotonic() - 1)
        connection.close()

    def _once(self, connection: http.client.HTTPConnection, ask: Ask) -> None:
        started = time.perf_counter()
        connection.request("GET", ask.path, headers={"Accept": ask.accept, "Accept-Encoding": ask.encoding})
        response = connection.getresponse()
        body = response.read()
        seconds = time.perf_counter() - started
        page = gzip.decompress(body) if ask.encoding == "gzip" else body
        complete = page.endswith(b"# EOF\n" if ask.accept == OPENMETRICS else b"\n")
        if response.status != 200 or not complete or not page.startswith(b"# HELP "):
            self._blame(f"{ask.name}: {response.status}, {page[:100]!r} ... {page[-100:]!r}")
        if MARK.encode() in page:
            self._blame(f"{ask.name}: a key is on the page")
        with self._lock:
            self.latencies.append(seconds)
            self.counts[ask.name] += 1
            self._maybe_parse(page, ask)

    def _maybe_parse(self, page: bytes, ask: Ask) -> None:
        now = time.monotonic()
        if "name[]" in ask.name or now < self._parse_next or (self._parsing and not self._parsing.done()):
            return
        self._collect()
        self._parsing = self._parsers.submit(problems, page.decode(), ask.accept, self._known)
        self._parse_next = now + _PARSE_EVERY

    def _collect(self) -> None:
        if self._parsing is not None:
            try:
                self.problems += self._parsing.result()[:5]
            except ValueError as error:
                self.problems.append(f"a page that does not parse: {error}")
            self.parsed += 1
        self._parsing = None

    def _blame(self, problem: str) -> None:
        with self._lock:
            self.problems.append(problem)

    def _sip(self, end: float) -> None:
        """Scrape the whole page, a little at a time; what is still going on at the end is let go."""
        while time.monotonic() < end:
            with socket.create_connection(("127.0.0.1", self._port), timeout=_TIMEOUT) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SIP)
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")
                size, last = 0, b""
                while time.monotonic() < end and (sip := connection.recv(_SIP)):
                    size, last = size + len(sip), sip
                    time.sleep(_SIP_EVERY)
                if time.monotonic() < end:
                    self._sipped(size, last)

    def _sipped(self, size: int, last: bytes) -> None:
        with self._lock:
            self.slow += 1
        if size < _SIP or not last.endswith(b"\n"):
            self._blame(f"a slow scrape ended after {size} bytes with {last[-100:]!r}")


def main() -> None:
    port, seconds, file = sys.argv[1:]
    known = {(workspace, model, each) for workspace, model, each in json.loads(Path(file).read_text())}
    with ProcessPoolExecutor(1, get_context("spawn")) as parsers:
        scrapers = Scrapers(int(port), known, parsers)
        scrapers.run(float(seconds))
    found = {
        "latencies": scrapers.latencies,
        "counts": scrapers.counts,
        "problems": scrapers.problems,
        "parsed": scrapers.parsed,
        "slow": scrapers.slow,
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
