"""Whatever the API or the network does, the page stays whole, the others stay fresh, and it heals.

Every fault meets a model deployment, a Loops trainer and a listing. Those that cost an answer cost
exactly one poll or listing each time; those that are only odd cost what is odd about them.
"""

import asyncio
import json
import logging
import re
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest
import trustme

from exporter.app import Exporter
from exporter.baseten.client import DEPLOYMENTS, LOOPS_METRICS, MODEL_METRICS
from exporter.baseten.errors import Reason
from exporter.config import load
from exporter.exposition import Format
from exporter.logs import Formatter, Redactor
from exporter.model import Target
from exporter.simulator import Fault, Simulator, Wire, World
from exporter.simulator.faults import HOSTILE, LIMITED, MANY, UNKNOWN, body, status
from exporter.simulator.organization import Promotion
from exporter.web.pages import Pages
from exporter.web.routes import Parts, application
from tests.conftest import Clock
from tests.helpers_pages import Series, read

if TYPE_CHECKING:
    from tests.conftest import Eventually

DEMO = World.demo()
PROMOTED = replace(DEMO.models[0], promotion=Promotion("production", "w4stag00", 25))
WORLD = replace(
    DEMO, models=(PROMOTED, DEMO.models[1], DEMO.models[-1]), trainers=(DEMO.trainers[0], DEMO.trainers[2])
)
"""Small, with something in every field of its answers."""


METRICS = (
    "baseten_inference_requests_total",
    "baseten_end_to_end_response_time_seconds",
    "baseten_gpu_memory_used",
    "baseten_replicas_active",
)
CHAT = f"{{model_id: q7chat32, deployment_id: w5prod01, mode: current, metrics: [{', '.join(METRICS)}]}}"
CODE = "{model_id: c0der480, deployment_id: w6prod02, metrics: default}"
TRAINER, SOLO = "{deployment_id: tr2x4sft, window: 1m, delay: 1m}", "{deployment_id: tr1solo8}"

LISTED = {"models": f"[{CHAT}]", "discovery": "{loops: {}}", "metadata_labels": "[model_name]"}
"""Has one model's deployments listed, and asks each endpoint once."""

CAP = 20_000
"""Series of one target, unless the config says otherwise."""

DEEP = b"[" * 10_000 + b"]" * 10_000
TOLD = {
    "poll_failures_total": "poll failed",
    "discovery_failures_total": "listing failed",
    "polls_skipped_total": "poll skipped",
    "dropped_samples_total": "dropped",
}
"""What is counted, in the words of these tables."""


Page = Mapping[Series, float]


class Subject(NamedTuple):
    """What a fault is aimed at: the path of its question, and the words of the log about it."""

    where: str
    target: str
    endpoint: str
    failed: str
    down: tuple[str, ...]
    up: str


DOWN = ("target is down: series it has stay until stale_after", "target is down: its series are gone")
LISTING = Subject(
    "/q7chat32/deployments$",
    "",
    DEPLOYMENTS,
    "listing failed",
    ("not everything could be listed: what is known of the rest stays",),
    "everything could be listed again",
)
SUBJECTS = {
    "model": Subject(
        "/w5prod01/metrics",
        "team/model/q7chat32/w5prod01",
        MODEL_METRICS,
        "poll failed",
        DOWN,
        "target is up",
    ),
    "loops": Subject(
        "/tr2x4sft/metrics", "team/loops/tr2x4sft", LOOPS_METRICS, "poll failed", DOWN, "target is up"
    ),
    "listing": LISTING,
}
SUBJECT = pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)


# The bench


class Certificates:
    """What a server shows, and may change while it runs."""

    def __init__(self) -> None:
        authority, stranger = trustme.CA(), trustme.CA()
        yesterday = datetime.now(UTC) - timedelta(days=1)
        self.authority = authority.cert_pem.bytes()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._by_name = {
            "good": authority.issue_cert("127.0.0.1"),
            "expired": authority.issue_cert("127.0.0.1", not_after=yesterday),
            "wrong name": authority.issue_cert("api.example.com"),
            "unknown CA": stranger.issue_cert("127.0.0.1"),
        }
        self.show("good")

    def show(self, name: str) -> None:
        self._by_name[name].configure_cert(self.context)


