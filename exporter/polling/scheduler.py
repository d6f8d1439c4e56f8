"""When each target is polled: one interval job per target, on threads per workspace."""

import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_SUBMITTED, JobSubmissionEvent
from apscheduler.executors.pool import BasePoolExecutor
from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from exporter.model import Kind, Target

Intervals = Mapping[tuple[str, Kind], float]
"""Seconds between two polls of a target, by workspace and kind."""

_MOST_MISSED = 10_000
"""Intervals that may be missed, and counted one by one."""

_FIRST_SPREAD = 3.0
"""Seconds over which first polls are spread, so that a start is no burst."""


class Scheduler:
    """Runs `poll` for every target; `skipped` is told of a poll that was due while the last one ran.

    A poll that finds all threads busy waits for one, however late: APScheduler's default would
    silently drop it after a second. Of several that come due at once, since the process did not
    run, one runs and the others count as skipped. `clock` gives seconds since the epoch.
    """

    def __init__(
        self,
        poll: Callable[[Target], object],
        skipped: Callable[[Target], None],
        clock: Callable[[], float],
    ) -> None:
        self._poll = poll
        self._skipped = skipped
        self._clock = clock
        self._targets: dict[str, Target] = {}
        self._pools: dict[str, _Pool] = {}
        self._intervals: Intervals = {}
        self._scheduler = BackgroundScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": False, "max_instances": 1}
        )
        self._scheduler.add_listener(self._on_due, EVENT_JOB_SUBMITTED | EVENT_JOB_MAX_INSTANCES)

    def start(self) -> None:
        self._scheduler.start()

    def retarget(
        self, targets: Iterable[Target], interval: float, effective: Intervals, threads: Mapping[str, int]
    ) -> None:
        """Poll exactly these targets from now on, on so many `threads` by workspace.

        New targets are polled at once, unless their effective interval had to be longer than the
        wished `interval`: then there are too many to ask all at once. Those that stay keep their
        schedule, and a poll in flight is never joined by a second one.
        """
        wanted = {_job_id(target): target for target in targets}
        for job_id in self._targets.keys() - wanted.keys():
            self._scheduler.remove_job(job_id)
        self._resize(threads)
        old, self._targets = self._targets, wanted
        for job_id, target in wanted.items():
            pace = effective[target.workspace, target.kind]
            if job_id not in old:
                self._add(job_id, target, pace, at_once=pace <= interval)
                continue
            if target != old[job_id]:
                self._scheduler.modify_job(job_id, args=(target,))
            if pace != self._intervals[target.workspace, target.kind]:
                self._retime(job_id, target, pace)
        self._intervals = effective

    def stop(self) -> None:
        """Start no more polls, and wait for those in flight."""
        self._scheduler.shutdown(wait=True)

    def next_poll(self, target: Target) -> float | None:
        """When the target is polled next, in seconds since the epoch."""
        job = self._scheduler.get_job(_job_id(target))
        return job.next_run_time.timestamp() if job and job.next_run_time else None

    def _add(self, job_id: str, target: Target, interval: float, *, at_once: bool) -> None:
        trigger, now = self._trigger(target, interval), self._clock()
        soon = now + _share(target, "first") * min(_FIRST_SPREAD, interval)
        first = soon if at_once else trigger.after(now - interval / 2)
        self._scheduler.add_job(
            self._poll,
            trigger,
            (target,),
            id=job_id,
            executor=target.workspace,
            next_run_time=datetime.fromtimestamp(first, UTC),
        )

    def _trigger(self, target: Target, interval: float) -> "PhaseTrigger":
        return PhaseTrigger(interval, _share(target) * interval)

    def _retime(self, job_id: str, target: Target, interval: float) -> None:
        """Take a new interval; a shorter one does not first wait out what is left of a longer one."""
        trigger = self._trigger(target, interval)
        planned = self._scheduler.get_job(job_id).next_run_time
        soon = datetime.fromtimestamp(trigger.after(self._clock()), UTC)
        self._scheduler.modify_job(job_id, trigger=trigger, next_run_time=min(planned, soon))

    def _resize(self, threads: Mapping[str, int]) -> None:
        """Give every workspace its threads.

        One that went is not waited for. It is kept for as long as its polls in flight need to end, so
        that they count should it come back meanwhile.
        """
        for name in self._pools.keys() - threads.keys():
            self._pools[name].resize(0)
            if self._pools[name].idle():
                del self._pools[name]
                self._scheduler.remove_executor(name)
        for name, count in threads.items():
            if name in self._pools:
                self._pools[name].resize(count)
            else:
                self._pools[name] = _Pool(count)
                self._scheduler.add_executor(self._pools[name], name)

    def _on_due(self, event: JobSubmissionEvent) -> None:
        target = self._targets.get(event.job_id)
        started = 1 if event.code == EVENT_JOB_SUBMITTED else 0
        if target is not None:
            for _ in event.scheduled_run_times[started:]:
                self._skipped(target)


class _Pool(BasePoolExecutor):  # type: ignore[misc] # APScheduler is untyped
    """Threads whose number can change while they work.

    An executor taken out and put back would lose the jobs that fall due in between (APScheduler
    removes them), and with them the count of running polls that keeps a target from being polled twice.
    """

    _pool: ThreadPoolExecutor

    def __init__(self, count: int) -> None:
        super().__init__(ThreadPoolExecutor(count))
        self._lock = threading.RLock()
        self._count = count
        self._retired: list[ThreadPoolExecutor] = []

    def resize(self, count: int) -> None:
        """Start polls on `count` threads from now on; those handed over before stay where they are."""
        if count == self._count:
            return
        with self._lock:
            self._retired = [*filter(_works, self._retired), self._pool]
            self._pool = ThreadPoolExecutor(max(count, 1))  # has no thread before its first poll
        self._count = count
        self._retired[-1].shutdown(wait=False)

    def idle(self) -> bool:
        """Whether nothing is in flight."""
        with self._lock:
            return not self._instances

    def _do_submit_job(self, job: Job, run_times: list[datetime]) -> None:
        """Start one poll, however many are due: APScheduler's own merging would not tell of the others."""
        super()._do_submit_job(job, run_times[-1:])

    def shutdown(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002 - as the base class
        for pool in (*self._retired, self._pool):
            pool.shutdown(wait)


def _works(pool: ThreadPoolExecutor) -> bool:
    """Whether a pool that takes no more still has polls in flight."""
    return any(thread.is_alive() for thread in pool._threads)  # noqa: SLF001 - there is no public way to ask


class PhaseTrigger(BaseTrigger):  # type: ignore[misc] # APScheduler is untyped
    """Fires at every `interval`, at `phase` into it, counted from the epoch; both in seconds.

    Neither drift nor restarts move it; APScheduler's own jitter would add up.
    """

    def __init__(self, interval: float, phase: float) -> None:
        self._interval = interval
        self._phase = phase

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        last, present = (previous or now).timestamp(), now.timestamp()
        was_set = present - last > _MOST_MISSED * self._interval  # the clock: those times never were
        return datetime.fromtimestamp(self.after(present if was_set else last), UTC)

    def after(self, previous: float) -> float:
        """The next time on the phase, at least half an interval later: a first poll is off the phase."""
        periods = (previous + self._interval / 2 - self._phase) // self._interval + 1
        return self._phase + periods * self._interval


def _share(target: Target, salt: str = "") -> float:
    """A number in [0, 1) that is the target's own, the same in every process."""
    return zlib.crc32("\0".join((*target.key, salt)).encode()) / 2**32


def _job_id(target: Target) -> str:
    return repr(target.key)
