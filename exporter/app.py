"""The composition root: builds every part, applies a config to them, and stops them in order."""

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from exporter import __version__, budget, overview
from exporter.baseten.client import Client, Connection
from exporter.baseten.errors import ApiError
from exporter.baseten.fetch import Api, Limits
from exporter.baseten.inventory import Inventory
from exporter.baseten.names import MetricNames
from exporter.baseten.selection import Wanted
from exporter.config import Config, ConfigError, Workspace
from exporter.logs import Redactor
from exporter.model import Target
from exporter.polling.discovery import Discovery
from exporter.polling.poller import Poller
from exporter.polling.scheduler import Scheduler
from exporter.sharding import WHOLE, Shard
from exporter.store import Store
from exporter.telemetry import Telemetry
from exporter.web.status import WorkspaceStatus

log = logging.getLogger(__name__)

_STRAGGLER_GRACE = 1.0
"""Seconds beyond the request timeout that a stop waits for polls in flight."""


class Exporter:
    """All parts of one exporter.

    `load_config` reads the config: at the start, and again on every reload. `shard` is its part of it.
    """

    def __init__(
        self,
        load_config: Callable[[], Config],
        redactor: Redactor,
        clock: Callable[[], float] = time.time,
        shard: Shard = WHOLE,
    ) -> None:
        self._load_config = load_config
        self._shard = shard
        self._redactor = redactor
        self._clock = clock
        self._stop = threading.Event()
        self._reloading = threading.Lock()  # one after the other, so that the file read last wins
        self._changing = threading.Lock()  # for as long as the parts do not fit together
        self._started = False
        self._ready = False
        self._warnings: list[str] = []
        self._connections: dict[str, Connection] = {}
        self.discoveries: dict[str, Discovery] = {}
        self._targets: tuple[Target, ...] = ()
        self.telemetry = Telemetry(clock)
        self.store = Store(clock)
        self.poller = Poller(self.store, self.telemetry, clock, self._stop, redactor.redact)
        self.scheduler = Scheduler(
            self.poller.poll,
            lambda target: self.telemetry.skipped(target.workspace, target.kind, "overlap"),
            clock,
        )
        self.telemetry.shard(shard.index, shard.total)
        self._take(self._load())

    @property
    def targets(self) -> tuple[Target, ...]:
        """What is polled now: what the config names, and what was discovered."""
        return self._targets

    def reload(self) -> None:
        """Read the config again and take it whole; ConfigError, and nothing changed, where it is bad."""
        with self._reloading:
            try:
                config = self._load()
            except ConfigError as error:
                self.telemetry.loaded(self._clock(), good=False)
                log.error("config not reloaded, the old one stays", extra={"problems": str(error)})  # noqa: TRY400
                raise
            with self._changing:
                self._take(config)
            log.info("config reloaded", extra=self._facts(self._targets))

    def _load(self) -> Config:
        return part(self._load_config(), self._shard)

    def _take(self, config: Config) -> None:
        self.config = config
        self.poller.apis = {workspace.name: self._api(workspace, config) for workspace in config.workspaces}
        self._connections = {name: self._connections[name] for name in self.poller.apis}
        self.poller.limits = Limits(config.poll.max_sample_age, config.poll.max_series_per_target)
        self.telemetry.watch(self.poller.apis)
        self.telemetry.circuits({name: partial(self._is_cut_off, name) for name in self.poller.apis})
        self._discover(config)
        self._apply()
        self.telemetry.loaded(self._clock(), good=True)

    def _api(self, workspace: Workspace, config: Config) -> Api:
        """The workspace's client: the one there is, unless how to connect has changed."""
        connection = Connection(
            workspace.name,
            workspace.api_url,
            workspace.key,
            workspace.requests_per_second,
            config.poll.timeout,
            config.poll.interval,
            workspace.ca,
        )
        old, last = self.poller.apis.get(workspace.name), self._connections.get(workspace.name)
        if old is not None and last == connection:
            return old
        workspace.key.on_value(self._redactor.add)
        self._connections[workspace.name] = connection
        same_api = last is not None and last.url == connection.url
        throttles = old.client.throttles if old is not None and same_api else None
        client = Client(connection, self.telemetry, self._stop.wait, throttles)
        return Api(client, old.names if old is not None else MetricNames(workspace.name))

    def _is_cut_off(self, workspace: str) -> bool:
        """Whether nothing gets through to a workspace, as far as its present client knows."""
        api = self.poller.apis.get(workspace)
        return api is not None and api.client.is_cut_off()

    def _discover(self, config: Config) -> None:
        """Have everything listed that the config asks for; what was listed before is known meanwhile."""
        old, self.discoveries = self.discoveries, {}
        for workspace in config.workspaces:
            asked, client = wanted(workspace), self.poller.apis[workspace.name].client
            known = old.get(workspace.name)
            if known is not None and (known.wanted, known.client) == (asked, client):
                self.discoveries[workspace.name] = old.pop(workspace.name)
            else:
                inventory = known.inventory if known is not None and known.attempted else None
                self.discoveries[workspace.name] = self._discovery(asked, client, inventory)
        for replaced in old.values():
            replaced.stop()

    def _discovery(self, wanted: Wanted, client: Client, inventory: Inventory | None) -> Discovery:
        discovery = Discovery(
            wanted, client, self.telemetry, self._clock, self._found, inventory, self._shard
        )
        if self._started:
            discovery.start()
        return discovery

    def _found(self, discovery: Discovery) -> None:
        with self._changing:
            if self.discoveries.get(discovery.wanted.workspace) is not discovery:  # replaced by a reload
                return
            before = {target.key for target in self._targets}
            self._apply()
            if {target.key for target in self._targets} != before:
                log.info("targets listed", extra=self._facts(self._targets))

    def _apply(self) -> None:
        """Poll, keep and describe what is wanted of what is known."""
        config, discoveries = self.config, self.discoveries.values()
        self._targets = tuple(target for each in discoveries for target in each.targets)
        self.store.retarget(self._targets, config.poll.stale_after)
        self.store.describe({each.wanted.workspace: each.description for each in discoveries})
        threads = dict.fromkeys(self.poller.apis, config.poll.concurrency)
        intervals = budget.intervals(config, self._targets)
        self.scheduler.retarget(self._targets, config.poll.interval, intervals, threads)
        self.telemetry.intervals(config.poll.interval, intervals)
        self.telemetry.polling(len(self._targets))
        self._warn(budget.warnings(config, intervals))

    def _warn(self, warnings: list[str]) -> None:
        """Log what was not said before; what goes and comes back is news again."""
        for warning in warnings:
            if warning not in self._warnings:
                log.warning(warning)
        self._warnings = warnings

    def start(self) -> None:
        self._started = True
        self.scheduler.start()
        for discovery in self.discoveries.values():
            discovery.start()
        log.info("started", extra={"version": __version__, **self._facts(self.config.targets)})

    def list_once(self) -> dict[str, list[ApiError]]:
        """List everything now, on this thread; return by workspace what could not be listed."""
        listing = [each for each in self.discoveries.values() if each.wanted.lists()]
        return {each.wanted.workspace: each.run_once() for each in listing}

    def overview(self) -> tuple[WorkspaceStatus, ...]:
        """The state of every workspace, for the status page."""
        redact, now = self._redactor.redact, self._clock()
        with self._changing:
            apis, discoveries = self.poller.apis, self.discoveries
            return tuple(overview.workspaces(self.config, self._targets, apis, discoveries, redact, now))

    def ready(self) -> bool:
        """Whether everything was listed and every target polled once, with or without success."""
        # Once is enough: targets that come later must not take a running exporter out of its Service.
        listed = all(each.attempted for each in self.discoveries.values())
        self._ready = self._ready or (listed and self.store.ready())
        return self._ready

    def stop(self) -> bool:
        """Start no more polls, wait for those in flight; False if one outlived its timeout."""
        self._stop.set()
        for discovery in self.discoveries.values():
            discovery.stop()
        drain = threading.Thread(target=self.scheduler.stop, daemon=True)
        drain.start()
        drain.join(self.config.poll.timeout + _STRAGGLER_GRACE)
        return not drain.is_alive()

    def close(self) -> None:
        for api in self.poller.apis.values():
            api.client.close()

    def _facts(self, targets: Collection[Target]) -> dict[str, object]:
        config = self.config
        return {
            **({"shard": f"{self._shard.index}/{self._shard.total}"} if self._shard.total > 1 else {}),
            "targets": len(targets),
            "workspaces": len(config.workspaces),
            "interval": f"{config.poll.interval:g}s",
            "requests_per_minute": round(budget.requests_per_minute(config, targets)),
        }


def part(config: Config, shard: Shard) -> Config:
    """The config with a shard's part of what each workspace may ask."""
    workspaces = (
        replace(each, requests_per_second=each.requests_per_second / shard.total)
        for each in config.workspaces
    )
    return replace(config, workspaces=tuple(workspaces))


def wanted(workspace: Workspace) -> Wanted:
    """What the config of a workspace asks for, without how to connect."""
    return Wanted(
        workspace.name,
        workspace.targets,
        workspace.followed,
        workspace.discovery,
        workspace.metadata_labels,
    )