class Site(NamedTuple):
    """The APIs: the one that faults are aimed at, in plain and over TLS, and that of other people."""

    clock: Clock
    plain: Simulator
    secure: Simulator
    others: Simulator
    certificates: Certificates


class Bench:
    """An exporter of two workspaces, each with an API of its own, at a time set by hand."""

    def __init__(self, folder: Path, site: Site, *, secure: bool, listed: bool, timeout: str) -> None:
        self.site = site
        self.clock = site.clock
        self.api = site.secure if secure else site.plain
        self._path = folder / "config.yaml"
        self._authority = folder / "ca.pem"
        self._authority.write_bytes(site.certificates.authority)
        self._poll = f"{{timeout: {timeout}}}"
        self._keys = LISTED if listed else {"metadata_labels": "[]"}
        self._write()
        self.exporter = Exporter(lambda: load(self._path, {"KEY": self.api.key}), Redactor(), self.clock)
        pages = Pages(self.exporter.store, self.exporter.telemetry.registry)
        ready, next_poll = self.exporter.ready, self.exporter.scheduler.next_poll
        parts = Parts(self.exporter.store, pages, ready, next_poll, self.clock, None, lambda: ())
        self._app = application(parts, "/metrics")

    def _write(self, **keys: str) -> None:
        trust = {"ca_file": str(self._authority)}
        team = trust | {
            "api_url": self.api.url,
            "requests_per_second": "100",
            "models": f"[{CHAT}, {CODE}]",
            "loops": f"[{TRAINER}, {SOLO}]",
        }
        workspaces = {
            "team": team | self._keys | keys,
            "others": trust
            | {
                "requests_per_second": "100",
                "api_url": self.site.others.url,
                "models": f"[{CODE}]",
                "loops": f"[{SOLO}]",
                "metadata_labels": "[]",
            },
        }
        lines = [f"poll: {self._poll}", "workspaces:"]
        for name, settings in workspaces.items():
            lines += [f"  - name: {name}", "    api_key_env: KEY"]
            lines += [f"    {key}: {value}" for key, value in settings.items()]
        self._path.write_text("\n".join(lines))

    def reload(self, **keys: str) -> None:
        """Take other settings for the workspace that faults are aimed at; without any, its usual ones."""
        self._write(**keys)
        self.exporter.reload()

    def heal(self) -> None:
        self.api.heal()
        self.site.certificates.show("good")
        if self.exporter.config.workspaces[0].api_url != self.api.url:
            self.reload()

    def ask(self, subject: Subject) -> Counter[str]:
        """Poll or list it, a while later; returns what was counted meanwhile."""
        self.clock.now += 60
        before = self._counted()
        if subject.target:
            self.exporter.poller.poll(self.target(subject.target))
        else:
            self.exporter.discoveries["team"].run_once()
        counted = self._counted() - before
        if not subject.target:  # one bad number of a listing may cost several series
            counted |= {what: 1 for what in counted if what.startswith("dropped")}
            counted &= Counter(dict.fromkeys(counted, 1))
        return counted

    def poll(self, targets: Iterable[Target]) -> None:
        for target in targets:
            self.exporter.poller.poll(target)

    def _counted(self) -> Counter[str]:
        told = {f"baseten_exporter_{name}": words for name, words in TOLD.items()}
        counted: Counter[str] = Counter()
        for metric in self.exporter.telemetry.registry.restricted_registry(told).collect():
            for sample in metric.samples:
                counted[f"{told[sample.name]}: {sample.labels['reason']}"] += int(sample.value)
        return counted

    def target(self, name: str) -> Target:
        return next(target for target in self.exporter.targets if str(target) == name)

    def page(self) -> dict[Series, float]:
        """All series of the page."""
        return read(asyncio.run(self._scrape(Format.TEXT)))

    def whole_page(self) -> dict[Series, float]:
        """All series of the page, which has the same ones in both formats."""
        page = self.page()
        assert read(asyncio.run(self._scrape(Format.OPENMETRICS)), Format.OPENMETRICS).keys() == page.keys()
        return page

    async def _scrape(self, page_format: Format) -> str:
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://exporter") as client:
            answer = await client.get("/metrics", headers={"accept": page_format.value})
        assert (answer.status_code, answer.headers["content-type"]) == (200, page_format.value)
        return answer.text

    def others(self, subject: Subject, scope: str) -> list[Target]:
        """The targets that a fault of this scope (target, endpoint or workspace) leaves alone."""
        return [
            target
            for target in self.exporter.targets
            if target.workspace == "others"
            or (scope == "target" and str(target) != subject.target)
            or (scope == "endpoint" and target.kind not in subject.target)
        ]


