"""The documentation says what the code does."""

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.config import load
from exporter.simulator import Simulator, World
from tools import metrics_page

ROOT = Path(__file__).parent.parent
EXAMPLE = re.compile(
    r"```yaml\n(?P<yaml>(?:discovery|models):.*?)```\n\n(?P<found>(?:    [^\n]*\n)+)", re.DOTALL
)
EXAMPLES = list(EXAMPLE.finditer((ROOT / "docs" / "discovery.md").read_text(encoding="utf-8")))


def test_metrics_page_is_the_one_the_tables_give() -> None:
    assert metrics_page.PAGE.read_text(encoding="utf-8") == metrics_page.page(), "run `make docs`"


def test_the_config_in_the_readme_loads(tmp_path: Path) -> None:
    (config,) = re.findall(
        r"```yaml\n(workspaces:.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
    path = tmp_path / "config.yaml"
    path.write_text(config)
    assert load(path, {"BASETEN_API_KEY": "key"}).targets


def test_every_link_between_the_pages_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.fixture(scope="module")
def api() -> Iterator[Simulator]:
    with Simulator(World.demo(), key="docs-key", limit=None) as simulator:
        yield simulator


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["yaml"].split("\n")[1].strip())
def test_an_example_of_discovery_selects_what_the_page_says(
    example: re.Match[str], api: Simulator, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    workspace = (
        f"  - name: team\n    api_key_env: KEY\n    api_url: {api.url}\n    requests_per_second: 100\n"
    )
    path.write_text(f"workspaces:\n{workspace}{textwrap.indent(example['yaml'], '    ')}")
    command = [sys.executable, "-m", "exporter", "check", "--live", f"--config.file={path}"]
    done = subprocess.run(  # noqa: PLW1510 - the status is asserted below
        command, env={**os.environ, "KEY": api.key}, cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    targets = done.stdout.partition("targets: ")[0].splitlines()
    assert targets == [line.strip() for line in example["found"].splitlines()]


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 5


def test_every_test_that_holds_a_promise_is_there() -> None:
    """A promise without its test would be a claim."""
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", (ROOT / "docs/reliability.md").read_text("utf-8"))
    there = {
        (path.name, node.name)
        for path in (ROOT / "tests").glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(named) > 40
    assert [name for name in named if name not in there] == []
