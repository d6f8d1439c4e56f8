"""Measures that take turns, so that whatever disturbs one disturbs all."""

import gc
import math
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

Call = Callable[[], object]


class Turns(NamedTuple):
    """So many rounds, in which each contender spends `seconds` in all, but takes one turn at least."""

    rounds: int
    seconds: float


def alternate(contenders: Sequence[Call], turns: Turns) -> None:
    """Call each contender until it has used its time, a share of it in every round.

    What takes longer than its share sits out the rounds that it has overdrawn.
    """
    spent = [0.0] * len(contenders)
    for number in range(1, turns.rounds + 1):
        for index, call in enumerate(contenders):
            while spent[index] < turns.seconds * number / turns.rounds:
                started = perf_counter()
                call()
                spent[index] += perf_counter() - started


def cpu_of_calls(calls: Sequence[Call], turns: Turns) -> list[float]:
    """The median CPU seconds of this process that each call takes."""
    measured: list[list[float]] = [[] for _ in calls]
    gc.collect()
    alternate([_timed(call, into) for call, into in zip(calls, measured, strict=True)], turns)
    return [median(seconds) for seconds in measured]


def _timed(call: Call, into: list[float]) -> Call:
    def timed() -> None:
        started = process_time()
        call()
        into.append(process_time() - started)

    return timed


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of them do not exceed; of few values, the largest."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def slope(first: tuple[float, float], last: tuple[float, float]) -> float:
    """How cost grows with size, of (size, cost): 1 if in proportion."""
    return math.log(last[1] / first[1]) / math.log(last[0] / first[0])