def of(page: Page, subject: Subject) -> dict[Series, float]:
    """The subject's own series."""
    ids = {"deployment_id": subject.target.rpartition("/")[2]} if subject.target else {"model_id": "q7chat32"}
    about = {"workspace": "team", **ids}
    return {
        series: value
        for series, value in page.items()
        if series.has(**about)
        and not series.name.startswith("baseten_exporter_")
        and bool(subject.target) != series.name.startswith("baseten_model_deployment_")
    }


def own(page: Page, target: Target, name: str) -> float:
    """What the exporter says about a target."""
    labels = {"workspace": target.workspace, "kind": target.kind, **dict(target.ids)}
    return page[Series(f"baseten_exporter_target_{name}", frozenset(labels.items()))]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    clock, certificates = Clock(), Certificates()
    with ExitStack() as stack:

        def simulator(context: ssl.SSLContext | None = None) -> Simulator:
            return stack.enter_context(Simulator(WORLD, limit=None, clock=clock, ssl_context=context))

        yield Site(clock, simulator(), simulator(certificates.context), simulator(), certificates)


MakeBench = Callable[..., Bench]


@pytest.fixture
def bench_of(tmp_path: Path, site: Site) -> Iterator[MakeBench]:
    """Makes an exporter to which nothing has happened yet but good polls and listings."""
    with ExitStack() as stack:

        def make(subject: Subject, *, secure: bool = False, timeout: str = "10s") -> Bench:
            bench = Bench(tmp_path, site, secure=secure, listed=not subject.target, timeout=timeout)
            stack.callback(bench.exporter.close)
            stack.callback(bench.api.heal)
            stack.callback(site.certificates.show, "good")
            if secure:  # a new connection for each request, which shows the certificate of its time
                bench.api.fail("", closing)
            bench.exporter.list_once()
            bench.poll(bench.exporter.targets)
            return bench

        yield make


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "exporter")
    return caplog


def closing(wire: Wire) -> None:
    wire.reply(wire.response._replace(headers=(*wire.response.headers, ("Connection", "close"))))


# Faults that cost the answer

Begin = Callable[[Bench, Subject], None]


class Failure(NamedTuple):
    """How it begins, and how far it reaches: to one target, one endpoint or the whole workspace."""

    reason: Reason
    begin: Begin
    scope: str = "target"
    secure: bool = False
    timeout: str = "10s"


def sent(fault: str | Fault) -> Begin:
    return lambda bench, subject: bench.api.fail(subject.where, fault)


def nowhere(bench: Bench, subject: Subject) -> None:
    bench.reload(api_url="http://nowhere.invalid")


def silence(bench: Bench, subject: Subject) -> None:
    bench.reload(api_url="http://127.0.0.1:1")


ADDRESSES = (nowhere, silence)
"""Begin, and end, by a reload."""


def certificate(name: str) -> Begin:
    return lambda bench, subject: bench.site.certificates.show(name)


def retry_at_date(wire: Wire) -> None:
    """The API's date is that of the real clock, by which pauses go."""
    status(429, LIMITED, ("Retry-After", formatdate(time.time() + 2, usegmt=True)))(wire)


