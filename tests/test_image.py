"""The image as far as it can be built without an engine, and the files around it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from exporter import __version__
from exporter.config import load

if TYPE_CHECKING:
    from tests.conftest import Eventually

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE = [ROOT / "compose.yaml", DEPLOY / "compose.live.yaml"]

pytestmark = pytest.mark.xdist_group("image")  # one worker builds, once


def _program(name: str) -> str:
    """A program of the extra `ops` or of the system; a skip where there is none, unless required."""
    here = Path(sys.executable).parent
    found: str | None = shutil.which(name, path=f"{here}{os.pathsep}{os.environ['PATH']}")
    if found is None and os.environ.get("REQUIRE_SERVERS") == "1":
        pytest.fail(f"{name} is not installed, and REQUIRE_SERVERS=1")
    return found or pytest.skip(f"{name} is not installed")


Word = str | Path


def _run(*command: Word, **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    output: str = done.stdout
    assert done.returncode == 0, output + done.stderr
    return output


class Dockerfile:
    """Its instructions, continued lines joined."""

    def __init__(self) -> None:
        text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
        lines = (line for line in text.splitlines() if line and not line.startswith("#"))
        self._all = [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]

    def each(self, name: str) -> list[str]:
        return [rest.strip() for instruction, rest in self._all if instruction == name]

    def command(self, name: str) -> list[str]:
        """The words of the last such instruction, which must be in exec form: no shell takes part."""
        words: list[str] = json.loads("[" + self.each(name)[-1].partition("[")[2])
        return words


@pytest.fixture(scope="module")
def dockerfile() -> Dockerfile:
    return Dockerfile()


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory, dockerfile: Dockerfile) -> Path:
    """What the build stage copies, and nothing else."""
    folder = tmp_path_factory.mktemp("context")
    copies = [copy.split() for copy in dockerfile.each("COPY") if not copy.startswith("--from")]
    for source, target in ((each, words[-1]) for words in copies for each in words[:-1]):
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, folder / target, ignore=ignored)
        else:
            shutil.copy(ROOT / source, folder / target)
    return folder


def _pip(*words: Word, **options: Any) -> None:
    """Run pip; a skip where no package index can be reached, unless servers are required."""
    try:
        _run(sys.executable, "-m", "pip", *words, **options)
    except AssertionError as error:
        if os.environ.get("REQUIRE_SERVERS") == "1" or "No matching distribution" not in str(error):
            raise
        pytest.skip("pip finds no package index")


@pytest.fixture(scope="module")
def wheel(context: Path) -> Path:
    """The wheel, built by the Dockerfile's own words."""
    _pip("wheel", "--quiet", "--no-deps", "--wheel-dir=wheels", ".", cwd=context)
    (found,) = (context / "wheels").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Path]:
    """The `bin` of a fresh environment with the wheel and what it needs, which everybody may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        environment = Path(folder, "venv")
        venv.create(environment, with_pip=False)
        python = f"--python={environment / 'bin' / 'python'}"
        _pip(python, "install", "--quiet", "--no-cache-dir", wheel)
        yield environment / "bin"


def _image_user(python: Path) -> dict[str, Any]:
    """How to become the image's user; not at all where it may not run this Python, say one in /root."""
    user: dict[str, Any] = {"user": 65532, "group": 65532, "extra_groups": []}
    try:
        runs = subprocess.run([python, "-c", ""], cwd="/", capture_output=True, check=False, **user)
    except PermissionError:
        return {}
    return user if runs.returncode == 0 else {}


@pytest.fixture(scope="module")
def container(installed: Path, eventually: "Eventually") -> Iterator[str]:
    """The address of the installed demo, run by the image's user (where that is possible) from `/`."""
    command: list[Word] = [installed / "baseten-exporter", "demo", "--web.listen-address=127.0.0.1:0"]
    environ = {"PATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    options: dict[str, Any] = {"cwd": "/", "env": environ, **_image_user(installed / "python")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1].removesuffix("/metrics")
            eventually(lambda: httpx.get(f"{url}/-/ready").status_code == httpx.codes.OK)
            yield url
        finally:
            process.terminate()


def test_hadolint_has_nothing_to_say() -> None:
    assert _run(_program("hadolint"), "--failure-threshold=style", ROOT / "Dockerfile") == ""


def test_the_image_runs_as_nobody_in_particular_and_without_a_shell(dockerfile: Dockerfile) -> None:
    assert dockerfile.each("USER") == ["65532:65532"]
    assert dockerfile.command("ENTRYPOINT") == ["baseten-exporter"]
    assert dockerfile.command("CMD")[0] == "run"
    assert dockerfile.command("HEALTHCHECK")[0] == "python"


def test_the_build_context_is_what_the_dockerfile_copies(dockerfile: Dockerfile) -> None:
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    copies = [copy.split()[:-1] for copy in dockerfile.each("COPY") if not copy.startswith("--from")]
    assert allowed == [source for sources in copies for source in sources]


def test_the_wheel_has_no_tests_in_it(wheel: Path) -> None:
    names = _run(sys.executable, "-m", "zipfile", "--list", wheel)
    assert "exporter/cli.py" in names
    assert "tests/" not in names


def test_the_same_sources_give_the_same_wheel(wheel: Path, context: Path) -> None:
    _pip("wheel", "--quiet", "--no-deps", "--wheel-dir=again", ".", cwd=context)
    assert (context / "again" / wheel.name).read_bytes() == wheel.read_bytes()


def test_what_is_installed_says_its_version(installed: Path) -> None:
    assert _run(installed / "baseten-exporter", "--version") == f"baseten-exporter {__version__}\n"


def test_the_health_check_tells_a_healthy_exporter(
    dockerfile: Dockerfile, container: str, installed: Path
) -> None:
    assert _health(dockerfile, container.rpartition(":")[2], installed).returncode == 0


def test_the_health_check_tells_one_that_is_not_there(
    dockerfile: Dockerfile, port: int, installed: Path
) -> None:
    assert _health(dockerfile, str(port), installed).returncode == 1


def _health(dockerfile: Dockerfile, port: str, bin_: Path) -> "subprocess.CompletedProcess[bytes]":
    program, *words = dockerfile.command("HEALTHCHECK")
    words = [word.replace("10310", port) for word in words]
    return subprocess.run([bin_ / program, *words], capture_output=True, check=False)


def test_the_installed_demo_polls(container: str) -> None:
    page = httpx.get(f"{container}/metrics").text
    assert "baseten_loops_node_gpu_utilization_ratio{" in page


def _services(path: Path) -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]
    return services


