"""The command line, nothing else."""

import argparse
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from exporter import __version__, app, check, demo, serving
from exporter.config import Config, ConfigError, Problem, load
from exporter.diagnosis import ADVICE, diagnose
from exporter.exposition import Format, blocks
from exporter.logs import Redactor, configure
from exporter.sharding import Shard, ShardError
from exporter.web.config import WebConfig
from exporter.web.config import load as web_config
from exporter.web.server import listen

Arguments = argparse.Namespace
Environment = Mapping[str, str]
Command = Callable[[Arguments, Environment, Redactor], int]

_LEVELS = ("debug", "info", "warning", "error")
_DEFAULT = "(default: %(default)s)"


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, or 1 for a bad config or a failed poll; bad usage exits with 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or (words[0].startswith("--") and words[0] not in ("--help", "--version")):
        words.insert(0, "run")
    arguments = _parser().parse_args(words)
    redactor = Redactor()
    configure(arguments.log_level, arguments.log_format, redactor)
    try:
        status: int = arguments.command(arguments, os.environ, redactor)
        sys.stdout.flush()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever reads, say `head`, has seen enough; nothing is left to flush to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _run(arguments: Arguments, environ: Environment, redactor: Redactor) -> int:
    return serving.run(_settings(arguments, arguments.config_file), environ, redactor, _listener(arguments))


def _check(arguments: Arguments, environ: Environment, redactor: Redactor) -> int:
    shard = _shard(arguments)
    config, said = _checked(arguments, environ)
    if shard.total > 1:
        said.append(f"shard {shard.index} of {shard.total}, at its part of requests_per_second:")
    for line in said:
        print(line)
    if not arguments.live:
        print(*check.offline(config, shard), sep="\n")
        return 0
    exporter = app.Exporter(lambda: config, redactor, shard=shard)
    lines, good = check.live(exporter)
    print(redactor.redact("\n".join(lines)))
    exporter.close()
    return 0 if good else 1


def _checked(arguments: Arguments, environ: Environment) -> tuple[Config, list[str]]:
    """The config, and what there is to say of the web config; ConfigError with the problems of both files."""
    problems: list[Problem] = []
    said: list[str] = []
    config = None
    try:
        config = load(arguments.config_file, environ)
    except ConfigError as error:
        problems += error.problems
    file = arguments.web_config_file
    try:
        if file is not None:
            said += _web_facts(file, web_config(file))
    except ConfigError as error:
        about = str(file)
        problems += [
            each if each.path == about else Problem(f"{about}: {each.path}", each.message)
            for each in error.problems
        ]
    if config is None or problems:
        raise ConfigError(problems)
    return config, said


def _web_facts(file: Path, web: WebConfig) -> Iterator[str]:
    tls = "no TLS"
    if web.expiry is not None:
        date = f"{datetime.fromtimestamp(web.expiry, UTC):%Y-%m-%d}"
        tls = f"TLS until {date}" if web.expiry > time.time() else f"TLS that ended on {date}: renew it"
    yield f"{file}: {tls}, users: {len(web.users)}"
    if web.users and web.expiry is None:
        yield "  passwords cross the network in clear: use them together with TLS"


def _once(arguments: Arguments, environ: Environment, redactor: Redactor) -> int:
    shard = _shard(arguments)
    exporter = app.Exporter(lambda: load(arguments.config_file, environ), redactor, shard=shard)
    failures = exporter.list_once()
    targets = exporter.targets
    with ThreadPoolExecutor(exporter.config.poll.concurrency) as pool:
        outcomes = list(pool.map(exporter.poller.poll, targets))
    for part in blocks(exporter.store.families()[1], Format.TEXT):
        sys.stdout.write(part.decode())
    sys.stdout.flush()
    for target, outcome in zip(targets, outcomes, strict=True):
        if outcome is not None:
            names = exporter.poller.apis[target.workspace].names
            print(*diagnose(outcome, time.time(), names), sep="\n", file=sys.stderr)
    for workspace, errors in failures.items():
        for error in errors:
            print(redactor.redact(check.unlisted(workspace, error)), file=sys.stderr)
            print(f"  advice: {ADVICE[error.reason]}", file=sys.stderr)
    for discovery in exporter.discoveries.values():
        for line in check.unmatched(discovery):
            print(line, file=sys.stderr)
    exporter.close()
    polled = all(outcome is not None and outcome.reason is None for outcome in outcomes)
    return 0 if polled and not any(failures.values()) else 1


