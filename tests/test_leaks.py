"""No key, password, hash of a password or private key shows, whatever happens."""

import base64
import gc
import io
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from urllib.parse import quote

import bcrypt
import pytest
import trustme

from exporter import logs
from exporter.logs import Redactor
from exporter.simulator import Fault, Simulator, Wire, World
from exporter.simulator.api import Request, Response, json_response
from exporter.simulator.faults import FAULTS
from exporter.telemetry import Telemetry
from exporter.web.live import LiveWebConfig
from exporter.web.server import Server
from tests.conftest import Eventually
from tests.helpers_bench import PAGES, TRAINER, Bench, Process, config, listen, workspace

KEY = "AbCdEf12.abcS3cr3tPart0fAKeyThatN0b0dyMaySee"
NEXT_KEY = "AbCdEf12.abcTh3On3ThatIsR0tatedToAfterwards"
PUBLIC = 12
"""Characters that both keys begin with; a cut within them tells nothing."""

PASSWORD = "c0rrectHorseBattery"
WRONG_PASSWORD = "wr0ngHorseBattery"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
CREDENTIALS, WRONG_CREDENTIALS = (
    base64.b64encode(f"admin:{password}".encode()).decode() for password in (PASSWORD, WRONG_PASSWORD)
)
HUSHED = {
    "key": KEY[PUBLIC:],
    "next key": NEXT_KEY[PUBLIC:],
    "password": PASSWORD,
    "wrong password": WRONG_PASSWORD,
    "hash": HASH[len("$2b$04$") :],
    "credentials": CREDENTIALS,
    "wrong credentials": WRONG_CREDENTIALS,
}
QUICK = "{interval: 1s, timeout: 1s, stale_after: 1h}"
DISCOVERY = "{loops: {}}"
QUESTIONS = ("/w5prod01/metrics", "/tr2x4sft/metrics", "/loops/deployments$")
"""A model's, a trainer's and a listing's."""


def leaked(text: str, secrets: Mapping[str, str] = HUSHED) -> set[str]:
    """The secrets of which any eight characters in a row stand in the text."""
    return {
        name
        for name, secret in secrets.items()
        if any(secret[start : start + 8] in text for start in range(len(secret) - 7))
    }


def test_what_is_looked_for_is_found() -> None:
    assert leaked(f"no such key: {KEY}") == {"key"}
    assert leaked(f"no such key: {KEY[: PUBLIC + 8]}...") == {"key"}
    assert leaked(f"no such key: {KEY[:PUBLIC]}...") == set()


# An API that tells everything back


def told(wire: Wire) -> str:
    """The key, as the request has it."""
    return wire.request.headers["authorization"].removeprefix("Bearer ")


def says(make: Callable[[str], Response]) -> Fault:
    return lambda wire: wire.reply(make(told(wire)))


def sends(make: Callable[[str], str]) -> Fault:
    return lambda wire: wire.send(make(told(wire)).encode())


