"""Runs the exporter as a server: from the command line's settings to the exit status, signals in between."""

import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from exporter.app import Exporter
from exporter.config import ConfigError, load
from exporter.logs import Redactor
from exporter.sharding import WHOLE, Shard
from exporter.web.live import LiveWebConfig
from exporter.web.pages import Pages
from exporter.web.routes import Parts, application
from exporter.web.server import Server

log = logging.getLogger(__name__)

_GARBAGE = (100_000, 50, 100)
"""Objects and runs before the collector looks: most of what lives here lives from poll to poll, in no cycle,
and Python's own thresholds would have it all looked through several times a second."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says, as far as the running exporter needs it."""

    config_file: Path
    telemetry_path: str = "/metrics"
    enable_lifecycle: bool = False
    web_config_file: Path | None = None
    shard: Shard = WHOLE


def run(settings: Settings, environ: Mapping[str, str], redactor: Redactor, listener: socket.socket) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. ConfigError if the config is bad."""
    gc.set_threshold(*_GARBAGE)
    exporter = Exporter(lambda: load(settings.config_file, environ), redactor, shard=settings.shard)
    reload = exporter.reload if settings.enable_lifecycle else None
    pages = Pages(exporter.store, exporter.telemetry.registry)
    parts = Parts(
        exporter.store,
        pages,
        exporter.ready,
        exporter.scheduler.next_poll,
        time.time,
        reload,
        exporter.overview,
        settings.shard,
    )
    file = settings.web_config_file
    web = LiveWebConfig(file, exporter.telemetry) if file else None
    return serve(exporter, Server(application(parts, settings.telemetry_path, web), web), listener)


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
