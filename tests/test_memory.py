"""What answers cost in memory at their worst: less than what the chart allows a pod, and nothing for long."""

import gc
import logging
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

import httpx
import pytest
import yaml

from exporter.baseten.answers import MAX_VALUES
from exporter.baseten.replies import MAX_BODY
from exporter.simulator import FAULTS, Fault, Simulator, Wire, World
from exporter.simulator.faults import body
from tests.conftest import _answers, _free_port, running
from tests.helpers_bench import CHAT, TRAINER, Bench

if TYPE_CHECKING:
    from tests.conftest import Eventually

ROOT = Path(__file__).parents[1]
CHART = ROOT / "helm" / "baseten-exporter" / "values.yaml"
IMAGE = ROOT / "Dockerfile"
MIB = 2**20

TARGETS = 32
"""As many as are polled at once by default."""

CONFIG = """
poll: {{interval: 6s, timeout: 6s, stale_after: 1m}}
workspaces:
  - name: team
    api_key_file: key
    api_url: {url}
    requests_per_second: 100
    discovery: {{models: {{}}, loops: {{scope: org}}}}
"""


def named(length: int, series: int, different: int) -> Fault:
    """One metric of a long name, with many series, of which so many are different."""
    sets = ",".join(f'{{"n":"{number % different}"}}' for number in range(series))
    values = ",".join(["1.5"] * series)
    text = (
        f'{{"metric_descriptors":[{{"name":"{"x" * length}","kind":"GAUGE","label_sets":[{sets}]}}],'
        f'"metric_values":[{{"values":[[{values}]]}}]}}'
    )
    return body(text.encode())


DENSE = b'{"a":"b"},'
WORST: dict[str, Fault] = {
    **{name: FAULTS[name] for name in ("gzip bomb", "dense json", "huge body")},
    "as large as may be": body(b'{"metric_descriptors":[],"metric_values":[]}'.ljust(MAX_BODY)),
    "as full as may be, and read twice for its NaN": body(
        b'{"metric_descriptors":[{"name":"a","label_sets":[%s{}]}],"metric_values":[],"x":["\\ud83d\\ude00",NaN,"%s"]}'
        % (DENSE * (MAX_VALUES // 2 - 20), b"x" * (MAX_BODY - 5 * MAX_VALUES - 200))
    ),
    "one long text, four bytes a letter in memory": body(b'["%s\\ud83d\\ude00"]' % (b"x" * (MAX_BODY - 20))),
    "a long name on many series": named(20_000, 9_000, 9_000),
    "a long name, many times the same": named(20_000, 50_000, 1),
}


def limit() -> int:
    """Bytes."""
    text = yaml.safe_load(CHART.read_text())["resources"]["limits"]["memory"]
    assert text.endswith("Mi")
    return int(text.removesuffix("Mi")) * MIB


def peak(pid: int) -> int:
    """The most memory a process ever had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kib) * 1024


def polled(url: str) -> float:
    page = httpx.get(f"{url}/metrics").text
    name = "baseten_exporter_polls_total{"
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))


def together(fault: Fault, met: threading.Event) -> Fault:
    """The fault for as many requests at once as there are targets, or later for what has come in a while."""
    gate = threading.Barrier(TARGETS, met.set)

    def act(wire: Wire) -> None:
        with suppress(threading.BrokenBarrierError):
            gate.wait(5)
        fault(wire)

    return act


@pytest.mark.parametrize("fault", WORST)
def test_no_answer_takes_more_memory_than_a_pod_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: "Eventually", fault: str
) -> None:
    for name, value in re.findall(r"(MALLOC_\w+)=(\w+)", IMAGE.read_text()):
        monkeypatch.setenv(name, value)
    url = f"http://127.0.0.1:{_free_port()}"
    config = tmp_path / "config.yaml"
    (tmp_path / "key").write_text("s3cret-k3y")
    with Simulator(World.sized(TARGETS, nodes=1, gpus=1), key="s3cret-k3y", limit=None) as api:
        config.write_text(CONFIG.format(url=api.url))
        met = threading.Event()
        api.fail(
            "/metrics", together(WORST[fault], met)
        )  # the first polls are spread over three seconds only
        command = [sys.executable, "-m", "exporter", "run", f"--config.file={config}", "--log.level=error"]
        with running([*command, f"--web.listen-address={url.removeprefix('http://')}"]) as process:
            eventually(lambda: _answers(f"{url}/-/healthy"))
            eventually(lambda: polled(url) >= TARGETS, 60)
            most = peak(process.pid)
    assert met.is_set()
    assert most < limit()


@contextmanager
def uncollected() -> Iterator[list[object]]:
    """What would be left to the garbage collector of all that happens meanwhile."""
    left: list[object] = []
    gc.collect()
    gc.disable()
    logging.disable()  # pytest keeps every record, and so the errors in it
    try:
        yield left
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("fault", [*FAULTS, "nobody listens"])
def test_a_failure_goes_with_all_that_was_in_it(tmp_path: Path, fault: str) -> None:
    """No cycle keeps frames and their bodies: the collector looks rarely, and not at how large they are."""
    with Simulator(World.demo(), limit=None) as api:
        bench = Bench(tmp_path / "config.yaml", api)
        bench.reload(bench.workspace(models=CHAT, loops=TRAINER, discovery="{models: {}, loops: {}}"))
        bench.exporter.list_once()
        bench.poll_all()
        with uncollected() as left:
            if fault in FAULTS:
                api.fail("", fault)
            else:
                api.__exit__(None, None, None)
            for _ in range(2):  # what is kept of the first failure is let go for the second
                bench.exporter.list_once()
                bench.poll_all()
        bench.exporter.close()
    held = (BaseException, FrameType, TracebackType)
    assert [each for each in left if isinstance(each, held)] == []