ECHOES: Mapping[str, Fault] = {
    "in the error": says(lambda key: json_response(401, {"error": f"Bearer {key} is not known"})),
    "in a message of a 503": says(lambda key: json_response(503, {"message": {"headers": {"k": key}}})),
    "in a code": says(lambda key: json_response(403, {"code": key})),
    "in a header": says(lambda key: json_response(500, {}, ("X-Key", key))),
    "in Retry-After": says(lambda key: json_response(429, {"retry_after": key}, ("Retry-After", key))),
    "in a redirect": says(lambda key: json_response(302, {}, ("Location", f"/login?key={quote(key)}"))),
    "in HTML": says(lambda key: Response(502, f"<b>{key}</b>".encode(), (("Content-Type", "text/html"),))),
    "in the encoding": says(lambda key: Response(200, b"{}", (("Content-Encoding", key),))),
    "in the status text": sends(lambda key: f"HTTP/1.1 401 {key}\r\nContent-Length: 0\r\n\r\n"),
    "in a status that is none": sends(lambda key: f"HTTP/1.1 {key}\r\n\r\n"),
    "in place of HTTP": sends(lambda key: f"{key}\r\n\r\n"),
    "in a header that is none": sends(lambda key: f"HTTP/1.1 200 OK\r\n{key}\r\n\r\n"),
    "in a length": sends(lambda key: f"HTTP/1.1 200 OK\r\nContent-Length: {key}\r\n\r\n"),
    "in a chunk": sends(lambda key: f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{key}\r\n"),
    "as the answer": says(lambda key: json_response(200, key)),
    "in place of a list": says(lambda key: json_response(200, {"deployments": key, "metrics": key})),
    "as a field": says(lambda key: json_response(200, {key: key})),
    "as a path too long to show": says(
        lambda key: json_response(200, {"deployments": [], "metrics": {}, "x" * 70 + key: 1})
    ),
    **{
        f"cut off after {shown}": says(
            lambda key, shown=shown: json_response(500, {"error": "x" * (200 - shown) + key})  # type: ignore[misc]
        )
        for shown in (PUBLIC, PUBLIC + 1, PUBLIC + 8, len(KEY) - 1)
    },
}


# In this process


class Log:
    """What is logged at debug: as it is written, and as it would be without a redactor."""

    def __init__(self, redactor: Redactor) -> None:
        self._written, self._raw = io.StringIO(), io.StringIO()
        logs.configure("debug", "logfmt", redactor, self._written)
        raw = logging.StreamHandler(self._raw)
        raw.setFormatter(logs.Formatter("logfmt"))
        logging.getLogger().addHandler(raw)

    def written(self) -> str:
        return self._written.getvalue()

    def raw(self) -> str:
        return self._raw.getvalue()


@pytest.fixture
def log() -> Iterator[Callable[[Redactor], Log]]:
    """Makes the log of this process; logging is then put back as pytest left it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = sys.excepthook, threading.excepthook
    root.handlers[:] = []
    yield Log
    sys.excepthook, threading.excepthook = hooks
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    for name in (*logs._CHATTY, "apscheduler.scheduler"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def api() -> Iterator[Simulator]:
    with Simulator(World.demo(), key=KEY, limit=None) as simulator:
        yield simulator


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read faster than all the authorities there are."""
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    trustme.CA().cert_pem.write_to_path(path)
    return path


MakeBench = Callable[[Redactor], Bench]


@pytest.fixture
def bench_of(tmp_path: Path, api: Simulator, authority: Path) -> Iterator[MakeBench]:
    benches: list[Bench] = []

    def make(redactor: Redactor) -> Bench:
        text = workspace(api.url, loops=TRAINER, discovery=DISCOVERY, ca_file=authority)
        benches.append(Bench(tmp_path / "config.yaml", api, text, poll=QUICK, redactor=redactor))
        return benches[-1]

    yield make
    api.heal()
    for bench in benches:
        bench.exporter.close()


def meet(bench: Bench, fault: str | Fault) -> None:
    """Let a model, a trainer and a listing meet the fault, each with a client that nothing happened to."""
    for question in QUESTIONS:
        bench.api.heal()
        bench.exporter.list_once()
        bench.api.fail(question, fault)
        asked = listen(bench.api)
        if "metrics" in question:
            target = next(each for each in bench.exporter.targets if each.deployment_id in question)
            bench.exporter.poller.poll(target)
        else:
            bench.exporter.list_once()
        Eventually()(lambda question=question, asked=asked: is_in(question, asked))  # type: ignore[misc]


def is_in(question: str, asked: list[Request]) -> bool:
    return any(re.search(question, each.target.partition("?")[0]) for each in asked)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_brings_the_key_to_light(
    bench_of: MakeBench, log: Callable[[Redactor], Log], fault: str
) -> None:
    """Not even where nothing would be redacted."""
    written = log(Redactor())
    bench = bench_of(Redactor())
    meet(bench, fault)
    assert "logger=httpcore." in written.written()
    assert leaked(written.raw() + bench.pages()) == set()


@pytest.mark.parametrize("echo", ECHOES)
def test_a_key_that_the_api_tells_back_is_shown_to_nobody(
    bench_of: MakeBench, log: Callable[[Redactor], Log], echo: str
) -> None:
    redactor = Redactor()
    written = log(redactor)
    bench = bench_of(redactor)
    meet(bench, ECHOES[echo])
    assert "logger=httpcore." in written.written()
    assert leaked(written.written() + bench.pages()) == set()


def test_the_pages_show_an_error_without_the_key_in_it(
    bench_of: MakeBench, log: Callable[[Redactor], Log]
) -> None:
    redactor = Redactor()
    written = log(redactor)
    bench = bench_of(redactor)
    meet(bench, ECHOES["in the error"])
    assert "Bearer <redacted> is not known" in written.written()
    assert "Bearer &lt;redacted&gt; is not known" in bench.pages()
    assert leaked(written.raw()) == {"key"}


@pytest.mark.parametrize("cut", [PUBLIC, PUBLIC + 1, len(NEXT_KEY) - 1, len(NEXT_KEY)])
@pytest.mark.parametrize("keys", [(KEY, NEXT_KEY), (NEXT_KEY, KEY)], ids=["first", "second"])
def test_keys_that_begin_alike_are_told_apart_though_cut_off(keys: tuple[str, ...], cut: int) -> None:
    redactor = Redactor()
    for key in keys:
        redactor.add(key)
    assert redactor.redact(f"{KEY} and {NEXT_KEY[:cut]}...") == "<redacted> and <redacted>..."


# Objects


def reachable(*roots: object) -> Iterator[object]:
    """All objects that the roots hold, not counting what belongs to the interpreter as a whole."""
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type | ModuleType):
            continue
        seen[id(each)] = each
        yield each
        if isinstance(each, FunctionType):  # its globals are those of its module
            waiting += [each.__closure__, each.__defaults__]
        else:
            waiting += gc.get_referents(each)


