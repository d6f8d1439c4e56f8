"""The exporter as a process of its own: its config and keys on disk, its routes, and what it holds."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx

from tests.soak.fleet import LISTED, NAMED, Expected

T = TypeVar("T")

MARK = "soak-secret"
"""Stands in every key, so that a leak of any shows."""

_PATIENCE = 120.0
"""Seconds that anything is waited for at most, on a machine that does other things as well."""


def eventually(what: str, ask: Callable[[], T], seconds: float = _PATIENCE) -> T:
    """Ask until the answer is truthy; TimeoutError says what did not come."""
    end = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)
    return answer


@dataclass(frozen=True)
class Setting:
    """What the config says that changes during a run; durations in seconds."""

    interval: float
    timeout: float
    stale_after: float
    listing: float
    concurrency: int
    rate: int = 100
    generation: int = 0

    @property
    def at_rest(self) -> "Setting":
        """Polls and listings so rare that there is none, and time enough for those that are still due."""
        return replace(self, interval=3600, timeout=10, stale_after=7200, listing=3600)

    @property
    def labels(self) -> dict[str, str]:
        """Of the targets that the config names."""
        return {"generation": str(self.generation)}


class Usage(NamedTuple):
    """`resident` in bytes."""

    resident: int
    threads: int
    sockets: int


class Keys:
    """The key files, as Kubernetes has them: links through `..data`, which is swapped as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = 0
        self.present = {name: self.new() for name in (NAMED, LISTED)}
        self.used = set(self.present.values())
        folder.mkdir()
        self._swap()
        for name in self.present:
            (folder / name).symlink_to(f"..data/{name}")

    def new(self) -> str:
        return f"{MARK}-{secrets.token_hex(8)}/+%"

    def rotate(self, workspace: str, key: str, *, in_place: bool) -> None:
        """Give a workspace a new key: into the file that is there, or by swapping the folder."""
        self.present[workspace] = key
        self.used.add(key)
        if in_place:
            (self._folder / workspace).write_text(f"{key}\n")
        else:
            self._swap()

    def _swap(self) -> None:
        self._turn += 1
        version = self._folder / f"..{self._turn}"
        version.mkdir()
        for name, key in self.present.items():
            (version / name).write_text(f"{key}\n")
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self._folder / "..data")


class Exporter:
    """`python -m exporter run` at debug level, its log in a file."""

    def __init__(self, folder: Path, urls: Mapping[str, str], targets: list[Expected]) -> None:
        self._config = folder / "config.yaml"
        self._urls = urls
        self._targets = targets
        self.log = folder / "log"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def configure(self, setting: Setting) -> None:
        self._config.write_text(json.dumps(self._document(setting)))

    def spoil(self, text: str) -> None:
        self._config.write_text(text)

    def start(self) -> None:
        flags = [f"--config.file={self._config}", f"--web.listen-address=127.0.0.1:{self.port}"]
        command = [sys.executable, "-m", "exporter", "run", *flags, "--log.level=debug"]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--web.enable-lifecycle"], stdout=log, stderr=subprocess.STDOUT
            )

    def stop(self) -> int:
        """The exit status after a SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def hangup(self) -> None:
        self._process.send_signal(signal.SIGHUP)

    def reload(self) -> int:
        return httpx.post(f"{self.url}/-/reload", timeout=_PATIENCE).status_code

    def ready(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"the exporter has ended: {self.log.read_text()[-2000:]}")
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=_PATIENCE).status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str, **query: Any) -> str:
        answer = httpx.get(self.url + path, params=query, timeout=_PATIENCE)
        answer.raise_for_status()
        return answer.text

    def targets(self) -> list[dict[str, Any]]:
        """What the JSON route says of each."""
        told: list[dict[str, Any]] = json.loads(self.get("/api/v1/targets"))["targets"]
        return told

    def usage(self) -> Usage:
        proc = Path(f"/proc/{self._process.pid}")
        resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return Usage(resident, len(list((proc / "task").iterdir())), _sockets(proc / "fd"))

    def _document(self, setting: Setting) -> dict[str, Any]:
        return {
            "poll": {
                "interval": _duration(setting.interval),
                "timeout": _duration(setting.timeout),
                "concurrency": setting.concurrency,
                "stale_after": _duration(setting.stale_after),
                "max_series_per_target": 2000,
            },
            "workspaces": [
                {**self._workspace(NAMED, setting), **self._named(setting)},
                {**self._workspace(LISTED, setting), "discovery": _discovery(setting)},
            ],
        }

    def _workspace(self, name: str, setting: Setting) -> dict[str, Any]:
        return {
            "name": name,
            "api_key_file": f"keys/{name}",
            "api_url": self._urls[name],
            "requests_per_second": setting.rate,
        }

    def _named(self, setting: Setting) -> dict[str, Any]:
        models = [each for each in self._targets if each.mode != "loops"]
        trainers = [each for each in self._targets if each.mode == "loops"]
        return {
            "models": [
                {
                    "model_id": each.labels["model_id"],
                    "deployment_id": each.labels["deployment_id"],
                    "mode": each.mode,
                    "labels": setting.labels,
                }
                for each in models
            ],
            "loops": [
                {"deployment_id": each.labels["deployment_id"], "labels": setting.labels} for each in trainers
            ],
        }


def ids(told: Mapping[str, Any]) -> tuple[str, str, str]:
    """Workspace, model (empty for a trainer) and deployment of a target of the JSON route."""
    return (told["workspace"], told["model_id"] or "", told["deployment_id"])


def seconds(moment: str | None) -> float:
    """A time of the JSON route in seconds since the epoch; 0 for never."""
    return datetime.fromisoformat(moment).timestamp() if moment else 0.0


def _discovery(setting: Setting) -> dict[str, Any]:
    return {"interval": _duration(setting.listing), "models": {}, "loops": {"scope": "org"}}


def _duration(length: float) -> str:
    return f"{length * 1000:.0f}ms"


def _sockets(folder: Path) -> int:
    links = []
    for each in folder.iterdir():
        try:
            links.append(str(each.readlink()))
        except FileNotFoundError:  # closed since
            continue
    return sum(link.startswith("socket:") for link in links)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
