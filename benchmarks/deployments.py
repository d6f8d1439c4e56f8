"""Deployments of the simulated API, and what polls of them yield: the real path but for the socket."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from exporter.baseten import loops_metrics, model_metrics
from exporter.baseten.answers import LoopsAnswer, ModelAnswer, decode
from exporter.baseten.harvest import Harvest
from exporter.baseten.model_metrics import Question
from exporter.baseten.names import MetricNames
from exporter.model import Labels, LoopsOptions, ModelOptions, Snapshot, Target
from exporter.polling.poller import to_snapshot
from exporter.simulator import Request, TargetId, World
from exporter.simulator.api import Api

NOW = 1_800_000_000.0
WORKSPACE = "production"
_MAX_SAMPLE_AGE = 600.0
_KEY = "benchmark-key"

_DIFFERENT = 500
"""Deployments of their own values; those beyond repeat them, too far apart for gzip to see."""

Series = dict[tuple[str, Labels], float]
"""Values by name and labels."""


class Answers(NamedTuple):
    """What the API answers to one poll of `target` at `now`; the question is None for a trainer."""

    target: Target
    now: float
    bodies: list[tuple[Question | None, bytes]]

    def harvest(self) -> Harvest:
        """The poll, as the exporter does it."""
        target, now = self.target, self.now
        harvest = Harvest(now - _MAX_SAMPLE_AGE)
        for question, body in self.bodies:
            if question is not None:
                answer = decode(ModelAnswer, body)
                model_metrics.translate(answer, question, target.labels, now, harvest)
            elif isinstance(target.options, LoopsOptions):
                loops_metrics.translate(decode(LoopsAnswer, body), target.options, now, harvest)
        return harvest

    def snapshot(self) -> Snapshot:
        return to_snapshot(self.target, self.harvest())


class Deployments:
    """About 100 series for each of `targets` deployments, or as many more as `nodes` asks for."""

    def __init__(self, targets: int, nodes: int = 3) -> None:
        world = World.sized(targets, nodes=nodes)
        self._api = Api(world, _KEY, limit=None)
        self._names = MetricNames(WORKSPACE)
        self.targets = [_target(each) for each in world.targets()]

    def answers(self, target: Target, now: float = NOW) -> Answers:
        """`now` in seconds since the epoch."""
        options = target.options
        if isinstance(options, ModelOptions):
            questions = list(model_metrics.questions(options, now, self._names.kind_of))
            return Answers(target, now, [(each, self._model(target, each, now)) for each in questions])
        path = f"/v1/loops/deployments/{target.deployment_id}/metrics"
        body = msgspec.json.encode(loops_metrics.body(options, now))
        return Answers(target, now, [(None, self._ask("POST", path, now, body))])

    def snapshots(self) -> Iterator[tuple[Target, Snapshot]]:
        """One poll of every target."""
        for kind in ("model", "loops"):
            targets = iter([target for target in self.targets if target.kind == kind])
            polled = [(target, self.answers(target).harvest()) for target in islice(targets, _DIFFERENT)]
            yield from [(target, to_snapshot(target, harvest)) for target, harvest in polled]
            for number, target in enumerate(targets):
                yield target, to_snapshot(target, polled[number % _DIFFERENT][1])

    def _model(self, target: Target, question: Question, now: float) -> bytes:
        path = f"/v1/models/{target.model_id}/deployments/{target.deployment_id}/metrics?"
        return self._ask("GET", path + urlencode(question.params(question.names)), now)

    def _ask(self, method: str, path: str, now: float, body: bytes = b"") -> bytes:
        request = Request(method, path, {"authorization": f"Bearer {_KEY}"}, body)
        _, response = self._api.answer(request, now)
        assert response.status == 200, response.body
        return response.body


def _target(target: TargetId) -> Target:
    ids = (WORKSPACE, target.model_id, target.deployment_id)
    team = (("team", "search"),)
    if target.kind == "loops":
        return Target(*ids, LoopsOptions(), team, (("base_model", "Qwen/Qwen3-8B"),))
    listed = (("model_name", f"model-{target.model_id}"), ("environment", "production"))
    return Target(*ids, ModelOptions(), team, listed)


def parsed(page: bytes) -> Series:
    """The series of a page as the client library reads them."""
    families = text_string_to_metric_families(page.decode())
    samples = [sample for family in families for sample in family.samples]
    series = {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}
    assert len(series) == len(samples), "the same series twice"
    return series