FAILURES: dict[str, Failure] = {
    "timeout before headers": Failure("timeout", sent("stall"), timeout="500ms"),
    "stall mid-body": Failure("timeout", sent("stall mid-body"), timeout="500ms"),
    "dribble": Failure("timeout", sent("dribble"), timeout="500ms"),
    "reset": Failure("connection", sent("reset")),
    "cut off mid-body": Failure("connection", sent("cut off")),
    "not http": Failure("connection", sent("not http")),
    "DNS failure": Failure("connection", nowhere, "workspace"),
    "nobody listens": Failure("connection", silence, "workspace"),
    "TLS expired": Failure("tls", certificate("expired"), "workspace", secure=True),
    "TLS wrong name": Failure("tls", certificate("wrong name"), "workspace", secure=True),
    "TLS unknown CA": Failure("tls", certificate("unknown CA"), "workspace", secure=True),
    "HTTP 200 with HTML": Failure("invalid_response", sent("html 200")),
    "truncated JSON": Failure("invalid_response", sent("truncated json")),
    "empty body": Failure("invalid_response", sent("empty body")),
    "not gzip": Failure("invalid_response", sent("not gzip")),
    "gzip bomb": Failure("too_large", sent("gzip bomb")),
    "8 MB of JSON, 200 MB of Python": Failure("too_large", sent("dense json")),
    "40 MiB body": Failure("too_large", sent("huge body")),
    "40 MiB body in chunks": Failure("too_large", sent("huge chunked body")),
    "10,000-deep nesting": Failure("invalid_response", sent(body(DEEP))),
    "10,000-deep nesting inside": Failure("invalid_response", sent(body(b'{"new": ' + DEEP + b"}"))),
    "301": Failure("invalid_response", sent("redirect 301")),
    "401": Failure("auth", sent("401")),
    "403": Failure("forbidden", sent("403")),
    "404": Failure("not_found", sent("404")),
    "422": Failure("client_error", sent("422")),
    "429 without a hint": Failure("rate_limited", sent("429"), "endpoint"),
    "429 body": Failure("rate_limited", sent(status(429, {**LIMITED, "retry_after": 0.3})), "endpoint"),
    "429 Retry-After seconds": Failure(
        "rate_limited", sent(status(429, LIMITED, ("Retry-After", "0.3"))), "endpoint"
    ),
    "429 Retry-After date": Failure("rate_limited", sent(retry_at_date), "endpoint"),
    "500": Failure("server_error", sent("500")),
    "502": Failure("server_error", sent("502")),
    "503": Failure("server_error", sent("503")),
    "504": Failure("server_error", sent("504")),
}


@SUBJECT
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_fault(
    bench_of: MakeBench,
    log: pytest.LogCaptureFixture,
    eventually: "Eventually",
    failure: Failure,
    subject: Subject,
) -> None:
    bench = bench_of(subject, secure=failure.secure, timeout=failure.timeout)
    before = bench.page()
    failure.begin(bench, subject)
    log.clear()

    # It costs the poll, which is counted each time, unless the API wants to be left alone, and said once.
    held_back = failure.reason == "rate_limited" and subject.target
    again = "poll skipped: paused" if held_back else f"{subject.failed}: {failure.reason}"
    assert bench.ask(subject) == {f"{subject.failed}: {failure.reason}": 1}
    assert bench.ask(subject) == {again: 1}
    (said,) = log.records
    assert_is_clear(said, subject, failure.reason)

    # What was known stays, unless it is gone for good; nobody else is hurt.
    others = bench.others(subject, failure.scope)
    bench.poll(others)
    page = bench.whole_page()
    gone = failure.reason == "not_found" and subject.target
    assert of(page, subject) == ({} if gone else of(before, subject))
    assert not subject.target or own(page, bench.target(subject.target), "up") == 0
    assert_fresh(bench, others, before, page)
    assert log.records == [said]

    # The next good answer heals it.
    bench.heal()
    reloaded = failure.begin in ADDRESSES
    if failure.reason == "rate_limited":
        wait(bench, subject, eventually)
    assert bench.ask(subject) == {}
    assert_healed(bench, subject, before)
    # A reload begins listing anew: there it is the reload that the log speaks of.
    news = ["config reloaded"] * reloaded + [subject.up] * bool(subject.target or not reloaded)
    assert [record.message for record in log.records[1:]] == news
    assert {record.levelname for record in log.records[1:]} == {"INFO"}


