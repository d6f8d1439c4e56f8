"""Names the server rejects: found by halving, left out, tried again after a day, shared by a workspace."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from exporter.baseten.answers import Descriptor, ModelAnswer, ValueSet
from exporter.baseten.catalogue import CATALOGUE
from exporter.baseten.errors import ApiError
from exporter.baseten.fetch import Api, Limits, fetch
from exporter.baseten.harvest import Harvest
from exporter.baseten.names import RETRY_SECONDS, MetricNames
from exporter.model import ModelOptions, Target

ALL = tuple(CATALOGUE)
NOW = 1_000_000.0

Names = tuple[str, ...]
Verdict = Callable[[Names], int | None]
"""The status a request for these names is refused with, None where it is answered."""


def answer(names: Names, kind: str = "GAUGE") -> ModelAnswer:
    """Every metric is a plain gauge of value 1."""
    descriptors = [Descriptor(name, "COUNT", kind, [{}]) for name in names]
    return ModelAnswer(descriptors, [ValueSet([[1.0] for _ in names])])


class Server:
    """Stands in for the client: refuses by `verdict`, and remembers what it was asked for."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.asked: list[Names] = []

    def model_metrics(
        self,
        model_id: str,
        deployment_id: str,
        params: Sequence[tuple[str, str]],
        use: Callable[[ModelAnswer], None],
        spare: object,
    ) -> None:
        names = tuple(value for key, value in params if key == "metrics")
        self.asked.append(names)
        status = self.verdict(names)
        if status is None:
            use(answer(names))
            return
        raise ApiError("client_error", f"HTTP {status}", status=status)


def rejecting(*bad: str, status: int = 400) -> Verdict:
    return lambda names: status if set(bad) & set(names) else None


class Workspace:
    """A server and what its polls have learned; every poll is of mode current unless it says otherwise."""

    def __init__(self, verdict: Verdict) -> None:
        self.server = Server(verdict)
        self.names = MetricNames("w")
        stand_in: Any = self.server
        self.api = Api(stand_in, self.names)

    def poll(self, wanted: Names = ALL, now: float = NOW, deployment: str = "d") -> set[str]:
        """The names that came back; `self.server.asked` then holds this poll's requests."""
        self.server.asked.clear()
        target = Target("w", "m", deployment, ModelOptions(mode="current", metrics=wanted))
        harvest = fetch(self.api, target, now, Limits(300, 1000))
        return sources(harvest)

    def polls_until_all_but(self, bad: Names, wanted: Names = ALL, limit: int = 12) -> list[int]:
        """Poll until every good name comes back at the cost of one request; the requests of each poll."""
        requests = []
        for _ in range(limit):
            found: set[str] = set()
            with suppress(ApiError):  # where so many names are bad that one poll clears none
                found = self.poll(wanted)
            requests.append(len(self.server.asked))
            if len(found) == len(wanted) - len(bad) and len(self.server.asked) == 1:
                return requests
        raise AssertionError(f"still searching: {requests}")


def sources(harvest: Harvest) -> set[str]:
    """The source names of the harvest, which stand in each family's HELP."""
    return {family.help.split("Source: ")[1].split(". Unit")[0] for family in harvest.families()}


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(ALL[:1], id="the first"),
        pytest.param(ALL[-1:], id="the last"),
        pytest.param(ALL[17:18], id="one in the middle"),
        pytest.param(ALL[17:19], id="two neighbours on either side of the middle"),
        pytest.param((ALL[3], ALL[30]), id="two far apart"),
        pytest.param((ALL[0], ALL[1], ALL[2]), id="three in a row"),
        pytest.param(ALL[::5], id="every fifth"),
    ],
)
def test_the_rejected_names_among_36_are_found_and_no_other(bad: Names) -> None:
    workspace = Workspace(rejecting(*bad))
    requests = workspace.polls_until_all_but(bad, limit=40)
    assert max(requests) <= 6  # five and, the first time, the control request
    assert workspace.poll() == set(ALL) - set(bad)


