"""From what was seen to figures and promises."""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from tests.soak.accounting import Polls, polls
from tests.soak.findings import Findings
from tests.soak.fleet import LISTED, NAMED
from tests.soak.process import Usage
from tests.soak.report import Promise, Report, by_kind, mib, percentile

_SHOWN = 3
"""Of a list of things that are wrong."""


def judge(found: Findings) -> Report:
    return Report(list(_figures(found)), list(_promises(found)))


def _figures(found: Findings) -> Iterator[tuple[str, str]]:
    plan, record, scraped = found.plan, found.record, found.scraped
    yield "duration", f"{found.seconds:.0f} s, {plan.seconds:.0f} s of them chaos"
    yield "targets, poll interval, seed", f"{plan.targets}, {plan.interval:g} s, {plan.seed}"
    yield from _polls("polls", found.polls)
    for name, injected in found.faults.items():
        yield f"faults injected into {name}", f"{injected.total():,}: {by_kind(injected)}"
    yield "key rotations", by_kind(record.rotations)
    yield "reloads", by_kind(record.reloads)
    yield "besides", by_kind(record.done)
    latencies = scraped["latencies"]
    p50, p99 = (1000 * percentile(latencies, share) for share in (0.5, 0.99))
    counts = ", ".join(f"{name} {count}" for name, count in scraped["counts"].items())
    yield "scrapes", f"{len(latencies):,}, {len(latencies) / plan.seconds:.1f} a second: {counts}"
    yield "scrape p50, p99", f"{p50:.0f} ms, {p99:.0f} ms"
    yield "pages parsed whole, slow scrapes", f"{scraped['parsed']}, {scraped['slow']}"
    yield "memory by thirds of the chaos", ", ".join(map(mib, found.resident))
    before, after = found.start.usage, found.end.usage
    yield "memory at rest", f"{mib(before.resident)} -> {mib(after.resident)}"
    for what in ("threads", "sockets"):
        first, last, most = (getattr(each, what) for each in (before, after, _most(found.usages, what)))
        yield what, f"{first} -> {last}, at most {most}"
    down = sum(each["state"] != "up" for each in found.end.told)
    yield "values compared", f"{found.values.compared:,} ({down} targets were down again by then)"
    yield "log lines at debug", f"{found.log.lines:,}"


def _most(usages: Sequence[Usage], what: str) -> Usage:
    return max(usages, key=attrgetter(what))


def _polls(what: str, counted: Polls) -> Iterator[tuple[str, str]]:
    yield f"{what} attempted", f"{counted.attempted:,}"
    yield f"{what} succeeded", f"{counted.succeeded:,}"
    yield f"{what} failed", f"{counted.failed.total():,}: {by_kind(counted.failed)}"
    yield f"{what} skipped", f"{counted.skipped.total():,}: {by_kind(counted.skipped)}"


def _promises(found: Findings) -> Iterator[Promise]:
    yield from _accounts(found)
    values = found.values
    yield _none("every value is what the API said in that poll", values.wrong, values.compared > 0)
    _, middle, last = found.resident
    growth = last / middle - 1
    shown = f"{100 * growth:+.1f} % in the last third"
    yield Promise("memory is flat", abs(growth) <= found.plan.flat, shown)
    # Connections to the API may idle for a while: at most one for each poll at once, in two workspaces.
    idle = {"threads": 0, "sockets": 2 * found.plan.concurrency}
    for what, allowed in idle.items():
        before, after = (getattr(each.usage, what) for each in (found.start, found.end))
        yield Promise(f"{what} are back to the start", after <= before + allowed, f"{before} -> {after}")
    scraped = found.scraped
    asked = bool(scraped["parsed"] and scraped["slow"])
    yield _none("every scrape is answered whole, and parses", scraped["problems"], asked)
    done = bool(found.record.reloads and found.record.rotations)
    yield _none("reloads answer, series get stale, no key is on a page", found.record.troubles, done)
    yield Promise("no key in the log", not found.log.leaks, f"{found.log.leaks} lines")
    yield _none("nothing unexpected in the log", found.log.bugs, found.log.lines > 0)
    yield Promise("SIGTERM ends it with 0", found.status == 0, f"status {found.status}")


def _accounts(found: Findings) -> Iterator[Promise]:
    due, counted = found.due, found.named.attempted
    yield Promise(
        "every poll that was due is counted, in the named workspace",
        due == counted,
        f"{due:,} due, {found.named.succeeded:,} succeeded + {found.named.failed.total():,} failed"
        f" + {found.named.skipped.total():,} skipped = {counted:,}",
    )
    for name in (NAMED, LISTED):
        started, told = polls(found.end.page, name).started, found.log.started[name]
        yield Promise(
            f"every poll that was started is counted, in {name}",
            started == told,
            f"{told:,} started by the scheduler's log, {started:,} counted",
        )
    skipped, told = found.polls.skipped["overlap"], found.log.overlapped
    yield Promise("every overlap is counted", skipped == told, f"{told} in the log, {skipped} counted")


def _none(text: str, wrong: list[str], looked: bool) -> Promise:  # noqa: FBT001  # internal
    found = f"{len(wrong)} wrong" if looked else "nothing was looked at"
    shown = "".join(f"; {each}" for each in wrong[:_SHOWN])
    return Promise(text, looked and not wrong, found + shown)
