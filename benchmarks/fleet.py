"""Deployments of the simulated API, and what polls of them yield: the real path but for the socket."""

from collections.abc import Iterable, Iterator
from math import inf
from urllib.parse import urlencode

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from exporter.baseten import loops_metrics, model_metrics
from exporter.baseten.answers import LoopsAnswer, ModelAnswer, decode
from exporter.baseten.harvest import Harvest
from exporter.baseten.names import MetricNames
from exporter.model import Family, Labels, LoopsOptions, ModelOptions, Sample, Target
from exporter.simulator import Request, TargetId, World
from exporter.simulator.api import Api
from exporter.store import HEALTH, Entry

NOW = 1_800_000_000.0
WORKSPACE = "production"
STALE_AFTER = inf
_MAX_SAMPLE_AGE = 600.0
_KEY = "benchmark-key"

Series = dict[tuple[str, Labels], float]
"""Values by name and labels."""


class Fleet:
    """About 100 series for each of `targets` deployments, or as many more as `nodes` asks for."""

    def __init__(self, targets: int, nodes: int = 3) -> None:
        world = World.sized(targets, nodes=nodes)
        self._api = Api(world, _KEY, limit=None)
        self._names = MetricNames(WORKSPACE)
        self.targets = [_target(each) for each in world.targets()]

    def loops_body(self, target: Target, options: LoopsOptions, now: float = NOW) -> bytes:
        body = loops_metrics.body(options, now)
        path = f"/v1/loops/deployments/{target.deployment_id}/metrics"
        return self._ask("POST", path, now, msgspec.json.encode(body))

    def harvest(self, target: Target, now: float = NOW) -> Harvest:
        """One poll of `target`, as the exporter does it; `now` in seconds since the epoch."""
        harvest = Harvest(now - _MAX_SAMPLE_AGE)
        if isinstance(target.options, LoopsOptions):
            answer = decode(LoopsAnswer, self.loops_body(target, target.options, now))
            loops_metrics.translate(answer, target.options, now, harvest)
        else:
            self._harvest_model(target, target.options, now, harvest)
        return harvest

    def _harvest_model(self, target: Target, options: ModelOptions, now: float, harvest: Harvest) -> None:
        path = f"/v1/models/{target.model_id}/deployments/{target.deployment_id}/metrics?"
        for question in model_metrics.questions(options, now, self._names.kind_of):
            body = self._ask("GET", path + urlencode(question.params(question.names)), now)
            model_metrics.translate(decode(ModelAnswer, body), question, target.labels, now, harvest)

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


def shown(entry: Entry, families: Iterable[Family]) -> Iterator[tuple[Family, Labels]]:
    """All that stands on the page for one target, its health included, each with the target's labels."""
    target = entry.target
    for family in families:
        yield family, target.labels
    series = entry.snapshot.series if entry.snapshot else 0
    values = (float(bool(entry.up)), entry.last_success, entry.newest_sample, float(series))
    for (name, text), value in zip(HEALTH.items(), values, strict=True):
        assert value is not None
        labels = (("workspace", target.workspace), ("kind", target.kind), *target.ids)
        yield Family(name, text, (Sample((), value),)), labels


def parsed(page: bytes) -> Series:
    """The series of a page as the client library reads them."""
    families = text_string_to_metric_families(page.decode())
    samples = [sample for family in families for sample in family.samples]
    series = {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}
    assert len(series) == len(samples), "the same series twice"
    return series
