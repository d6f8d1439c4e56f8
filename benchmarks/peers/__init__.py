"""The exporter's serving side and what it is measured against, each in a process of its own.

All show the page that ours made: read from a file, so that no two differ.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

from benchmarks.client import HOST, get
from benchmarks.processes import PYTHON, Running, announced, free_port, started

_GO_PROGRAM = Path(__file__).parent / "goexporter" / "main.go"
_GO_PACKAGES = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode"}

_NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log stderr;
events {{}}
http {{
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; default_type text/plain;
    client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    server {{ listen {host}:{port}; root {folder}; gzip_static on; }}
}}
"""

EXPORTER, ASGI, WSGI, GO, NGINX = (
    "exporter",
    "prometheus_client ASGI",
    "prometheus_client WSGI",
    "client_golang",
    "nginx",
)


class Server(NamedTuple):
    """`empty` is the memory it had before its series came, in bytes."""

    name: str
    port: int
    running: Running
    empty: int = 0


class Page(NamedTuple):
    """What ours answered, in files as nginx wants them."""

    folder: Path

    @property
    def plain(self) -> Path:
        return self.folder / "metrics"

    @property
    def gzip(self) -> Path:
        return self.folder / "metrics.gz"


class Peers:
    """Builds what must be built, once; `missing` names the peers that this machine has no tools for."""

    def __init__(self, folder: Path) -> None:
        self.missing: list[str] = []
        self._go = folder / "goexporter"
        self._nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if not _built(self._go):
            self.missing.append(GO)
        if self._nginx is None:
            self.missing.append(NGINX)
        if self.missing and os.environ.get("REQUIRE_SERVERS"):
            sys.exit(f"not installed: {', '.join(self.missing)}")

    @contextmanager
    def serving(self, page: Page, *, wsgi: bool = True) -> Iterator[list[Server]]:
        """All that are there, serving this page."""
        with ExitStack() as running:
            servers = [*running.enter_context(python(page))][: 1 + wsgi]
            if GO not in self.missing:
                servers.append(running.enter_context(self.go(page)))
            if self._nginx is not None:
                servers.append(running.enter_context(self.nginx(page)))
            yield servers

    @contextmanager
    def go(self, page: Page) -> Iterator[Server]:
        with announced([str(self._go), str(page.plain)]) as running:
            yield _server(GO, running, "port")

    @contextmanager
    def nginx(self, page: Page) -> Iterator[Server]:
        assert self._nginx is not None
        port = free_port()
        config = page.folder / "nginx.conf"
        config.write_text(_NGINX.format(folder=page.folder, host=HOST, port=port))
        with started([self._nginx, "-c", str(config)]) as running:
            running.wait_for(port, "/metrics")
            yield Server(NGINX, port, running)


@contextmanager
def python(page: Page) -> Iterator[tuple[Server, Server]]:
    """Both servers of prometheus_client: one process and one collector, of which each is asked alone."""
    with announced([*PYTHON, "benchmarks.peers.client_python", str(page.plain)]) as running:
        yield _server(ASGI, running, "asgi"), _server(WSGI, running, "wsgi")


@contextmanager
def ours(targets: int, nodes: int = 3) -> Iterator[Server]:
    command = [*PYTHON, "benchmarks.peers.ours", str(targets), f"--nodes={nodes}"]
    with announced(command) as running:
        yield _server(EXPORTER, running, "port")


@contextmanager
def page_of(server: Server) -> Iterator[Page]:
    with TemporaryDirectory() as folder:
        page = Page(Path(folder))
        page.plain.write_bytes(get(server.port, "/metrics").body)
        page.gzip.write_bytes(get(server.port, "/metrics", gzip=True).body)
        page.folder.chmod(0o755)
        yield page


def _server(name: str, running: Running, port: str) -> Server:
    return Server(name, cast("int", running.ready[port]), running, cast("int", running.ready["empty"]))


def _built(program: Path) -> bool:
    go = shutil.which("go")
    if go is None or not Path(_GO_PACKAGES["GOPATH"]).exists():
        return False
    environ = {**os.environ, **_GO_PACKAGES}
    subprocess.run([go, "build", "-o", str(program), str(_GO_PROGRAM)], check=True, env=environ)
    return True
