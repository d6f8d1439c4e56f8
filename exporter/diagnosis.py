"""What `once` tells a person about one poll: what was asked, what came back, what to change. Pure."""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from exporter.baseten.catalogue import CATALOGUE
from exporter.baseten.errors import Reason
from exporter.baseten.harvest import DropReason, Harvest
from exporter.baseten.model_metrics import Question, questions
from exporter.baseten.names import MetricNames
from exporter.model import LoopsOptions, ModelOptions, Snapshot
from exporter.polling.poller import Outcome

ADVICE: Mapping[Reason, str] = MappingProxyType(
    {
        "timeout": "raise poll.timeout, or ask for less: a shorter window or a list of metrics",
        "connection": "check api_url, DNS, the firewall and the proxy variables",
        "tls": "check api_url and the clock; a proxy that re-signs traffic needs its CA as ca_file",
        "auth": "the key is not accepted: check which key the workspace uses",
        "forbidden": "the key lacks the permission to read this deployment",
        "not_found": "check the ids (a trainer's own, not its sampler's), the workspace's key, and api_url",
        "rate_limited": "lower requests_per_second or raise poll.interval; others may use the same key",
        "client_error": "the API refuses the question: check mode, window and metrics",
        "server_error": "nothing to do but wait: the fault is at Baseten",
        "invalid_response": "something other than the API answered, or it changed: check api_url",
        "too_large": "ask for less: a shorter window, a longer step or a list of metrics",
    }
)

_DROPS: Mapping[DropReason, str] = MappingProxyType(
    {
        "null": "no data, as of an idle deployment",
        "not_a_number": "a value that is no number",
        "not_finite": "NaN or infinite",
        "too_old": "older than poll.max_sample_age",
        "bad_timestamp": "a point without a readable time",
        "bad_label": "a label that is no text",
        "misaligned": "values that do not line up with their labels",
        "duplicate": "a second value for the same series",
        "too_long": "more than 4 MiB of names and labels in all",
        "series_limit": "more series than poll.max_series_per_target",
    }
)


def diagnose(outcome: Outcome, now: float, names: MetricNames) -> Iterator[str]:
    """The lines for one target; `now` in seconds since the epoch."""
    if not outcome.asked:
        yield f"{outcome.target}: not polled: {outcome.error}"
        return
    result = f"failed: {outcome.reason}" if outcome.reason else "ok"
    yield f"{outcome.target}: {result} in {outcome.seconds:.2f} s"
    yield from (f"  asked: {question}" for question in _asked(outcome, now, names))
    if outcome.reason is not None:
        yield f"  error: {outcome.error}"
        yield f"  advice: {ADVICE[outcome.reason]}"
    if outcome.harvest is not None and outcome.snapshot is not None:
        yield f"  got: {_got(outcome.snapshot, now)}"
        yield from (
            f"  left out: {count} {reason} ({_DROPS[reason]})"
            for reason, count in sorted(outcome.harvest.dropped.items())
        )
        yield from (f"  advice: {advice}" for advice in _advice(outcome.harvest, outcome.snapshot))
    yield from (
        f"  rejected: the API does not know the metric {name}"
        for name in names.rejected()
        if name in _wanted(outcome.target.options)
    )


def _wanted(options: ModelOptions | LoopsOptions) -> Collection[str]:
    """The metric names that a poll asks for by name."""
    asked = options.metrics if isinstance(options, ModelOptions) else ()
    return CATALOGUE if asked == "all" else asked if isinstance(asked, tuple) else ()


def _asked(outcome: Outcome, now: float, names: MetricNames) -> list[str]:
    options = outcome.target.options
    if isinstance(options, LoopsOptions):
        span = f"{options.window + options.delay:g} s up to now in steps of {options.step} s"
        return [f"{span}, traffic as of {options.delay:g} s ago"]
    return [_question(question, now) for question in questions(options, now, names.kind_of)]


def _question(question: Question, now: float) -> str:
    what = "the default metrics" if question.names is None else f"{len(question.names)} metrics"
    if question.span is None:
        return f"{question.mode}, {what}"
    start, end = question.span
    return f"{question.mode}, {what}, {end - start} s ended {max(now - end, 0):.0f} s ago"


def _got(snapshot: Snapshot, now: float) -> str:
    counts = f"{len(snapshot.pieces)} families, {snapshot.series} series"
    return (
        counts if snapshot.newest is None else f"{counts}, the newest value {now - snapshot.newest:.0f} s old"
    )


def _advice(harvest: Harvest, snapshot: Snapshot) -> Iterator[str]:
    if any(name.endswith("_per_step") for name in snapshot.pieces):
        yield "counters came without the span they cover, so no rate can be told: use mode: summary"
    if harvest.dropped["too_old"] and not snapshot.series:
        yield "every value is too old: raise poll.max_sample_age, or check the deployment's own data"
    elif not snapshot.series:
        yield "no data at all: the deployment is idle, scaled to zero or just started"
    if harvest.dropped["misaligned"] or harvest.dropped["not_a_number"]:
        yield "the API answered in a way it does not document; please report it with the log at debug level"