PLAIN = re.compile(r"builtins|re|_\w+|types|weakref|collections|os")
"""Where the types are that show all they hold, by their nature."""


def test_no_object_shows_a_secret(tmp_path: Path, bench_of: MakeBench) -> None:
    (tmp_path / "web.yaml").write_text(f"basic_auth_users: {{admin: {HASH!r}}}\n")
    web = LiveWebConfig(tmp_path / "web.yaml", Telemetry())
    bench = bench_of(Redactor())
    for fault in ("401", "500", "reset"):
        meet(bench, fault)
    bench.api.heal()
    bench.reload(bench.workspace(api_key_env="OTHER_KEY", discovery=DISCOVERY))
    bench.poll_all()
    door = bench.door(web)
    for credentials, status in ((CREDENTIALS, 200), (WRONG_CREDENTIALS, 401)):
        assert bench.ask("GET", "/", {"authorization": f"Basic {credentials}"}, door).status_code == status
    shown = {
        type(each).__qualname__: repr(each)
        for each in reachable(bench.exporter, web, door, Server(door, web))
        if not PLAIN.fullmatch(type(each).__module__)
    }
    expected = {"Exporter", "Config", "Workspace", "ApiKey", "Client", "Connection", "Entry", "Redactor"}
    assert expected | {"LiveWebConfig", "WebConfig", "Users", "Server", "Discovery"} <= shown.keys()
    assert {name for name, text in shown.items() if leaked(text)} == set()


# Real processes


class Pki:
    """A certificate for the exporter's own pages."""

    def __init__(self, folder: Path) -> None:
        pair = trustme.CA().issue_cert("127.0.0.1")
        pair.private_key_pem.write_to_path(folder / "key.pem")
        pair.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        pem = (folder / "key.pem").read_text()
        self.private = "".join(line for line in pem.splitlines() if not line.startswith("-"))