def test_a_poll_that_clears_no_name_fails_and_the_search_goes_on() -> None:
    workspace = Workspace(rejecting(*ALL[::5]))
    with pytest.raises(ApiError, match="none of the metric names") as caught:
        workspace.poll()
    assert caught.value.reason == "client_error"
    for _ in range(10):
        with suppress(ApiError):
            workspace.poll()
    assert len(workspace.poll()) > len(ALL) // 2


def test_one_rejected_name_costs_few_requests_and_few_polls() -> None:
    workspace = Workspace(rejecting(ALL[17]))
    assert len(workspace.polls_until_all_but((ALL[17],))) <= 5


def test_the_first_poll_already_gives_what_it_cleared() -> None:
    workspace = Workspace(rejecting(ALL[0]))
    assert workspace.poll() >= set(ALL[18:])


def test_a_search_halves_what_was_rejected() -> None:
    workspace = Workspace(rejecting("b"))
    assert workspace.poll(("a", "b", "c", "d")) == {"a", "c", "d"}
    assert workspace.server.asked == [("a", "b", "c", "d"), (), ("a", "b"), ("c", "d"), ("a",), ("b",)]


def test_a_server_that_takes_every_name_is_asked_once() -> None:
    workspace = Workspace(rejecting())
    assert workspace.poll() == set(ALL)
    assert workspace.server.asked == [ALL]


@pytest.mark.parametrize("status", [400, 422])
def test_either_status_means_a_rejected_name(status: int) -> None:
    workspace = Workspace(rejecting("b", status=status))
    assert workspace.poll(("a", "b")) == {"a"}


@pytest.mark.parametrize("status", [401, 403, 404, 409, 429, 500])
def test_any_other_refusal_is_no_name_s_fault(status: int) -> None:
    workspace = Workspace(lambda names: status)
    with pytest.raises(ApiError, match=f"HTTP {status}"):
        workspace.poll()
    assert workspace.server.asked == [ALL]
    assert not workspace.names.in_doubt(ALL)


def test_a_question_refused_even_without_names_is_at_fault_itself() -> None:
    workspace = Workspace(lambda names: 400)
    with pytest.raises(ApiError, match="HTTP 400") as caught:
        workspace.poll()
    assert caught.value.reason == "client_error"
    assert workspace.server.asked == [ALL, ()]
    assert not workspace.names.in_doubt(ALL)


def test_when_every_name_is_rejected_the_poll_fails_and_says_so() -> None:
    workspace = Workspace(lambda names: 400 if names else None)
    for _ in range(2):
        with pytest.raises(ApiError, match="none of the metric names") as caught:
            workspace.poll(("a", "b"))
        assert caught.value.reason == "client_error"
    assert workspace.server.asked == []


def test_in_auto_one_half_of_the_question_may_have_no_accepted_name() -> None:
    workspace = Workspace(rejecting("baseten_llm_input_tokens_total"))
    options = ModelOptions(metrics=("baseten_replicas_active", "baseten_llm_input_tokens_total"))
    harvest = fetch(workspace.api, Target("w", "m", "d", options), NOW, Limits(300, 1000))
    assert sources(harvest) == {"baseten_replicas_active"}


# What is known


def test_a_rejected_name_is_left_out_for_a_day_and_then_tried_alone() -> None:
    workspace = Workspace(rejecting("b"))
    workspace.poll(("a", "b"))
    workspace.poll(("a", "b"), NOW + RETRY_SECONDS - 1)
    assert workspace.server.asked == [("a",)]
    assert workspace.poll(("a", "b"), NOW + RETRY_SECONDS) == {"a"}
    assert workspace.server.asked == [("a",), ("b",)]
    workspace.poll(("a", "b"), NOW + RETRY_SECONDS + 1)
    assert workspace.server.asked == [("a",)]


