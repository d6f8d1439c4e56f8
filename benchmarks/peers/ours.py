"""The exporter's serving side with a store full of polls: `python -m benchmarks.peers.ours TARGETS`.

POST /bench/polls?count=N polls the next N targets, whose values have moved, and answers what that
cost; `builds` counts how often a page was built from the store.
"""

import argparse
import asyncio
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from math import inf

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks.client import HOST, get
from benchmarks.deployments import NOW, WORKSPACE, Deployments
from benchmarks.processes import resident
from exporter.exposition import Families
from exporter.store import Store
from exporter.telemetry import Telemetry
from exporter.web.pages import Pages
from exporter.web.routes import Parts, application
from exporter.web.server import Server, listen

_POLLED = 50
"""Targets that are polled again and again; their answers are made beforehand."""

_MINUTE = 60.0


class CountingStore(Store):
    """Counts the pages built from it."""

    builds = 0

    def families(self) -> tuple[int, Families]:
        self.builds += 1
        return super().families()


class Polls:
    """Polls from answers at hand: what it takes but for the network."""

    def __init__(self, store: Store, deployments: Deployments) -> None:
        self._store = store
        step = max(1, len(deployments.targets) // _POLLED)
        answers = [
            deployments.answers(target, NOW + minute * _MINUTE)
            for minute in (1, 2)
            for target in deployments.targets[::step]
        ]
        self._next = itertools.cycle(answers)

    def run(self, count: int) -> float:
        """Poll so many; return the CPU seconds of each."""
        started = time.thread_time()
        for answers in itertools.islice(self._next, count):
            before = self._store.version
            self._store.succeed(answers.target, answers.snapshot(), 0.1)
            assert self._store.version != before, "nothing to build a page for"
        return (time.thread_time() - started) / count


class Controlled:
    """The exporter's application; what starts with /bench/ goes to the benchmark's own."""

    def __init__(self, app: ASGIApp, controls: ASGIApp) -> None:
        self._app = app
        self._controls = controls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = self._controls if scope["path"].startswith("/bench/") else self._app
        await chosen(scope, receive, send)


def _controls(store: CountingStore, polls: Polls) -> Starlette:
    async def poll(request: Request) -> Response:
        cpu = await asyncio.to_thread(polls.run, int(request.query_params["count"]))
        return JSONResponse({"cpu": cpu, "builds": store.builds})

    return Starlette(routes=[Route("/bench/polls", poll, methods=["POST"])])


def _clock() -> Callable[[], float]:
    """Time as it passes, from `NOW` on."""
    started = time.monotonic()
    return lambda: NOW + time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.ours")
    parser.add_argument("targets", type=int)
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    clock = _clock()
    deployments = Deployments(options.targets, options.nodes)
    store = CountingStore(clock)
    store.retarget(deployments.targets, stale_after=inf)
    polls = Polls(store, deployments)
    telemetry = Telemetry(clock)
    telemetry.watch([WORKSPACE])
    parts = Parts(
        store=store,
        pages=Pages(store, telemetry.registry),
        ready=store.ready,
        next_poll=lambda _: None,
        clock=clock,
        reload=None,
        workspaces=tuple,
    )
    listener = listen(f"{HOST}:0")
    port = listener.getsockname()[1]
    server = Server(Controlled(application(parts, "/metrics"), _controls(store, polls)))
    serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    serving.start()
    polls.run(1)
    for gzip in (False, True):
        get(port, "/metrics", gzip=gzip)
    next(deployments.snapshots())
    empty = resident()  # what the first answer, poll and scrapes took is not what a series costs
    for target, snapshot in deployments.snapshots():
        store.succeed(target, snapshot, 0.1)
    print(json.dumps({"port": port, "empty": empty}))
    sys.stdout.flush()
    serving.join()


if __name__ == "__main__":
    main()