def assert_is_clear(said: logging.LogRecord, subject: Subject, reason: str) -> None:
    """One line says which target or endpoint it is about, the reason, and what happened."""
    line = Formatter("logfmt").format(said)
    assert said.levelname == "WARNING"
    assert said.message in subject.down
    assert "\n" not in line
    assert f"reason={reason}" in line
    assert (f"target={subject.target}" if subject.target else "workspace=team endpoint=") in line
    assert len(str(vars(said)["error"])) > 5


def assert_fresh(bench: Bench, targets: list[Target], before: Page, page: Page) -> None:
    """These targets have newer values than before."""
    assert {target.workspace for target in targets} >= {"others"}
    for target in targets:
        assert own(page, target, "up") == 1
        assert own(page, target, "last_success_timestamp_seconds") == bench.clock.now
        name = "newest_sample_timestamp_seconds"
        assert own(page, target, name) > own(before, target, name)


def assert_healed(bench: Bench, subject: Subject, before: Page) -> None:
    """It has the series it had before, with newer values where they ever change."""
    page = bench.page()
    assert of(page, subject).keys() == of(before, subject).keys()
    if subject.target:
        assert of(page, subject) != of(before, subject)
        assert own(page, bench.target(subject.target), "up") == 1


def wait(bench: Bench, subject: Subject, eventually: "Eventually") -> None:
    """Let the pause pass, a long one as if it were over."""
    client = bench.exporter.poller.apis["team"].client
    if client.paused(subject.endpoint) > 2:
        assert client.paused(subject.endpoint) <= 10
        client.throttles[subject.endpoint]._resume -= 9
    eventually(lambda: client.paused(subject.endpoint) == 0)


# Answers that are only odd

Expected = Callable[[Bench, Subject, Page, Page], None]
"""Looks at the page before and after."""


class Odd(NamedTuple):
    """What is sent; what becomes of it: what is dropped of the `series` there were, and what is seen then."""

    fault: str | Fault
    seen: Expected
    drops: Callable[[str, int], dict[str, int]] = lambda kind, series: {}
    warned: str = ""


def unchanged(bench: Bench, subject: Subject, before: Page, page: Page) -> None:
    assert of(page, subject).keys() == of(before, subject).keys()


def absent(bench: Bench, subject: Subject, before: Page, page: Page) -> None:
    """Numbers that are null are no series; that a deployment exists needs no number."""
    assert of(page, subject).keys() < of(before, subject).keys()
    names = {series.name.removeprefix("baseten_model_deployment_") for series in of(page, subject)}
    assert names == (set() if subject.target else {"info", "status", "created_timestamp_seconds"})


def named_anew(bench: Bench, subject: Subject, before: Page, page: Page) -> None:
    """A status is a label like any other; an unknown kind or unit leaves the value as it is sent."""
    assert len(of(page, subject)) == len(of(before, subject))
    values = {label for series in of(page, subject) for label in series.labels}
    names = {series.name for series in of(page, subject)}
    assert ("status", UNKNOWN) in values if not subject.target else ("status", UNKNOWN) not in values
    assert ("baseten_model_gpu_memory_used" in names) == (subject.target.startswith("team/model"))


def capped(bench: Bench, subject: Subject, before: Page, page: Page) -> None:
    if subject.target:
        assert len(of(page, subject)) == CAP
        assert own(page, bench.target(subject.target), "series") == CAP
    else:
        (info,) = (series for series in of(page, subject) if info_of_production(series))
        assert len([name for name, _ in info.labels if name.startswith("label_")]) == 20


def info_of_production(series: Series) -> bool:
    return series.name == "baseten_model_deployment_info" and series.has(deployment_id="w5prod01")