def web_config(*, users: str = f"{{admin: {HASH!r}}}") -> str:
    return f"tls_server_config: {{cert_file: cert.pem, key_file: key.pem}}\nbasic_auth_users: {users}\n"


@pytest.mark.parametrize("log_format", ["logfmt", "json"])
def test_a_process_shows_no_secret(
    tmp_path: Path, api: Simulator, eventually: Eventually, log_format: str
) -> None:
    """Neither in its log nor on its pages, nor to who looks at it from outside; through a bad day."""
    secrets = HUSHED | {"private key": Pki(tmp_path).private}
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "web.yaml").write_text(web_config())
    keys = {"api_key_env": None, "api_key_file": "key", "loops": TRAINER, "discovery": DISCOVERY}
    file = tmp_path / "config.yaml"
    file.write_text(config(workspace(api.url, **keys), poll=QUICK))
    flags = ("--log.level=debug", f"--log.format={log_format}", "--web.enable-lifecycle")
    seen: list[str] = []
    with Process(file, *flags, f"--web.config.file={tmp_path / 'web.yaml'}", secure=True) as process:
        process.client.headers.update({"authorization": f"Basic {CREDENTIALS}"})
        eventually(process.ready)
        for name in ("in the error", "in the status text", "in a redirect", "in place of HTTP"):
            before = api.requests
            api.fail("", ECHOES[name])
            eventually(lambda before=before: (api.requests - before).total() > 2)  # type: ignore[misc]
            seen += [process.ask("GET", path, headers).text for path, headers in PAGES]
        wrong = {"authorization": f"Basic {WRONG_CREDENTIALS}"}
        seen.append(process.ask("GET", "/metrics", wrong).text)
        (tmp_path / "web.yaml").write_text(web_config(users=f"[{HASH!r}]"))
        eventually(lambda: "web config not reloaded" in process.output())
        file.write_text(f"api_key: {KEY}\nworkspaces: [{{name: {KEY}, api_key_env: {KEY}, {KEY}: {KEY}}}]")
        seen.append(process.ask("POST", "/-/reload").text)
        (tmp_path / "key").write_text(f"{NEXT_KEY} {KEY}")
        eventually(lambda: "API key not read again" in process.output())
        (tmp_path / "key").write_text(NEXT_KEY)
        asked = listen(api)
        eventually(lambda: f"Bearer {NEXT_KEY}" in [each.headers["authorization"] for each in asked])
        seen += [process.ask("GET", path, headers).text for path, headers in PAGES]
        looked_at = look_at(process.process.pid)
        process.end()
    assert leaked("".join([*seen, *looked_at, process.output()]), secrets) == set()
    assert "not reloaded" in "".join(seen)
    assert "httpcore" in process.output()
    assert "Bearer <redacted> is not known" in process.output()


def look_at(pid: int) -> list[str]:
    """What anyone with a shell sees of a process: arguments, environment, and that it has no children."""
    process = Path("/proc", str(pid))
    for task in (process / "task").iterdir():
        assert (task / "children").read_text() == ""
    return [(process / name).read_bytes().decode() for name in ("cmdline", "environ")]


@pytest.mark.parametrize("command", [("once",), ("check", "--live")], ids=["once", "check"])
def test_commands_print_no_key(
    tmp_path: Path, api: Simulator, authority: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(config(workspace(api.url, loops=TRAINER, discovery=DISCOVERY, ca_file=authority)))
    api.fail("", ECHOES["in the error"])
    done = subprocess.run(
        [sys.executable, "-m", "exporter", *command, f"--config.file={file}", "--log.level=debug"],
        check=False,
        capture_output=True,
        text=True,
        env={"KEY": KEY},
        timeout=60,
    )
    api.heal()
    assert done.returncode == 1
    assert "Bearer <redacted> is not known" in done.stdout + done.stderr
    assert leaked(done.stdout + done.stderr) == set()