def test_a_name_the_server_has_learned_is_asked_again_with_the_others() -> None:
    workspace = Workspace(rejecting("b"))
    workspace.poll(("a", "b"))
    workspace.server.verdict = rejecting()
    assert workspace.poll(("a", "b"), NOW + RETRY_SECONDS) == {"a", "b"}
    workspace.poll(("a", "b"), NOW + RETRY_SECONDS)
    assert workspace.server.asked == [("a", "b")]


def test_only_two_doubtful_groups_are_tried_in_one_poll() -> None:
    workspace = Workspace(rejecting(*"bcdefg"))
    wanted = tuple("abcdefg")
    for _ in range(20):
        workspace.poll(wanted)
    workspace.poll(wanted, NOW + RETRY_SECONDS)
    assert len(workspace.server.asked) == 3


def test_targets_with_different_lists_share_what_was_found() -> None:
    workspace = Workspace(rejecting("b"))
    workspace.poll(("a", "b", "c"), deployment="one")
    assert workspace.poll(("b", "c", "x"), deployment="two") == {"c", "x"}
    assert workspace.server.asked == [("c", "x")]


def test_a_target_that_wants_none_of_the_suspects_is_not_asked_for_them() -> None:
    names = MetricNames("w")
    names.reject(("a", "b", "c", "d"), NOW)
    assert names.groups(("x", "y"), NOW) == [("x", "y")]
    assert names.groups(("x", "c"), NOW) == [("x",), ("c",)]
    assert names.groups((), NOW) == []


def test_a_name_cleared_by_another_target_is_no_suspect() -> None:
    names = MetricNames("w")
    names.reject(("a", "b", "c", "d"), NOW)
    names.accept(("a", "c", "x"))
    assert names.groups(("a", "b", "c", "d"), NOW) == [("a", "c"), ("b",), ("d",)]
    assert names.in_doubt(("b",))
    assert not names.in_doubt(("a", "c", "x"))


def test_a_rejected_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    workspace = Workspace(rejecting("b"))
    with caplog.at_level(logging.WARNING):
        for day in range(3):
            workspace.poll(("a", "b"), NOW + day * RETRY_SECONDS)
    [record] = caplog.records
    assert "rejects this metric name" in record.message
    assert (record.__dict__["workspace"], record.__dict__["metric"]) == ("w", "b")


# Kinds


def test_the_catalogue_tells_the_kind_of_a_name_until_the_server_says_otherwise() -> None:
    names = MetricNames("w")
    assert names.kind_of("baseten_llm_input_tokens_total") == "COUNTER"
    assert names.kind_of("vllm:e2e") == "GAUGE"
    names.learn(answer(("vllm:e2e", "baseten_llm_input_tokens_total"), kind="HISTOGRAM"))
    assert names.kind_of("vllm:e2e") == names.kind_of("baseten_llm_input_tokens_total") == "HISTOGRAM"


def test_a_kind_that_is_not_said_teaches_nothing() -> None:
    names = MetricNames("w")
    names.learn(ModelAnswer([Descriptor("baseten_llm_input_tokens_total")], []))
    assert names.kind_of("baseten_llm_input_tokens_total") == "COUNTER"


def test_what_is_learned_is_bounded() -> None:
    names = MetricNames("w")
    names.learn(answer(tuple(map(str, range(10_001))), kind="COUNTER"))
    assert names.kind_of("9999") == "COUNTER"
    assert names.kind_of("10000") == "GAUGE"


def test_a_name_moves_to_the_other_request_of_auto_once_its_kind_is_known() -> None:
    workspace = Workspace(rejecting())
    target = Target("w", "m", "d", ModelOptions(metrics=("vllm:e2e", "baseten_replicas_active")))
    fetch(workspace.api, target, NOW, Limits(300, 1000))
    workspace.names.learn(answer(("vllm:e2e",), kind="HISTOGRAM"))
    fetch(workspace.api, target, NOW, Limits(300, 1000))
    assert workspace.server.asked == [
        ("vllm:e2e", "baseten_replicas_active"),
        ("baseten_replicas_active",),
        ("vllm:e2e",),
    ]
