"""The exporter's own metrics, in a registry of their own.

They accumulate, where the targets' values are replaced; per-target ones come from the store.
"""

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from exporter import __version__
from exporter.baseten.client import METRICS_ENDPOINTS
from exporter.baseten.drift import Unknown
from exporter.baseten.errors import REASONS, Reason
from exporter.baseten.harvest import DROP_REASONS, DropReason
from exporter.model import KINDS, Kind

SkipReason = Literal[
    "overlap",  # the poll before still ran
    "paused",  # the endpoint is left alone after a 429
    "circuit_open",  # nothing gets through to the workspace
]
SKIP_REASONS: tuple[SkipReason, ...] = get_args(SkipReason)

_POLL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_REQUEST_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Telemetry:
    """Everything the exporter counts about itself; the one place that names these metrics.

    `clock` gives seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._polls = self._counter("polls", "Polls that ran", "workspace", "kind")
        self._failures = self._counter("poll_failures", "Polls that failed", "workspace", "kind", "reason")
        self._skipped = self._counter(
            "polls_skipped",
            "Polls not started: the last one still ran, the API wants a pause, or nothing gets through",
            "workspace",
            "kind",
            "reason",
        )
        self._durations = self._histogram(
            "poll_duration_seconds", "Duration of polls", _POLL_BUCKETS, "workspace", "kind"
        )
        self._requests = self._counter(
            "api_requests",
            "Requests to the Baseten API; code is the HTTP status, or why there was none",
            "workspace",
            "endpoint",
            "code",
        )
        self._request_durations = self._histogram(
            "api_request_duration_seconds",
            "Duration of requests to the Baseten API",
            _REQUEST_BUCKETS,
            "workspace",
            "endpoint",
        )
        self._waits = self._counter(
            "api_rate_limit_wait_seconds",
            "Time polls waited to keep requests_per_second",
            "workspace",
            "endpoint",
        )
        self._retries = self._counter(
            "api_retries", "Requests to the Baseten API sent a second time", "workspace", "endpoint"
        )
        self._pauses = self._gauge(
            "api_paused_until_timestamp_seconds",
            "Time until which the last 429 has the endpoint left alone, in seconds since the epoch",
            "workspace",
            "endpoint",
        )
        self._circuits = self._gauge(
            "workspace_circuit_open",
            "Whether only a probe per interval is sent, since nothing gets through (1) or all is well (0)",
            "workspace",
        )
        self._interval = self._gauge("poll_interval_seconds", "The poll interval of the config")
        self._shard = self._gauge(
            "shard_info", "Which of how many exporters this is, always 1", "shard", "total_shards"
        )
        self._targets = self._gauge("shard_targets", "Targets that this exporter polls")
        self._intervals = self._gauge(
            "effective_interval_seconds",
            "The poll interval, longer than that of the config where requests_per_second allows no more",
            "workspace",
            "kind",
        )
        self._discoveries = self._gauge(
            "discovery_last_success_timestamp_seconds",
            "Time everything could last be listed, in seconds since the epoch",
            "workspace",
        )
        self._discovery_failures = self._counter(
            "discovery_failures", "Listings that failed", "workspace", "reason"
        )
        self._discovered = self._gauge(
            "discovered_targets",
            "Targets that the selectors of the config find, those of all shards",
            "workspace",
            "kind",
        )
        self._unknown = self._counter(
            "unknown_api_items",
            "Different fields and values of enumerations that the API sent and this version does not know",
            "endpoint",
            "what",
        )
        self._dropped = self._counter(
            "dropped_samples", "Values in answers that were not exposed, null ones included", "reason"
        )
        self._reload_ok = self._gauge(
            "config_last_reload_successful", "Whether the last config load succeeded"
        )
        self._reload_time = self._gauge(
            "config_last_reload_success_timestamp_seconds", "Time of the last successful config load"
        )
        info = self._gauge(
            "build_info", "Version of the exporter and its Python", "version", "python_version"
        )
        info.labels(__version__, platform.python_version()).set(1)
        for reason in DROP_REASONS:
            self._dropped.labels(reason)
        self._known: frozenset[tuple[str, Kind]] = frozenset()
        self._stretched: frozenset[tuple[str, Kind]] = frozenset()
        self._web_config: Gauge | None = None
        self._certificate: Gauge | None = None

    def watch(self, workspaces: Iterable[str]) -> None:
        """Start the known series of these workspaces at 0, and forget those of all others."""
        known = {(workspace, kind) for workspace in workspaces for kind in KINDS}
        for workspace, kind in known:
            self._polls.labels(workspace, kind)
            self._durations.labels(workspace, kind)
            for skip in SKIP_REASONS:
                self._skipped.labels(workspace, kind, skip)
            for reason in REASONS:
                self._failures.labels(workspace, kind, reason)
        for workspace in {workspace for workspace, _ in known}:
            for reason in REASONS:
                self._discovery_failures.labels(workspace, reason)
            self._circuits.labels(workspace)
            for endpoint in METRICS_ENDPOINTS:
                self._waits.labels(workspace, endpoint)
                self._retries.labels(workspace, endpoint)
                self._request_durations.labels(workspace, endpoint)
        gone = {workspace for workspace, _ in self._known - known}
        self._known = frozenset(known)
        for workspace in gone:
            self._forget(workspace)

    def polled(self, workspace: str, kind: Kind, seconds: float, reason: Reason | None) -> None:
        """Count one poll that ran; `reason` is why it failed, None where it did not."""
        if self._watched(workspace):
            self._polls.labels(workspace, kind).inc()
            self._durations.labels(workspace, kind).observe(seconds)
            if reason is not None:
                self._failures.labels(workspace, kind, reason).inc()

    def skipped(self, workspace: str, kind: Kind, reason: SkipReason) -> None:
        if self._watched(workspace):
            self._skipped.labels(workspace, kind, reason).inc()

    def dropped(self, reason: DropReason, count: int) -> None:
        self._dropped.labels(reason).inc(count)

    def requested(self, workspace: str, endpoint: str, code: str, seconds: float) -> None:
        if self._watched(workspace):
            self._requests.labels(workspace, endpoint, code).inc()
            self._request_durations.labels(workspace, endpoint).observe(seconds)

    def waited(self, workspace: str, endpoint: str, seconds: float) -> None:
        if self._watched(workspace):
            self._waits.labels(workspace, endpoint).inc(seconds)

    def retried(self, workspace: str, endpoint: str) -> None:
        if self._watched(workspace):
            self._retries.labels(workspace, endpoint).inc()

    def paused(self, workspace: str, endpoint: str, seconds: float) -> None:
        """Note that an endpoint is left alone for so many seconds from now."""
        if self._watched(workspace):
            self._pauses.labels(workspace, endpoint).set(self._clock() + seconds)

    def circuits(self, is_open: Mapping[str, Callable[[], bool]]) -> None:
        """Ask the circuits of these workspaces whenever a page is made: one that was replaced has no say."""
        for workspace, ask in is_open.items():
            self._circuits.labels(workspace).set_function(ask)

    def intervals(self, configured: float, effective: Mapping[tuple[str, Kind], float]) -> None:
        """Note the poll interval, and what becomes of it by workspace and kind; in seconds."""
        self._interval.set(configured)
        for workspace, kind in self._stretched - effective.keys():
            self._intervals.remove_by_labels({"workspace": workspace, "kind": kind})
        self._stretched = frozenset(effective)
        for (workspace, kind), seconds in effective.items():
            self._intervals.labels(workspace, kind).set(seconds)

    def shard(self, index: int, total: int) -> None:
        self._shard.labels(str(index), str(total)).set(1)

    def polling(self, targets: int) -> None:
        """Note how many targets are polled."""
        self._targets.set(targets)

    def web_config(self, *, good: bool) -> None:
        """Note the outcome of reading the web config; without one there is no such metric."""
        if self._web_config is None:
            self._web_config = self._gauge(
                "web_config_last_reload_successful",
                "Whether the web config in use is the one in the file (1)",
            )
        self._web_config.set(good)

    def certificate(self, expiry: float) -> None:
        """Note when the served certificate expires, in seconds since the epoch; without TLS there is none."""
        if self._certificate is None:
            self._certificate = self._gauge(
                "web_certificate_expiry_timestamp_seconds", "Time at which the served certificate expires"
            )
        self._certificate.set(expiry)

    def discovery_succeeded(self, workspace: str, now: float | None) -> None:
        """Note when everything was listed; None where nothing is to be listed."""
        if now is None:
            self._discoveries.remove_by_labels({"workspace": workspace})
        elif self._watched(workspace):
            self._discoveries.labels(workspace).set(now)

    def discovery_failed(self, workspace: str, reason: Reason) -> None:
        if self._watched(workspace):
            self._discovery_failures.labels(workspace, reason).inc()

    def discovered(self, workspace: str, kind: Kind, count: int | None) -> None:
        """Note how many targets a selector finds; None where there is no selector."""
        if count is None:
            self._discovered.remove_by_labels({"workspace": workspace, "kind": kind})
        elif self._watched(workspace):
            self._discovered.labels(workspace, kind).set(count)

    def unknown(self, endpoint: str, item: Unknown) -> None:
        self._unknown.labels(endpoint, item.what).inc()

    def loaded(self, now: float, *, good: bool) -> None:
        """Note the outcome of reading the config; `now` in seconds since the epoch."""
        self._reload_ok.set(good)
        if good:
            self._reload_time.set(now)

    def _watched(self, workspace: str) -> bool:
        """Whether it is in the config: what is under way when a workspace goes must not bring it back."""
        return (workspace, KINDS[0]) in self._known

    def _forget(self, workspace: str) -> None:
        for metric in (
            self._polls,
            self._failures,
            self._skipped,
            self._durations,
            self._requests,
            self._request_durations,
            self._waits,
            self._retries,
            self._pauses,
            self._circuits,
            self._intervals,
            self._discoveries,
            self._discovery_failures,
            self._discovered,
        ):
            metric.remove_by_labels({"workspace": workspace})

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"baseten_exporter_{name}", f"{text}.", labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"baseten_exporter_{name}", f"{text}.", labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(
            f"baseten_exporter_{name}", f"{text}.", labels, buckets=buckets, registry=self.registry
        )
