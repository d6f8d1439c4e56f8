"""Servers in processes of their own, and what the system says they use."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from types import MappingProxyType

from benchmarks.client import HOST, get

KEY = "benchmark-key"
PYTHON = (sys.executable, "-m")
KEY_VARIABLE = "BENCHMARK_KEY"
_LONGEST_START = 300.0
_NOTHING: Mapping[str, object] = MappingProxyType({})


class Running:
    """A process as seen from outside; Linux only."""

    def __init__(self, process: "subprocess.Popen[str]", ready: Mapping[str, object] = _NOTHING) -> None:
        self._process = process
        self._pid = process.pid
        self.ready = ready

    def wait_for(self, port: int, path: str) -> None:
        """Wait until it answers 200 there."""
        end = monotonic() + _LONGEST_START
        while monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._process.args!r} has ended")
            try:
                if get(port, path).status == 200:
                    return
            except OSError:  # not listening yet
                pass
            sleep(0.01)
        raise TimeoutError(f"no 200 from {path} within {_LONGEST_START:g} s")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    @property
    def cpu(self) -> float:
        """Seconds all its threads have run, to the nanosecond."""
        return time.clock_gettime((~self._pid << 3) | 2)  # as clock_getcpuclockid(3) makes it

    @property
    def resident(self) -> int:
        return resident(self._pid)


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that the process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def started(command: Sequence[str], environ: Mapping[str, str] = MappingProxyType({})) -> Iterator[Running]:
    """Start a command that says by itself, or by answering, when it is ready."""
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, env={**os.environ, **environ}) as it:
        try:
            yield Running(it)
        finally:
            _stop(it)


@contextmanager
def announced(command: Sequence[str]) -> Iterator[Running]:
    """Start a command whose first line of output, in JSON, is what it is ready with."""
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{' '.join(command)} did not start")
            yield Running(process, json.loads(line))
        finally:
            _stop(process)


@contextmanager
def simulator(*options: str, port: int = 0) -> Iterator[str]:
    """The simulated API without a rate limit; yields its URL."""
    command = [*PYTHON, "exporter.simulator", "--limit=0", f"--key={KEY}", f"--listen={HOST}:{port}"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            _stop(process)


@contextmanager
def exporter(config: Path, port: int) -> Iterator[Running]:
    """The exporter as it is installed; yields at once, before it answers."""
    options = [f"--config.file={config}", f"--web.listen-address={HOST}:{port}", "--log.level=error"]
    with started([*PYTHON, "exporter", "run", *options], {KEY_VARIABLE: KEY}) as running:
        yield running


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
