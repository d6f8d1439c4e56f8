"""One poll of one target: the questions asked, the answers translated."""

from collections.abc import Callable
from dataclasses import dataclass

from exporter.baseten import loops_metrics, model_metrics
from exporter.baseten.answers import LoopsAnswer, ModelAnswer
from exporter.baseten.client import Client, Spare
from exporter.baseten.errors import ApiError
from exporter.baseten.harvest import Harvest
from exporter.baseten.model_metrics import Question
from exporter.baseten.names import Group, MetricNames
from exporter.model import LoopsOptions, ModelOptions, Target

_MAX_REQUESTS = 5
"""Requests for one question while rejected names are being searched; the search goes on next poll."""

_REJECTED = (400, 422)

_MAX_SKEW = 300.0
"""Seconds that the API's clock may be ahead of ours; a later value would look fresh for ever."""

_MAX_TEXT = 4 * 2**20
_MAX_TEXT_EACH = 200
"""Characters of a target's names and labels: twice what usual series have, if there are that many."""


@dataclass(frozen=True, slots=True)
class Api:
    """A workspace's client and what was learned through it."""

    client: Client
    names: MetricNames


@dataclass(frozen=True, slots=True)
class Limits:
    """What of an answer is kept: values up to `max_sample_age` seconds old, and so many series."""

    max_sample_age: float
    max_series: int


def fetch(api: Api, target: Target, now: float, limits: Limits) -> Harvest:
    """Poll `target` once; raises ApiError, HeldBack or Stopping. `now` in seconds since the epoch."""
    text = max(_MAX_TEXT, _MAX_TEXT_EACH * limits.max_series)
    harvest = Harvest(now - limits.max_sample_age, now + _MAX_SKEW, limits.max_series, text)
    if isinstance(target.options, LoopsOptions):
        _fetch_loops(api, target, target.options, now, harvest)
    else:
        _fetch_model(api, target, target.options, now, harvest)
    return harvest


def _fetch_loops(api: Api, target: Target, options: LoopsOptions, now: float, harvest: Harvest) -> None:
    def use(answer: LoopsAnswer) -> None:
        loops_metrics.translate(answer, options, now, harvest)

    api.client.loops_metrics(target.deployment_id, loops_metrics.body(options, now), use, Spare())


def _fetch_model(api: Api, target: Target, options: ModelOptions, now: float, harvest: Harvest) -> None:
    poll = _ModelPoll(api, target, now, harvest)
    answered = [poll.put(each) for each in model_metrics.questions(options, now, api.names.kind_of)]
    if not any(answered):
        message = "the API accepted none of the metric names asked for; those it rejects are named in the log"
        raise ApiError("client_error", message)


_Use = Callable[[Question, ModelAnswer], None]


class _ModelPoll:
    """Puts questions about a model, by groups of metric names while one of them is being rejected."""

    def __init__(self, api: Api, target: Target, now: float, harvest: Harvest) -> None:
        self._client = api.client
        self._names = api.names
        self._target = target
        self._labels = target.labels
        self._now = now
        self._harvest = harvest
        self._spare = Spare()

    def put(self, question: Question) -> bool:
        """Ask and translate; whether any of the names asked for was accepted."""
        if question.names is None:
            self._ask(question, None, self._take)
            return True
        answered = False
        groups = self._names.groups(question.names, self._now)
        for _ in range(_MAX_REQUESTS):
            if not groups:
                break
            group = groups.pop(0)
            try:
                self._ask(question, group, self._take)
            except ApiError as error:
                if error.status not in _REJECTED:
                    raise
                if not self._names.in_doubt(group):
                    self._ask(question, None, _ignore)  # raises if the question is at fault, not a name in it
                groups += self._names.reject(group, self._now)
            else:
                self._names.accept(group)
                answered = True
        return answered

    def _ask(self, question: Question, names: Group | None, use: _Use) -> None:
        self._client.model_metrics(
            self._target.model_id,
            self._target.deployment_id,
            question.params(names),
            lambda answer: use(question, answer),
            self._spare,
        )

    def _take(self, question: Question, answer: ModelAnswer) -> None:
        self._names.learn(answer)
        model_metrics.translate(answer, question, self._labels, self._now, self._harvest)


def _ignore(question: Question, answer: ModelAnswer) -> None:
    """An answer was asked for to see whether there is one."""
