"""An exporter with its config file and its pages, in this process or as one of its own."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from exporter.app import Exporter
from exporter.config import load
from exporter.exposition import Format
from exporter.logs import Redactor
from exporter.simulator import Simulator
from exporter.simulator.api import Request
from exporter.store import Entry
from exporter.web.config import WebConfig
from exporter.web.door import Door
from exporter.web.pages import Pages
from exporter.web.routes import Parts, application
from tests.conftest import _free_port

KEY = "simulator-key"
CHAT = "{model_id: q7chat32, deployment_id: w5prod01}"
CODE = "{model_id: c0der480, deployment_id: w6prod02}"
TRAINER = "{deployment_id: tr2x4sft}"
POLL = "{interval: 500ms, timeout: 500ms, concurrency: 4, stale_after: 1h}"

Page = tuple[str, Mapping[str, str]]
"""A path, and the headers to ask for it with."""

PAGES: tuple[Page, ...] = (
    *(("/metrics", {"accept": each.value}) for each in Format),
    ("/", {}),
    ("/api/v1/targets", {}),
)


def workspace(
    url: str, name: str = "team", /, *, models: object = CHAT, loops: object = "", **more: object
) -> str:
    """A workspace of a config file; a key that is None is left out."""
    keys = {
        "api_key_env": "KEY",
        "api_url": url,
        "requests_per_second": 100,
        "metadata_labels": [],
        "models": f"[{models}]",
        "loops": f"[{loops}]",
        **more,
    }
    lines = [f"    {key}: {value}\n" for key, value in keys.items() if value is not None]
    return "".join([f"  - name: {name}\n", *lines])


def config(*workspaces: str, poll: str = POLL) -> str:
    return f"poll: {poll}\nworkspaces:\n{''.join(workspaces)}"


def listen(api: Simulator) -> list[Request]:
    """What is asked for from now on; what is answered stays as it is."""
    asked: list[Request] = []
    api.fail(asked.append, "500")  # None is no decision to fail
    return asked


class Bench:
    """A config file, and an exporter that reads it."""

    def __init__(
        self,
        path: Path,
        api: Simulator,
        *workspaces: str,
        poll: str = POLL,
        redactor: Redactor | None = None,
    ) -> None:
        self.path = path
        self.api = api
        self.environ = {"KEY": api.key, "OTHER_KEY": api.key, "WRONG_KEY": "wrong"}
        self.redactor = redactor or Redactor()
        self.write(*(workspaces or [self.workspace()]), poll=poll)
        self.exporter = Exporter(lambda: load(path, self.environ), self.redactor)
        self.store, self.registry = self.exporter.store, self.exporter.telemetry.registry
        self._parts = Parts(
            self.store,
            Pages(self.store, self.registry),
            self.exporter.ready,
            self.exporter.scheduler.next_poll,
            time.time,
            self.exporter.reload,
            self.exporter.overview,
        )
        self._open_door = self.door()

    def door(self, web: Callable[[], WebConfig] | None = None) -> Door:
        """All routes, behind a door as `web` has it."""
        return application(self._parts, "/metrics", web)

    def workspace(
        self, name: str = "team", /, *, models: object = CHAT, loops: object = "", **more: object
    ) -> str:
        return workspace(self.api.url, name, models=models, loops=loops, **more)

    def write(self, *workspaces: str, poll: str = POLL) -> None:
        self.path.write_text(config(*workspaces, poll=poll))

    def reload(self, *workspaces: str, poll: str = POLL) -> None:
        self.write(*workspaces, poll=poll)
        self.exporter.reload()

    def poll_all(self) -> None:
        for target in self.exporter.targets:
            self.exporter.poller.poll(target)

    def entries(self) -> dict[str, Entry]:
        return {str(entry.target): entry for entry in self.store.view()[1]}

    def next_polls(self) -> dict[str, float | None]:
        return {str(target): self.exporter.scheduler.next_poll(target) for target in self.exporter.targets}

    def own(self, name: str, **labels: str) -> float | None:
        """The value of one of the exporter's own metrics."""
        return self.registry.get_sample_value(f"baseten_exporter_{name}", labels)

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        """What one of the exporter's own counters has, by the values of its labels."""
        samples = [each for metric in self.registry.collect() for each in metric.samples]
        full = f"baseten_exporter_{name}_total"
        return {tuple(each.labels.values()): each.value for each in samples if each.name == full}

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, door: Door | None = None
    ) -> httpx.Response:
        return asyncio.run(_ask(door or self._open_door, method, path, headers or {}))

    def pages(self) -> str:
        """Everything that it shows."""
        return "".join(self.ask("GET", path, headers).text for path, headers in PAGES)


async def _ask(door: Door, method: str, path: str, headers: Mapping[str, str]) -> httpx.Response:
    transport = httpx.ASGITransport(door)
    async with httpx.AsyncClient(transport=transport, base_url="http://exporter") as client:
        return await client.request(method, path, headers=headers)


class Process:
    """`run` as a process of its own, and what it has written."""

    def __init__(self, config_file: Path, *flags: str, secure: bool = False, **environ: str) -> None:
        self.address = f"127.0.0.1:{_free_port()}"
        self.client = httpx.Client(base_url=f"http{'s' * secure}://{self.address}", verify=False)  # noqa: S501
        self._output = config_file.with_name("output")
        command = [sys.executable, "-m", "exporter", f"--config.file={config_file}"]
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [*command, f"--web.listen-address={self.address}", *flags],
                env=os.environ | environ,
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.client.request(method, path, headers=headers)

    def ready(self) -> bool:
        try:
            return self.ask("GET", "/-/ready").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def targets(self) -> dict[str, str]:
        """The state of every target, by the id of its deployment."""
        targets = self.ask("GET", "/api/v1/targets").json()["targets"]
        return {each["deployment_id"]: each["state"] for each in targets}

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def output(self) -> str:
        return self._output.read_text()

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0
