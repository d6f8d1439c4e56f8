"""Medians of calls that take turns, so that whatever disturbs one disturbs all."""

import gc
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

Call = Callable[[], object]


def nothing() -> None:
    pass


class Contender(NamedTuple):
    """A call to be timed, `times` in a row at each turn; `prepare` goes before each, untimed."""

    call: Call
    prepare: Call = nothing
    times: int = 1


def medians(contenders: Sequence[Contender], rounds: int) -> list[float]:
    """Seconds that one call of each contender takes."""
    measured: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for contender, seconds in zip(contenders, measured, strict=True):
            gc.collect()
            seconds += [_seconds(contender) for _ in range(contender.times)]
    return [median(seconds) for seconds in measured]


def _seconds(contender: Contender) -> float:
    contender.prepare()
    started = perf_counter()
    contender.call()
    return perf_counter() - started
