"""The composition root: builds every part, applies a config to them, and stops them in order."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from exporter import __version__, budget
from exporter.baseten.client import Client, Connection
from exporter.baseten.errors import ApiError
from exporter.baseten.fetch import Api
from exporter.baseten.inventory import Inventory
from exporter.baseten.names import MetricNames
from exporter.baseten.selection import Wanted
from exporter.config import Config, ConfigError, Workspace, load
from exporter.logs import Redactor
from exporter.model import Target
from exporter.polling.discovery import Discovery
from exporter.polling.poller import Poller
from exporter.polling.scheduler import Scheduler
from exporter.store import Store
from exporter.telemetry import Telemetry
from exporter.web.pages import Pages
from exporter.web.routes import Parts, application
from exporter.web.server import Server

log = logging.getLogger(__name__)

_STRAGGLER_GRACE = 1.0
"""Seconds beyond the request timeout that a stop waits for polls in flight."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says, as far as the running exporter needs it."""

    config_file: Path
    telemetry_path: str = "/metrics"
    enable_lifecycle: bool = False


class Exporter:
    """All parts of one exporter. `load` reads the config: at the start, and again on every reload."""

    def __init__(
        self,
        load_config: Callable[[], Config],
        redactor: Redactor,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._load = load_config
        self._redactor = redactor
        self._clock = clock
        self._stop = threading.Event()
        self._changing = threading.Lock()
        self._started = False
        self._ready = False
        self._connections: dict[str, Connection] = {}
        self.discoveries: dict[str, Discovery] = {}
        self._targets: tuple[Target, ...] = ()
        self.telemetry = Telemetry()
        self.store = Store(clock)
        self.poller = Poller(self.store, self.telemetry, clock, self._stop, redactor.redact)
        self.scheduler = Scheduler(
            self.poller.poll, lambda target: self.telemetry.skipped(target.workspace, target.kind), clock
        )
        self._take(self._load())

    @property
    def targets(self) -> tuple[Target, ...]:
        """What is polled now: what the config names, and what was discovered."""
        return self._targets

    def reload(self) -> None:
        """Read the config again and take it whole; ConfigError, and nothing changed, where it is bad."""
        with self._changing:
            try:
                config = self._load()
            except ConfigError as error:
                self.telemetry.loaded(self._clock(), good=False)
                log.error("config not reloaded, the old one stays", extra={"problems": str(error)})  # noqa: TRY400
                raise
            self._take(config)
            log.info("config reloaded", extra=self._facts(self._targets))

    def _take(self, config: Config) -> None:
        self.config = config
        self.poller.apis = {workspace.name: self._api(workspace, config) for workspace in config.workspaces}
        self.poller.max_sample_age = config.poll.max_sample_age
        self.telemetry.watch(self.poller.apis)
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
            config.poll.concurrency,
            workspace.ca_file,
        )
        old = self.poller.apis.get(workspace.name)
        if old is not None and self._connections.get(workspace.name) == connection:
            return old
        workspace.key.on_value(self._redactor.add)
        self._connections[workspace.name] = connection
        names = old.names if old is not None else MetricNames(workspace.name)
        return Api(Client(connection, self.telemetry, self._stop.wait), names)

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
        discovery = Discovery(wanted, client, self.telemetry, self._clock, self._found, inventory)
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
        self.scheduler.retarget(self._targets, config.poll.interval, threads)

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
            "targets": len(targets),
            "workspaces": len(config.workspaces),
            "interval": f"{config.poll.interval:g}s",
            "requests_per_minute": round(budget.requests_per_minute(config, targets)),
        }


def wanted(workspace: Workspace) -> Wanted:
    """What the config of a workspace asks for, without how to connect."""
    return Wanted(
        workspace.name,
        workspace.targets,
        workspace.followed,
        workspace.discovery,
        workspace.metadata_labels,
    )


def run(settings: Settings, environ: Mapping[str, str], redactor: Redactor, listener: socket.socket) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. ConfigError if the config is bad."""
    exporter = Exporter(lambda: load(settings.config_file, environ), redactor)
    reload = exporter.reload if settings.enable_lifecycle else None
    pages = Pages(exporter.store, exporter.telemetry.registry)
    parts = Parts(exporter.store, pages, exporter.ready, exporter.scheduler.next_poll, time.time, reload)
    return serve(exporter, Server(application(parts, settings.telemetry_path)), listener)


def serve(exporter: Exporter, server: Server, listener: socket.socket) -> int:
    """Run the parts; on a signal stop them in order: polls, server, clients."""
    drained = threading.Event()

    def stop() -> None:
        if exporter.stop():
            drained.set()
        server.should_exit = True

    _handle_signals(stop, exporter, server)
    exporter.start()
    host, port = listener.getsockname()[:2]
    log.info("listening", extra={"host": host, "port": port})
    server.run(sockets=[listener])
    log.info("stopped")
    if not drained.is_set():
        os._exit(0)  # a poll in flight cannot be interrupted, and its thread would hold the exit
    exporter.close()
    return 0


def _handle_signals(stop: Callable[[], None], exporter: Exporter, server: Server) -> None:
    stopping = threading.Event()

    def on_stop(number: int, _: object) -> None:
        if stopping.is_set():  # asked twice: someone is in a hurry
            server.should_exit = server.force_exit = True
            return
        stopping.set()
        log.info("stopping", extra={"signal": signal.Signals(number).name})
        threading.Thread(target=stop, daemon=True).start()

    def on_reload(_: int, __: object) -> None:
        threading.Thread(target=_try_reload, args=(exporter,), daemon=True).start()

    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, on_stop)
    signal.signal(signal.SIGHUP, on_reload)


def _try_reload(exporter: Exporter) -> None:
    with suppress(ConfigError):  # said in the log and on the gauges
        exporter.reload()