def escaped(bench: Bench, subject: Subject, before: Page, page: Page) -> None:
    """Labels arrive whole and as they were, but for the byte that is no UTF-8; the users' own are cut."""
    text = HOSTILE.replace("\uf8ff", "\ufffd")
    values = {label for series in of(page, subject) for label in series.labels}
    if not subject.target:
        assert ("deployment_name", text) in values
        assert (f"label_{re.sub('[^a-zA-Z0-9]', '_', text[:200])}", text[:200]) in values
    elif "model" in subject.target:
        assert {("replica", f"{text}w5prod01-{number}") for number in range(3)} < values
    else:
        assert {("node_id", text), ("node_id", "tr2x4sft-node-1")} < values


ODD = {
    "slow but valid": Odd("slow", unchanged),
    "nulls": Odd("null numbers", absent, lambda kind, series: {"null": series} if kind != "listing" else {}),
    "NaN literal": Odd(
        "nan literal", absent, lambda kind, series: {"not_finite": series if kind != "listing" else 1}
    ),
    "unknown enum": Odd("unknown enum", named_anew),
    "duplicate series": Odd(
        "duplicate series",
        unchanged,
        lambda kind, series: {"duplicate": 1},
        "two values for one series: the first is kept",
    ),
    "100,000 label sets": Odd(
        "many label sets",
        capped,
        lambda kind, series: (
            {"series_limit": series - {"model": 1, "loops": 4}[kind] + MANY - CAP}
            if kind != "listing"
            else {}
        ),
        "more series than max_series_per_target: the rest is dropped",
    ),
    "hostile labels": Odd("hostile labels", escaped),
}


@SUBJECT
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_answer(bench_of: MakeBench, log: pytest.LogCaptureFixture, odd: Odd, subject: Subject) -> None:
    bench = bench_of(subject)
    before = bench.page()
    bench.api.fail(subject.where, odd.fault)
    log.clear()

    # It is a good answer; what of it is of no use is counted, each time, and warned of once.
    kind = subject.target.split("/")[1] if subject.target else "listing"
    drops = odd.drops(kind, len(of(before, subject)))
    for _ in range(2):
        assert bench.ask(subject) == {f"dropped: {reason}": count for reason, count in drops.items()}
    others = bench.others(subject, "target")
    bench.poll(others)
    page = bench.whole_page()
    odd.seen(bench, subject, before, page)
    assert not subject.target or own(page, bench.target(subject.target), "up") == 1
    assert_fresh(bench, others, before, page)
    warnings = [odd.warned] if odd.warned and subject.target else []
    assert [record.message for record in log.records] == warnings
    assert all(vars(record)["target"] == subject.target for record in log.records)

    # Nothing of it is left after the next true one.
    bench.heal()
    assert bench.ask(subject) == {}
    assert_healed(bench, subject, before)
    assert [record.message for record in log.records] == warnings


@pytest.mark.parametrize(
    ("subject", "items"),
    [
        (
            SUBJECTS["model"],
            [f"$.metric_descriptors[].unit_hint={UNKNOWN}", f"$.metric_descriptors[].kind={UNKNOWN}"],
        ),
        (LISTING, [f"$.deployments[].status={UNKNOWN}"]),
    ],
    ids=["model", "listing"],
)
def test_a_value_nobody_documented_is_named_once(
    bench_of: MakeBench, log: pytest.LogCaptureFixture, subject: Subject, items: list[str]
) -> None:
    bench = bench_of(subject)
    bench.api.fail(subject.where, "unknown enum")
    bench.reload(requests_per_second="90")  # a new client looks closely at its first answers
    log.clear()
    for _ in range(2):
        assert bench.ask(subject) == {}
    warnings = [record for record in log.records if record.levelname == "WARNING"]
    assert [vars(record)["path"] for record in warnings] == items
    assert {vars(record)["endpoint"] for record in warnings} == {subject.endpoint}


# Fields that hold something else

LITERALS = ("null", "true", "7", "1e999", '"x"', "[]", "{}")
ANY = frozenset(LITERALS)
TEXT, NUMBER = {"null", '"x"'}, {"null", "7", "1e999"}
ID, LIST, ITEMS, OBJECT, NOTHING = {'"x"'}, {"null", "[]"}, {"[]"}, {"null", "{}"}, frozenset[str]()


