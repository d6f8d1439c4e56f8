"""Shards as real processes against one simulator: together they are one exporter, and no two the same."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.simulator import Simulator, World
from tests.conftest import _answers, _free_port, running

if TYPE_CHECKING:
    from tests.conftest import Eventually

pytestmark = pytest.mark.xdist_group("shards")

KEY = "s3cret-k3y"

CONFIG = """
poll: {{interval: 30s, timeout: 10s}}
workspaces:
  - name: team
    api_key_file: key
    api_url: {url}
    requests_per_second: 100
    models:
      - {{model_id: q7chat32, deployment_id: w5prod01, labels: {{tier: gold}}}}
    discovery: {{models: {{}}, loops: {{scope: org}}}}
"""

Page = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def api() -> Iterator[Simulator]:
    with Simulator(World.demo(), key=KEY, limit=None) as simulator:
        yield simulator


@pytest.fixture(scope="module")
def config(api: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    (folder / "key").write_text(KEY)
    file = folder / "config.yaml"
    file.write_text(CONFIG.format(url=api.url))
    return file


def page(url: str) -> Page:
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    samples = [sample for family in families for sample in family.samples]
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}


def pages(config: Path, total: int, eventually: "Eventually") -> list[Page]:
    """The page of every shard, each a process, once all are ready."""
    urls = [f"http://127.0.0.1:{_free_port()}" for _ in range(total)]
    with ExitStack() as stack:
        for index, url in enumerate(urls):
            command = [
                *(sys.executable, "-m", "exporter", "run", f"--config.file={config}", "--log.level=error"),
                f"--web.listen-address={url.removeprefix('http://')}",
                *(f"--shard=baseten-exporter-{index}", f"--total-shards={total}"),
            ]
            stack.enter_context(running(command))
        for index, url in enumerate(urls):
            eventually(lambda url=url: _answers(f"{url}/-/ready"))  # type: ignore[misc] # a bound loop variable
            status = httpx.get(f"{url}/api/v1/targets").json()
            assert (status["shard"], status["total_shards"]) == (index, total)
        return [page(url) for url in urls]


def data(shard: Page) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """The series of deployments: those of the exporter itself are every shard's own."""
    about = ("baseten_model_", "baseten_loops_", "baseten_instance_", "baseten_exporter_target_")
    return {series for series in shard if series[0].startswith(about)}


@pytest.fixture(scope="module")
def whole(config: Path, eventually: "Eventually") -> Page:
    (alone,) = pages(config, 1, eventually)
    return alone


@pytest.fixture(scope="module", params=[4, 5])
def shards(request: pytest.FixtureRequest, config: Path, eventually: "Eventually") -> list[Page]:
    return pages(config, request.param, eventually)


def test_together_shards_are_the_one_exporter_and_no_two_overlap(whole: Page, shards: list[Page]) -> None:
    series = Counter(name for shard in shards for name in data(shard))
    assert series.keys() == data(whole)
    assert set(series.values()) == {1}
    assert all(data(shard) for shard in shards)


def test_a_shard_tells_which_it_is_and_how_much_it_polls(whole: Page, shards: list[Page]) -> None:
    info, targets = "baseten_exporter_shard_info", ("baseten_exporter_shard_targets", ())
    for index, shard in enumerate(shards):
        told = [dict(labels) for name, labels in shard if name == info]
        assert told == [{"shard": str(index), "total_shards": str(len(shards))}]
        assert shard[targets] == len([name for name, _ in shard if name == "baseten_exporter_target_up"])
    assert sum(shard[targets] for shard in shards) == whole[targets]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shard=4"], ": 4 is not one of 4 shards, which count from 0 to 3"),
        (["--shard=x"], ": 'x' is neither a number nor a name that ends in one, such as exporter-0"),
        ([], " is missing: which of 4 this is, from 0 to 3"),
    ],
    ids=["beyond the total", "no number", "missing"],
)
def test_a_shard_that_cannot_be_is_refused(config: Path, options: list[str], message: str) -> None:
    command = [sys.executable, "-m", "exporter", f"--config.file={config}", "--total-shards=4", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"--shard{message}\n")
