"""The command line as a process: what it prints where, and its exit status."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import bcrypt
import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

from exporter import __version__
from exporter.cli import main
from exporter.simulator import Simulator, World
from exporter.web.server import listen

KEY = "s3cr3t-key"
HASH = bcrypt.hashpw(b"password", bcrypt.gensalt(4)).decode()
CONFIG = """
poll: {{interval: 30s, timeout: 2s, concurrency: 1}}
workspaces:
  - name: team
    api_key_env: KEY
    api_url: {url}
    requests_per_second: {rate}
    models:
      - {{model_id: q7chat32, deployment_id: w5prod01}}
      - {{model_id: upsca1er, deployment_id: x1idle06, mode: current}}
    loops:
      - {{deployment_id: tr2x4sft}}
"""
BAD = "workspaces:\n  - name: team\n    api_key_env: NOT_SET\n    loops: [{deployment_id: l, windw: 5m}]\n"
PROBLEMS = [
    "workspaces[0].loops[0].windw: unknown key, did you mean window?",
    "workspaces[0].api_key_env: environment variable NOT_SET is not set",
]

Done = subprocess.CompletedProcess[str]


class Cli(Protocol):
    def __call__(self, *words: str) -> Done: ...


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    environ = {**os.environ, "KEY": KEY}

    def run(*words: str) -> Done:
        return subprocess.run(
            [sys.executable, "-m", "exporter", *words],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environ,
            timeout=30,
        )

    return run


@pytest.fixture
def api() -> Iterator[Simulator]:
    with Simulator(World.demo(), key=KEY) as simulator:
        yield simulator


@pytest.fixture
def config(tmp_path: Path, api: Simulator) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(url=api.url, rate=20))
    return f"--config.file={path}"


@pytest.fixture
def bad_config(tmp_path: Path) -> str:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return f"--config.file={path}"


# Usage


def usage(words: list[str]) -> object:
    """The exit status of a command line that ends before anything is run."""
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage(["--version"]) == 0
    assert capsys.readouterr().out == f"baseten-exporter {__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n    {command} " in text for command in ("run", "check", "once", "demo"))


@pytest.mark.parametrize("command", ["run", "check", "once", "demo"])
def test_every_command_has_a_help_with_its_defaults(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert usage([command, "--help"]) == 0
    assert "(default: logfmt)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["fly"],
        ["--nope"],
        ["run", "--log.level=loud"],
        ["run", "--log.format=xml"],
        ["run", "--web.telemetry-path=metrics"],
        ["run", "--web.telemetry-path=/"],
        ["check", "extra"],
        ["check", "--web.enable-lifecycle"],
        ["demo", "--targets=many"],
        ["demo", "--targets=0"],
        ["once", "--config=config.yaml"],
    ],
    ids=" ".join,
)
def test_bad_usage_exits_2_and_says_why(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert usage(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: baseten-exporter")


# A bad config


@pytest.mark.parametrize("command", ["check", "once", "run"])
def test_a_bad_config_exits_1_with_every_problem_on_stderr(cli: Cli, bad_config: str, command: str) -> None:
    address = ["--web.listen-address=127.0.0.1:0"] if command == "run" else []
    done = cli(command, bad_config, *address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == PROBLEMS


def test_run_is_the_command_where_there_is_none(cli: Cli, bad_config: str) -> None:
    done = cli(bad_config, "--web.listen-address=127.0.0.1:0")
    assert (done.returncode, done.stderr.splitlines()) == (1, PROBLEMS)


def test_the_config_is_looked_for_beside_oneself(cli: Cli) -> None:
    done = cli("check")
    assert (done.returncode, done.stderr) == (1, "config.yaml: cannot be read: No such file or directory\n")


# Check


def test_check_prints_what_would_be_polled_and_its_cost_and_asks_nothing(
    cli: Cli, config: str, api: Simulator
) -> None:
    done = cli("check", config)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "team/model/q7chat32/w5prod01",
        "team/model/upsca1er/x1idle06",
        "team/loops/tr2x4sft",
        "targets: 3, each polled every 30 s",
        ("team: model_metrics, 6.0 requests/minute: 0.5% of requests_per_second, 0.1% of the API's limit"),
        ("team: loops_metrics, 2.0 requests/minute: 0.2% of requests_per_second, 0.0% of the API's limit"),
        *(
            f"team: {endpoint}, {cost} requests/minute: 0.0% of requests_per_second, 0.0% of the API's limit"
            for endpoint, cost in (("models", 0.2), ("deployments", 0.4), ("loops_deployments", 0.2))
        ),
    ]
    assert not api.requests


def test_check_says_what_one_shard_polls_at_its_part_of_the_rate(cli: Cli, config: str) -> None:
    shards = [cli("check", config, f"--shard={n}", "--total-shards=2").stdout.splitlines() for n in (0, 1)]
    polled = sorted(line for lines in shards for line in lines if line.startswith("team/"))
    assert polled == [
        "team/loops/tr2x4sft",
        "team/model/q7chat32/w5prod01",
        "team/model/upsca1er/x1idle06",
    ]
    trainer = "team: loops_metrics, 2.0 requests/minute: 0.3% of requests_per_second, 0.0% of the API's limit"
    assert [line for lines in shards for line in lines if "loops_metrics" in line] == [trainer]


def test_check_needs_to_know_which_shard(cli: Cli, config: str) -> None:
    done = cli("check", config, "--total-shards=2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "--shard is missing: which of 2 this is, from 0 to 1\n"


def test_check_warns_of_more_than_the_rate_allows(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(url="http://127.0.0.1:9", rate=0.05))
    done = cli("check")
    assert done.returncode == 0
    assert "team: model targets are polled every 64 s instead of 30 s" in done.stdout
    assert "loops targets are polled" not in done.stdout


def test_check_reads_the_web_config_too(cli: Cli, config: str, tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    web.write_text("basic_auth_users: {prometheus: in-the-clear}\n")
    done = cli("check", config, f"--web.config.file={web}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{web}: basic_auth_users.prometheus: ")
    web.write_text("http_server_config: {http2: false}\n")
    done = cli("check", config, f"--web.config.file={web}")
    assert done.returncode == 0
    assert done.stdout.startswith(f"{web}: no TLS, users: 0\nteam/")


@pytest.mark.parametrize(
    ("days", "users", "said"),
    [
        (None, 0, ["no TLS, users: 0"]),
        (
            None,
            1,
            ["no TLS, users: 1", "  passwords cross the network in clear: use them together with TLS"],
        ),
        (30, 1, ["TLS until {date}, users: 1"]),
        (-30, 0, ["TLS that ended on {date}: renew it, users: 0"]),
    ],
)
def test_check_says_what_a_web_config_comes_to(
    cli: Cli, config: str, tmp_path: Path, days: int | None, users: int, said: list[str]
) -> None:
    lines = [f"basic_auth_users: {{admin: '{HASH}'}}"] * users or ["{}"]
    end = datetime.now(UTC) + timedelta(days or 0)
    if days is not None:
        certificate = trustme.CA().issue_cert("localhost", not_after=end)
        certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
        lines = [each for each in lines if each != "{}"]
        lines.append("tls_server_config: {cert_file: server.pem, key_file: server.pem}")
    (tmp_path / "web.yaml").write_text("\n".join(lines))
    done = cli("check", config, "--web.config.file=web.yaml")
    told = done.stdout.partition("team/")[0].splitlines()
    said[0] = f"web.yaml: {said[0]}"
    assert (done.returncode, told) == (0, [each.format(date=f"{end:%Y-%m-%d}") for each in said])


@pytest.mark.parametrize("text", ["", "garbage", None], ids=["empty", "no mapping", "not there"])
def test_check_names_a_web_config_once(cli: Cli, config: str, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "web.yaml").write_text(text)
    done = cli("check", config, "--web.config.file=web.yaml")
    assert (done.returncode, done.stderr.count("web.yaml")) == (1, 1)


def test_check_tells_the_problems_of_both_files(cli: Cli, tmp_path: Path) -> None:
    for name in ("config.yaml", "web.yaml"):
        (tmp_path / name).write_text("nonsense: 1\n")
    done = cli("check", "--web.config.file=web.yaml")
    assert done.returncode == 1
    assert "nonsense: unknown key" in done.stderr
    assert "web.yaml: nonsense: unknown key" in done.stderr


# Once


def families(text: str) -> set[str]:
    return {family.name for family in text_string_to_metric_families(text)}


def test_once_prints_metrics_to_stdout_and_a_diagnosis_to_stderr(cli: Cli, config: str) -> None:
    done = cli("once", config)
    assert done.returncode == 0, done.stderr
    assert families(done.stdout) >= {
        "baseten_model_replicas_active",
        "baseten_model_inference_requests_per_second",
        "baseten_loops_leader_gpu_utilization_ratio",
        "baseten_exporter_target_up",
    }
    heads = [line for line in done.stderr.splitlines() if not line.startswith(" ")]
    assert [line.partition(" in ")[0] for line in heads] == [
        "team/model/q7chat32/w5prod01: ok",
        "team/model/upsca1er/x1idle06: ok",
        "team/loops/tr2x4sft: ok",
    ]


def test_once_polls_what_is_one_shards(cli: Cli, config: str) -> None:
    told = [cli("once", config, f"--shard={n}", "--total-shards=2").stderr for n in (0, 1)]
    heads = sorted(line.partition(": ok")[0] for text in told for line in text.splitlines() if ": ok" in line)
    assert heads == ["team/loops/tr2x4sft", "team/model/q7chat32/w5prod01", "team/model/upsca1er/x1idle06"]


def test_once_says_what_to_do_about_a_listing_that_failed(cli: Cli, config: str, api: Simulator) -> None:
    api.fail("/v1/models$", "403")
    done = cli("once", config)
    assert done.returncode == 1
    assert "team: could not list models: HTTP 403: not allowed\n  advice: the key lacks" in done.stderr


def test_once_exits_1_if_a_target_failed_and_still_prints_the_others(
    cli: Cli, config: str, api: Simulator
) -> None:
    api.fail("w5prod01", "404")
    done = cli("once", config)
    assert done.returncode == 1
    assert "team/model/q7chat32/w5prod01: failed: not_found" in done.stderr
    assert "advice: check the ids" in done.stderr
    labels = 'deployment_id="w5prod01",kind="model",model_id="q7chat32",workspace="team"'
    assert f"baseten_exporter_target_up{{{labels}}} 0.0\n" in done.stdout
    assert "baseten_loops_leader_gpu_utilization_ratio{" in done.stdout


def test_once_says_which_targets_a_429_left_unpolled(cli: Cli, config: str, api: Simulator) -> None:
    api.fail("/v1/models", "429 body")
    done = cli("once", config)
    assert done.returncode == 1
    assert "team/model/q7chat32/w5prod01: failed: rate_limited" in done.stderr
    assert "team/model/upsca1er/x1idle06: not polled: model_metrics is paused for" in done.stderr
    assert "team/loops/tr2x4sft: ok" in done.stderr


def test_once_shows_no_key_even_if_the_api_echoes_it(cli: Cli, config: str, api: Simulator) -> None:
    api.fail(
        "",
        lambda wire: wire.reply(
            wire.response._replace(status=500, body=b'{"error": "bad key %s"}' % KEY.encode())
        ),
    )
    done = cli("once", config, "--log.level=debug")
    assert done.returncode == 1
    assert "bad key <redacted>" in done.stderr
    assert KEY not in done.stdout + done.stderr


# Listening


@pytest.mark.parametrize("command", ["run", "demo"])
def test_a_port_in_use_is_one_line_on_stderr(cli: Cli, command: str) -> None:
    with listen("127.0.0.1:0") as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = cli(command, f"--web.listen-address={address}")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"cannot listen on --web.listen-address={address}: ")
    assert "in use" in line


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999", "[::1]", "10310"])
def test_an_impossible_address_is_one_line_on_stderr(cli: Cli, address: str) -> None:
    done = cli("run", f"--web.listen-address={address}")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "is not a port" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_bug(config: str) -> None:
    command = [sys.executable, "-m", "exporter", "check", config]
    reading, writing = os.pipe()
    os.close(reading)
    environ = {**os.environ, "KEY": KEY}
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, env=environ, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