def _mounts() -> Iterator[tuple[str, str, str]]:
    """Service, path here, path there."""
    for path in COMPOSE:
        for name, service in _services(path).items():
            for volume in service.get("volumes", []):
                source, target = volume.split(":")[:2]
                if source.startswith("."):
                    yield name, source, target


def test_compose_mounts_only_what_exists() -> None:
    yours = "./config.yaml"
    assert {source for _, source, _ in _mounts() if not (ROOT / source).exists()} <= {yours}


def test_compose_reaches_every_service_by_its_name() -> None:
    services = _services(COMPOSE[0])
    assert services["exporter"]["command"] == ["demo"]
    texts = [
        (DEPLOY / name).read_text("utf-8")
        for name in ("prometheus.yml", "grafana/datasources/prometheus.yaml")
    ]
    hosts = re.findall(r"([a-z]+):(\d{4,5})\b", "\n".join(texts))
    published = {(name, port.split(":")[-1]) for name, each in services.items() for port in each["ports"]}
    assert set(hosts) <= published
    assert all(port.startswith("127.0.0.1:") for each in services.values() for port in each["ports"])


def test_compose_and_prometheus_agree_on_the_folder_of_the_rules() -> None:
    (folder,) = [target for _, source, target in _mounts() if source.endswith("/rules")]
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    assert config["rule_files"] == [f"{folder}/*.yaml"]


def test_compose_and_grafana_agree_on_the_folder_of_the_dashboards() -> None:
    (folder,) = [target for _, source, target in _mounts() if source.endswith("files/dashboards")]
    config = yaml.safe_load((DEPLOY / "grafana" / "dashboards" / "baseten.yaml").read_text(encoding="utf-8"))
    assert config["providers"][0]["options"]["path"] == folder


def test_compose_starts_live_what_the_image_starts(dockerfile: Dockerfile) -> None:
    live = _services(COMPOSE[1])["exporter"]
    assert live["command"] == dockerfile.command("CMD")
    assert "${BASETEN_API_KEY:?" in live["environment"]["BASETEN_API_KEY"]


def test_promtool_accepts_the_config_of_prometheus(promtool: str) -> None:
    _run(promtool, "check", "config", "--syntax-only", DEPLOY / "prometheus.yml")


def test_amtool_accepts_the_config_of_alertmanager() -> None:
    _run(_program("amtool"), "check-config", DEPLOY / "alertmanager.yml")


def test_the_unit_starts_a_command_there_is(installed: Path, tmp_path: Path) -> None:
    unit = (DEPLOY / "baseten-exporter.service").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ExecStart=/opt/baseten-exporter/bin/(.+)$", unit, re.MULTILINE)
    config = tmp_path / "config.yaml"
    config.write_text(
        "workspaces: [{name: default, api_key_env: KEY, discovery: {models: {}}}]", encoding="utf-8"
    )
    words = shlex.split(command.replace("/etc/baseten-exporter/config.yaml", str(config)))
    checked: list[Word] = [installed / words[0], "check", *words[2:]]
    assert "default" in _run(*checked, env={"KEY": "not-a-real-key"})


def test_the_config_of_the_guide_loads(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(workspaces:.*?)```", guide, re.DOTALL)
    config = tmp_path / "config.yaml"
    config.write_text(text, encoding="utf-8")
    assert load(config, {"BASETEN_API_KEY": "not-a-real-key"}).workspaces


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "baseten-exporter.service").read_text(encoding="utf-8")
    file = tmp_path / "baseten-exporter.service"
    file.write_text(
        unit.replace("/opt/baseten-exporter/bin/baseten-exporter", sys.executable), encoding="utf-8"
    )
    assert _run(_program("systemd-analyze"), "verify", file) == ""