class Field(NamedTuple):
    """Some fields, as a pattern of their paths: what they may hold, and what is dropped for it."""

    paths: str
    may_hold: Collection[str]
    drops: Mapping[str, str] = MappingProxyType({})


def each(reason: str, *literals: str) -> dict[str, str]:
    return dict.fromkeys(literals or LITERALS, reason)


AUTOSCALING = "m.._replica|autoscaling_window|scale_down_delay|concurrency_target|target_utilization.*"
NO_NUMBER = each("1 not_a_number", "true", '"x"', "[]", "{}")
NOT_FINITE = each("1 not_finite", "1e999")
POINT = each("1 bad_timestamp")

FIELDS: dict[str, tuple[Subject, list[Field]]] = {
    "model metrics": (
        SUBJECTS["model"],
        [
            Field(r"\$|.*\.metric_descriptors\[\]|.*\.metric_values\[\]", NOTHING),
            Field(r".*\.metric_descriptors|.*\.metric_values", ITEMS),
            Field(r".*\.name", ID),
            Field(r".*\.(unit_hint|kind)", TEXT),
            Field(r".*\.label_sets", LIST, each("1 misaligned")),
            Field(r".*\.label_sets\[\]", {"{}"}),
            Field(r".*\.label_sets\[\]\.\w+", ANY, each("1 bad_label", "[]", "{}")),
            Field(r".*\.values", ITEMS, each("all misaligned")),
            Field(r".*\.values\[\]", ANY, each("4 misaligned")),
            Field(r".*\.values\[\]\[\]", ANY, NO_NUMBER | NOT_FINITE | each("1 null", "null")),
            Field(r".*\.end_epoch_millis", NUMBER, each("all too_old", "7")),
            Field(r".*\.(start_epoch_millis|step_seconds)", NUMBER),
            Field(r".*\.mode", ANY),
        ],
    ),
    "loops metrics": (
        SUBJECTS["loops"],
        [
            Field(r"\$|.*\.per_node_metrics\[\]", NOTHING),
            Field(r"\$\.metrics", {"{}"}),
            Field(r".*\.node_id", ID),
            Field(r".*\.(gpu_memory_usage_bytes|gpu_utilization|ephemeral_storage)", OBJECT),
            Field(r".*\.timestamp", ANY, POINT),
            Field(r".*\[\]", {"{}"}, POINT),
            Field(r".*\.(value|p\d+|status_.xx|deployment_id)", ANY),
            Field(".*", LIST),
        ],
    ),
    "models": (
        LISTING._replace(where="/v1/models$"),
        [
            Field(r"\$|.*\[\]", NOTHING),
            Field(r".*\.models", ITEMS),
            Field(r".*\.id", ID),
            Field(r".*\.(name|team_name)", TEXT),
            Field(".*", ANY),
        ],
    ),
    "deployments": (
        LISTING,
        [
            Field(r"\$|.*\[\]", NOTHING),
            Field(r".*\.deployments", ITEMS),
            Field(r".*\]\.id", ID),
            Field(r".*\]\.(name|environment|status|instance_type_name|created_at)", TEXT),
            Field(rf".*\.(active_replica_count|{AUTOSCALING})", NUMBER, NOT_FINITE),
            Field(r".*\.(autoscaling_settings|labels)", OBJECT),
            Field(".*", ANY),
        ],
    ),
    "environments": (
        LISTING._replace(where="/q7chat32/environments$"),
        [
            Field(r"\$|.*\[\]", NOTHING),
            Field(r".*\.environments", ITEMS),
            Field(r".*(\]\.name|_deployment\.id)", ID),
            Field(r".*_deployment", {"null"}),
            Field(r".*\.in_progress_promotion", OBJECT),
            Field(r".*_promotion\.status", TEXT),
            Field(r".*\.percent_traffic_to_new_version", NUMBER, NOT_FINITE),
            Field(".*", ANY),
        ],
    ),
    "trainers": (
        LISTING._replace(where="/v1/loops/deployments$"),
        [
            Field(r"\$|.*\[\]", NOTHING),
            Field(r".*\.deployments", ITEMS),
            Field(r".*(\]\.id|sampler\.(model_id|deployment_id))", ID),
            Field(r".*(\]\.base_model|\.sampler\.id|\.status\.name)", TEXT),
            Field(r".*\.status", OBJECT),
            Field(r".*\.sampler", {"null"}),
            Field(".*", ANY),
        ],
    ),
    "prices": (
        LISTING._replace(where="/v1/instance_type_prices$"),
        [
            Field(r"\$|.*\[\]|.*\.instance_type", NOTHING),
            Field(r".*\.instance_types", ITEMS),
            Field(r".*\.name", ID),
            Field(r".*\.gpu_type", TEXT),
            Field(r".*\.price", NUMBER, NOT_FINITE),
            Field(r".*\.gpu_count", NUMBER),
            Field(".*", ANY),
        ],
    ),
}
"""Every field of every answer: the first pattern that matches its path tells."""


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize(("subject", "fields"), FIELDS.values(), ids=FIELDS)
def test_any_field_may_hold(
    bench_of: MakeBench,
    log: pytest.LogCaptureFixture,
    subject: Subject,
    fields: list[Field],
    literal: str,
) -> None:
    bench = bench_of(subject)
    before = bench.page()
    places = walked(true_answer(bench, subject))
    is_down = False
    assert len(places) > 5
    for path, place in places.items():
        field = next(field for field in fields if re.fullmatch(field.paths, path))
        was_down, is_down = is_down, literal not in field.may_hold
        bench.api.fail(subject.where, substituted(place, literal))
        log.clear()
        assert bench.ask(subject) == (
            {f"{subject.failed}: invalid_response": 1}
            if is_down
            else lost(field.drops.get(literal), len(of(before, subject)))
        ), path
        news = (subject.down if is_down else (subject.up,)) if was_down != is_down else ()
        said = [record.message for record in log.records if record.message in (*subject.down, subject.up)]
        assert said == list(news[:1]), path
    others = bench.others(subject, "target")
    bench.poll(others)
    assert_fresh(bench, others, before, bench.whole_page())
    bench.heal()
    assert bench.ask(subject) == {}
    assert_healed(bench, subject, before)


