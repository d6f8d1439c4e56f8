"""Values that move as real ones do, as formulas of time: the same question gives the same answer."""

import math
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

MEAN_LOAD = 0.55
# Period in seconds and amplitude: a day and, below it, what passes for noise. Mean and amplitudes keep the
# load between 0.1 and 1; sines rather than random numbers, because their integral is a formula too.
WAVES = ((86_400, 0.25), (5_820, 0.08), (613, 0.07), (97, 0.05))
TREMOR = math.tau / 41  # each series' own unrest, radians per second
LAGS = (45.0, 90.0)  # each half of the requests is known to the API only this many seconds later

# Of every 200 requests, the ones that fail: which request got which status is a function of its number,
# so the split by status adds up to the requests in any window.
FAILURES = {"400": (29, 101, 163), "429": (47, 147), "500": (13,)}
STATUSES = ("200", *FAILURES)


def unit(*names: object) -> float:
    """A stable number in [0, 1) for these names."""
    return int.from_bytes(blake2b("/".join(map(str, names)).encode(), digest_size=6).digest()) / 2**48


def answered(status: str, requests: int) -> int:
    """How many of the first `requests` requests were answered with `status`."""
    if status in FAILURES:
        return sum((requests + 199 - place) // 200 for place in FAILURES[status])
    return requests - sum(answered(failure, requests) for failure in FAILURES)


class Span(NamedTuple):
    """What is known of a deployment's traffic between two moments, or at one."""

    load: float  # mean share of the peak rate, 0..1
    first: int  # requests known before the span, and before its end, ever since the epoch
    last: int
    arrived: float  # share of the span's data that is known
    middle: float  # seconds since the epoch
    calm: float  # how much of a tremor is left once averaged over the span
    instant: bool

    @property
    def requests(self) -> int:
        return self.last - self.first

    def shaken(self, phase: float) -> float:
        """The load as one series feels it."""
        return self.load * (1 + 0.08 * self.calm * math.sin(TREMOR * self.middle + phase))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests over time: at most `peak` per second; no traffic at all where it is 0."""

    peak: float
    phases: tuple[float, ...]

    @classmethod
    def seeded(cls, peak: float, *names: object) -> "Traffic":
        return cls(peak, tuple(math.tau * unit(*names, period) for period, _ in WAVES))

    def load(self, time: float) -> float:
        waves = zip(WAVES, self.phases, strict=True)
        return MEAN_LOAD + sum(size * math.sin(math.tau * time / period + at) for (period, size), at in waves)

    def integral(self, time: float) -> float:
        """The load summed up until `time`; only differences mean something."""
        waves = zip(WAVES, self.phases, strict=True)
        return MEAN_LOAD * time - sum(
            size * period / math.tau * math.cos(math.tau * time / period + at) for (period, size), at in waves
        )

    def requests(self, until: float, now: float) -> int:
        """How many requests made until then the API knows of now: whole ones, and never fewer later."""
        known = sum(self.integral(min(until, now - lag)) for lag in LAGS) / len(LAGS)
        return int(self.peak * known)

    def mean_load(self, start: float, end: float) -> float:
        if not self.peak:
            return 0
        if start == end:
            return self.load(start)
        return (self.integral(end) - self.integral(start)) / (end - start)

    def span(self, start: float, end: float, now: float) -> Span:
        """The traffic from `start` to `end`, both in seconds, as far as it is known at `now`."""
        swing = TREMOR * (end - start) / 2
        return Span(
            load=self.mean_load(start, end),
            first=self.requests(start, now),
            last=self.requests(end, now),
            arrived=_arrived(start, end, now),
            middle=(start + end) / 2,
            calm=math.sin(swing) / swing if swing else 1,
            instant=start == end,
        )


def _arrived(start: float, end: float, now: float) -> float:
    if start == end:
        return 1
    return sum(max(0, min(end, now - lag) - start) for lag in LAGS) / (len(LAGS) * (end - start))
