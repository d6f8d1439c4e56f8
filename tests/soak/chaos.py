"""The side of the API: honest most of the time, a fault now and then, and remembering what it said."""

import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from threading import Lock
from urllib.parse import urlsplit

from exporter.simulator import FAULTS, Fault, Request, Wire
from exporter.simulator.api import json_response
from exporter.simulator.faults import LIMITED, retry_at_date, status
from tests.soak.oracle import Answer

SHORT_PAUSE = 2
"""Seconds that a 429 asks for here: the 37 of the ready faults would be most of a run."""

LONGEST_STALL = 20.0
"""Seconds; longer than any timeout, and short enough for stalled connections not to pile up here."""

HEAVY = frozenset(
    {
        "many label sets",
        "hostile labels",
        "gzip bomb",
        "dense json",
        "huge body",
        "huge chunked body",
        "deep nesting",
    }
)
"""Faults that cost both sides so much that they come ten times less often, and only at first.

What the exporter needs for them, the C library does not give back: later on it would hide a leak.
"""

PAUSING = frozenset({"429", "429 body", "429 header", "429 date"})
"""Each silences a whole endpoint for seconds: often, they would leave nothing else to see."""

STORMS = ("401", "403", "429 header", "503", "reset", "close", "stall", "not http", "html 200")
"""What befalls everything in a workspace at once."""

_HEAVY_FIRST = 4
"""Times that each comes at the very beginning, all at once: memory should not wait for that to happen."""

_POLLED = "/metrics"

_ANSWERS = 8
"""Remembered by target: more than one poll ever asks for."""


def echo(wire: Wire) -> None:
    """An API that tells the key back, in a body and in a header."""
    key = wire.request.headers.get("authorization", "")
    wire.reply(json_response(500, {"error": f"rejected: {key}"}, ("X-Rejected", key)))


def _stall(wire: Wire) -> None:
    wire.hold(LONGEST_STALL)


def _stall_mid_body(wire: Wire) -> None:
    FAULTS["cut off"](wire)
    _stall(wire)


def faults() -> dict[str, Fault]:
    """All that there are, by name; those without an end have one here."""
    return {
        **FAULTS,
        "429 body": status(429, {**LIMITED, "retry_after": SHORT_PAUSE}),
        "429 header": status(429, LIMITED, ("Retry-After", str(SHORT_PAUSE))),
        "429 date": retry_at_date(SHORT_PAUSE),
        "stall": _stall,
        "stall mid-body": _stall_mid_body,
        "echo": echo,
    }


def _weight(name: str) -> float:
    return 0.1 if name in HEAVY else 0.03 if name in PAUSING else 1.0


class Chaos:
    """How one workspace's API behaves. As a fault of the simulator, it answers every request.

    `rate` is the share of requests that fail by themselves, `storm` and `outage` name a fault that all
    do; `delay` is spent before each answer to a poll, in seconds. The seed, the path and how often it
    was asked decide which request gets which fault: not threads.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._faults = faults()
        self._weights = {name: _weight(name) for name in self._faults}
        self._lock = Lock()
        self._asked: Counter[str] = Counter()
        self._answers: dict[str, deque[Answer]] = defaultdict(lambda: deque(maxlen=_ANSWERS))
        self._first: deque[str] = deque()
        self.injected: Counter[str] = Counter()
        self.rate = 0.0
        self.delay = 0.0
        self.storm: str | None = None
        self.outage: str | None = None

    def __call__(self, wire: Wire) -> None:
        if self.delay and urlsplit(wire.request.target).path.endswith(_POLLED):
            wire.closing.wait(self.delay)
        name = self._choose(wire.request)
        if name is not None:
            self._faults[name](wire)
            return
        if wire.response.status == 200:
            self._remember(wire)
        wire.reply(wire.response)

    def begin(self, rate: float) -> None:
        """From now on requests fail by themselves, the next few heavily: memory has its peak early."""
        with self._lock:
            self._first.extend(sorted(HEAVY) * _HEAVY_FIRST)
        self.rate = rate

    def lighten(self) -> None:
        """No heavy faults from now on."""
        self._weights = {name: weight for name, weight in self._weights.items() if name not in HEAVY}

    def calm(self) -> None:
        self.rate = 0.0
        self._first.clear()
        self.storm = self.outage = None

    def poll(self, path: str, end: float, within: float) -> Sequence[Answer]:
        """The good answers to the poll of `path` that succeeded at `end`, `within` seconds of each other.

        What was answered later, a poll that failed all the same may have asked.
        """
        with self._lock:
            answers = [each for each in self._answers[path] if each.at <= end]
        return [each for each in answers if each.at > answers[-1].at - within]

    def _choose(self, request: Request) -> str | None:
        path = urlsplit(request.target).path
        with self._lock:
            self._asked[path] += 1
            dice = random.Random(f"{self._seed} {path} {self._asked[path]}")  # noqa: S311  # no secret
            name = self._first.popleft() if self._first else self.outage or self.storm
            if name is None and dice.random() < self.rate:
                (name,) = dice.choices(list(self._weights), list(self._weights.values()))
            if name is not None:
                self.injected[name] += 1
        return name

    def _remember(self, wire: Wire) -> None:
        path = urlsplit(wire.request.target).path
        if path.endswith(_POLLED):
            answer = Answer(time.time(), wire.request.target, wire.request.body, wire.response.body)
            with self._lock:
                self._answers[path].append(answer)
