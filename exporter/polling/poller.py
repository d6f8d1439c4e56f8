"""One poll of one target, and the one place that decides what a failure does."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from exporter import exposition
from exporter.baseten.errors import ApiError, CircuitOpen, HeldBack, Reason, Stopping
from exporter.baseten.fetch import Api, Limits, fetch
from exporter.baseten.harvest import Harvest
from exporter.model import Snapshot, Target
from exporter.store import Store
from exporter.telemetry import Telemetry

log = logging.getLogger(__name__)

_MAX_WARNED = 1000
_LONGEST_NAMED = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one poll went: a harvest and its snapshot, or a reason and an error.

    `asked` is False where it was held back for what happened before, and nothing was sent.
    """

    target: Target
    seconds: float
    asked: bool = True
    harvest: Harvest | None = None
    snapshot: Snapshot | None = None
    reason: Reason | None = None
    error: str = ""


class Poller:
    """Polls targets into the store; safe to call from any thread.

    `apis` by workspace name and `limits` are replaced on a reload. `clock` gives
    seconds since the epoch; once `stop` is set nothing more is asked; `redact` takes keys out of a text.
    """

    def __init__(
        self,
        store: Store,
        telemetry: Telemetry,
        clock: Callable[[], float],
        stop: threading.Event,
        redact: Callable[[str], str],
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._clock = clock
        self._stop = stop
        self._redact = redact
        self.apis: Mapping[str, Api] = {}
        self.limits = Limits(0.0, 0)
        self._warned: set[str] = set()

    def poll(self, target: Target) -> Outcome | None:
        """Poll once; None if nobody wants it any more. All ends here: in the store and the counters."""
        api = self.apis.get(target.workspace)
        if api is None or self._stop.is_set():  # None: its workspace went in a reload
            return None
        started = time.monotonic()
        try:
            harvest = fetch(api, target, self._clock(), self.limits)
            snapshot = to_snapshot(target, harvest)
        except Stopping:
            return None
        except HeldBack as held:
            return self._held_back(target, held)
        except ApiError as error:
            return self._failed(target, error, time.monotonic() - started)
        except Exception as error:  # a bug must cost one poll, not the thread that polls
            log.exception("bug: a poll failed in a way it should not", extra={"target": str(target)})
            unexpected = ApiError("invalid_response", f"unexpected {type(error).__name__}")
            return self._failed(target, unexpected, time.monotonic() - started)
        return self._succeeded(target, harvest, snapshot, time.monotonic() - started)

    def _succeeded(self, target: Target, harvest: Harvest, snapshot: Snapshot, seconds: float) -> Outcome:
        self._telemetry.polled(target.workspace, target.kind, seconds, None)
        for reason, count in harvest.dropped.items():
            self._telemetry.dropped(reason, count)
        self._warn_of_losses(target, harvest)
        if self._store.succeed(target, snapshot, seconds):
            log.info("target is up", extra={"target": str(target), "series": snapshot.series})
        return Outcome(target, seconds, harvest=harvest, snapshot=snapshot)

    def _failed(self, target: Target, error: ApiError, seconds: float) -> Outcome:
        self._telemetry.polled(target.workspace, target.kind, seconds, error.reason)
        gone = error.reason == "not_found"
        message = self._redact(str(error))
        if self._store.fail(target, error.reason, message, seconds, gone=gone):
            consequence = "its series are gone" if gone else "series it has stay until stale_after"
            extra = {"target": str(target), "reason": error.reason, "error": message}
            log.warning("target is down: %s", consequence, extra=extra)
        return Outcome(target, seconds, reason=error.reason, error=message)

    def _held_back(self, target: Target, held: HeldBack) -> Outcome:
        is_circuit = isinstance(held, CircuitOpen)
        self._telemetry.skipped(target.workspace, target.kind, "circuit_open" if is_circuit else "paused")
        message = self._redact(str(held))
        self._store.hold_back(target, held.reason, message, down=is_circuit)
        return Outcome(target, 0.0, asked=False, reason=held.reason, error=message)

    def _warn_of_losses(self, target: Target, harvest: Harvest) -> None:
        if harvest.duplicate:
            more = harvest.dropped["duplicate"] - 1
            message = "two values for one series: the first is kept"
            self._warn_once(message, target, series=harvest.duplicate[:_LONGEST_NAMED], more=more)
        if lost := harvest.dropped["series_limit"]:
            message = "more series than max_series_per_target: the rest is dropped"
            self._warn_once(message, target, limit=self.limits.max_series, dropped=lost)

    def _warn_once(self, message: str, target: Target, **facts: object) -> None:
        """Once per target and series, and not for ever: what repeats every poll is in the counters."""
        about = f"{target} {message} {facts.get('series', '')}"
        if about not in self._warned and len(self._warned) < _MAX_WARNED:
            self._warned.add(about)
            log.warning(message, extra={"target": str(target), **facts})


def to_snapshot(target: Target, harvest: Harvest) -> Snapshot:
    families = harvest.families()
    return Snapshot(
        pieces=exposition.pieces(families, target.labels),
        series=sum(len(family.samples) for family in families),
        newest=harvest.newest,
    )