def lost(told: str | None, series: int) -> dict[str, int]:
    """What a poll is to count for `told`, which says how many samples are dropped and why."""
    if told is None:
        return {}
    count, _, reason = told.partition(" ")
    return {f"dropped: {reason}": series if count == "all" else int(count)}


def true_answer(bench: Bench, subject: Subject) -> Any:
    """What the API says to the exporter's own question."""
    bodies: list[bytes] = []

    def overhear(wire: Wire) -> None:
        bodies.append(wire.response.body)
        wire.reply(wire.response)

    bench.api.fail(subject.where, overhear)
    bench.ask(subject)
    return json.loads(bodies[0])


Place = tuple[str | int, ...]


def walked(answer: Any, path: str = "$", place: Place = ()) -> dict[str, Place]:
    """The first place for every path in an answer; items of a list share theirs, and so do GPU ranks."""
    places = {path: place}
    inside = isinstance(answer, dict | list)
    items = answer.items() if isinstance(answer, dict) else enumerate(answer if inside else ())
    for key, inner in items:
        step = "[]" if isinstance(key, int) else ".*" if key.isdigit() else f".{key}"
        for name, found in walked(inner, path + step, (*place, key)).items():
            places.setdefault(name, found)
    return places


def substituted(place: Place, literal: str) -> Fault:
    """The true answer with a literal in some place."""

    def act(wire: Wire) -> None:
        root = {"$": json.loads(wire.response.body)}
        holder: Any = root
        for key in ("$", *place)[:-1]:
            holder = holder[key]
        holder[("$", *place)[-1]] = "<here>"
        text = json.dumps(root["$"]).replace('"<here>"', literal)
        wire.reply(wire.response._replace(body=text.encode()))

    return act