def _demo(arguments: Arguments, environ: Environment, redactor: Redactor) -> int:
    listener = _listener(arguments)
    with demo.simulator(arguments.targets) as simulator, tempfile.TemporaryDirectory() as folder:
        config_file = Path(folder, "config.yaml")
        config_file.write_text(demo.config(simulator), encoding="utf-8")
        url = f"{_scheme(arguments.web_config_file)}://localhost:{listener.getsockname()[1]}"
        print(f"metrics:     {url}{arguments.telemetry_path}")
        print(f"status page: {url}/")
        print(f"simulator:   {simulator.url} (its key: {simulator.key})", flush=True)
        environ = {**environ, demo.KEY_VARIABLE: simulator.key}
        return serving.run(_settings(arguments, config_file), environ, redactor, listener)


def _scheme(web_config_file: Path | None) -> str:
    return "https" if web_config_file and web_config(web_config_file).context else "http"


def _settings(arguments: Arguments, config_file: Path) -> serving.Settings:
    return serving.Settings(
        config_file,
        arguments.telemetry_path,
        arguments.enable_lifecycle,
        arguments.web_config_file,
        _shard(arguments),
    )


def _shard(arguments: Arguments) -> Shard:
    total = arguments.total_shards
    if arguments.shard is None and total > 1:
        print(f"--shard is missing: which of {total} this is, from 0 to {total - 1}", file=sys.stderr)
        sys.exit(2)
    try:
        return Shard.of(arguments.shard or "0", total)
    except ShardError as error:
        print(f"--shard: {error}", file=sys.stderr)
        sys.exit(2)


def _listener(arguments: Arguments) -> socket.socket:
    address = arguments.listen_address
    try:
        return listen(address)
    except (OSError, ValueError) as error:
        sys.exit(f"cannot listen on --web.listen-address={address}: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "baseten-exporter", description="Prometheus exporter for Baseten.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"baseten-exporter {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, command: Command, summary: str, log_level: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        sub.set_defaults(command=command)
        sub.add_argument("--log.level", dest="log_level", default=log_level, choices=_LEVELS, help=_DEFAULT)
        sub.add_argument(
            "--log.format", dest="log_format", default="logfmt", choices=("logfmt", "json"), help=_DEFAULT
        )
        return sub

    run = add("run", _run, "Poll, and serve /metrics (the default command).", "info")
    once = add("once", _once, "Poll everything once; print the metrics, and a diagnosis per target.", "error")
    check_ = add("check", _check, "Validate the config; print what would be polled and its cost.", "error")
    show = add("demo", _demo, "Poll a simulated Baseten API; no key needed.", "info")
    for sub in (run, once, check_):
        _add_config(sub)
    for sub in (run, show):
        _add_web(sub)
        _add_web_config(sub)
        _add_shard(sub)
    _add_web_config(check_)
    for sub in (once, check_):
        _add_shard(sub)
    check_.add_argument("--live", action="store_true", help="ask the API, too: list all, poll one of each")
    show.add_argument(
        "--targets", type=_count, metavar="N", help="simulate so many deployments instead of a handful"
    )
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config.file",
        dest="config_file",
        type=Path,
        default=Path("config.yaml"),
        metavar="FILE",
        help=_DEFAULT,
    )


def _add_web(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--web.listen-address", dest="listen_address", default=":10310", metavar="[HOST]:PORT", help=_DEFAULT
    )
    parser.add_argument(
        "--web.telemetry-path",
        dest="telemetry_path",
        default="/metrics",
        type=_path,
        metavar="PATH",
        help=_DEFAULT,
    )
    parser.add_argument(
        "--web.enable-lifecycle",
        dest="enable_lifecycle",
        action="store_true",
        help="allow POST /-/reload to read the config again (SIGHUP always does)",
    )


def _add_web_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS, basic authentication and headers, as the Prometheus exporter toolkit has them",
    )


def _add_shard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shard",
        metavar="N",
        help="which of --total-shards this is, from 0; a name that ends in -N will do",
    )
    parser.add_argument(
        "--total-shards",
        dest="total_shards",
        type=int,
        default=1,
        metavar="N",
        help="how many exporters share this config, each polling its part (default: %(default)s)",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _path(text: str) -> str:
    if not text.startswith("/") or text == "/":
        raise argparse.ArgumentTypeError(f"{text!r} is not a path such as /metrics")
    return text
