"""One poll of one target: the questions asked, the answers translated."""

from collections.abc import Iterator
from dataclasses import dataclass

from exporter.baseten import loops_metrics, model_metrics
from exporter.baseten.answers import ModelAnswer
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
    harvest = Harvest(now - limits.max_sample_age, now + _MAX_SKEW, limits.max_series)
    if isinstance(target.options, LoopsOptions):
        question = loops_metrics.body(target.options, now)
        answer = api.client.loops_metrics(target.deployment_id, question, Spare())
        loops_metrics.translate(answer, target.options, now, harvest)
    else:
        _fetch_model(api, target, target.options, now, harvest)
    return harvest


def _fetch_model(api: Api, target: Target, options: ModelOptions, now: float, harvest: Harvest) -> None:
    labels = target.labels
    answered, spare = False, Spare()
    for question in model_metrics.questions(options, now, api.names.kind_of):
        for answer in _answers(api, target, question, now, spare):
            answered = True
            api.names.learn(answer)
            model_metrics.translate(answer, question, labels, now, harvest)
    if not answered:
        message = "the API accepted none of the metric names asked for; those it rejects are named in the log"
        raise ApiError("client_error", message)


def _answers(api: Api, target: Target, question: Question, now: float, spare: Spare) -> Iterator[ModelAnswer]:
    def ask(names: Group | None) -> ModelAnswer:
        params = question.params(names)
        return api.client.model_metrics(target.model_id, target.deployment_id, params, spare)

    if question.names is None:
        yield ask(None)
        return
    groups = api.names.groups(question.names, now)
    for _ in range(_MAX_REQUESTS):
        if not groups:
            return
        group = groups.pop(0)
        try:
            answer = ask(group)
        except ApiError as error:
            if error.status not in _REJECTED:
                raise
            if not api.names.in_doubt(group):
                ask(None)  # raises if the question itself is at fault, not a name in it
            groups += api.names.reject(group, now)
        else:
            api.names.accept(group)
            yield answer
