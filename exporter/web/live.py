"""The web config in use, which follows its files."""

import logging
from pathlib import Path
from typing import Protocol

from exporter.config import ConfigError, Problem
from exporter.web.config import WebConfig, load, stamp

log = logging.getLogger(__name__)


class Report(Protocol):
    """Who is told how reading went, and when the certificate expires (in seconds since the epoch)."""

    def web_config(self, *, good: bool) -> None: ...

    def certificate(self, expiry: float) -> None: ...


class LiveWebConfig:
    """What a web config file says, read again when it or a file that it names has changed."""

    def __init__(self, path: Path, report: Report) -> None:
        """ConfigError where there is nothing good to begin with."""
        self._path = path
        self._report = report
        self._take(load(path))

    def __call__(self) -> WebConfig:
        return self._config

    def refresh(self) -> bool:
        """Whether another one is in use now. A bad one changes nothing, is logged once, and tried again."""
        if not self._complaint and not self._changed():
            return False
        try:
            config = self._next()
        except ConfigError as error:
            self._complain(str(error))
            return False
        self._take(config)
        return True

    def _changed(self) -> bool:
        return any(stamp(path) != before for path, before in self._config.files.items())

    def _next(self) -> WebConfig:
        config = load(self._path)
        if (config.context is None) != (self._config.context is None):
            message = "TLS is turned on and off by a restart only: restart, or put it back"
            raise ConfigError([Problem("tls_server_config", message)])
        return config

    def _take(self, config: WebConfig) -> None:
        self._config = config
        self._complaint = ""
        self._report.web_config(good=True)
        if config.expiry is not None:
            self._report.certificate(config.expiry)
        facts = {"file": self._path, "tls": config.context is not None, "users": len(config.users)}
        log.info("web config loaded", extra=facts)

    def _complain(self, complaint: str) -> None:
        self._report.web_config(good=False)
        if complaint != self._complaint:
            facts = {"file": self._path, "problems": complaint}
            log.error("web config not reloaded, the old one stays", extra=facts)
        self._complaint = complaint
