"""TLS, authentication, limits and headers: a real server, real sockets, real clients."""

import asyncio
import base64
import contextlib
import hashlib
import http.client
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bcrypt
import httpx
import pytest
import trustme
from prometheus_client import CollectorRegistry, Gauge

from exporter.model import ModelOptions, Target
from exporter.store import Store
from exporter.web.auth import BusyError, Users
from exporter.web.live import LiveWebConfig
from exporter.web.pages import Pages
from exporter.web.routes import Parts, application
from exporter.web.security import content_security_policy
from exporter.web.server import Patience, Server, listen
from exporter.web.style import STYLE
from tests.conftest import Clock, Prometheus, _answers, _binary, _free_port, running

if TYPE_CHECKING:
    from tests.conftest import Eventually

PASSWORD = "correct horse battery staple"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
GOOD = ("admin", PASSWORD)
USERS = f"basic_auth_users: {{admin: {HASH!r}}}\n"
ROUTES = [
    ("GET", "/metrics"),
    ("GET", "/metrics?name[]=x"),
    ("HEAD", "/metrics"),
    ("GET", "/"),
    ("GET", "/api/v1/targets"),
    ("GET", "/-/healthy"),
    ("GET", "/-/ready"),
    ("POST", "/-/reload"),
    ("GET", "/-/reload"),
    ("GET", "/nothing"),
    ("GET", "/favicon.ico"),
    ("POST", "/metrics"),
    ("OPTIONS", "/"),
    ("BREW", "/"),
]
QUICK = Patience(request=0.5, answer=0.5)


class Pki:
    """An authority, and what it issues into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca.cert_pem.write_to_path(folder / "ca.pem")

    def issue(self, name: str, *names: str, days: int = 30, ca: trustme.CA | None = None) -> None:
        """Write NAME.pem and NAME-key.pem."""
        end = datetime.now(UTC) + timedelta(days=days)
        pair = (ca or self.ca).issue_cert(*names, not_after=end)
        pair.private_key_pem.write_to_path(self.folder / f"{name}-key.pem")
        pair.cert_chain_pems[0].write_to_path(self.folder / f"{name}.pem")

    def client(self, name: str = "") -> ssl.SSLContext:
        """A client's context that trusts the authority, with a certificate of its own if named."""
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        if name:
            context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}-key.pem")
        return context


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    pki = Pki(tmp_path)
    pki.issue("server", "localhost")
    return pki


class Site:
    """A running server with a web config, and what it tells of it."""

    def __init__(self, folder: Path, text: str, patience: Patience) -> None:
        self.file = folder / "web.yaml"
        self.file.write_text(text)
        self.registry = CollectorRegistry()
        self.reloads: list[str] = []
        self.good: bool | None = None
        self.expiry: float | None = None
        clock = Clock()
        store = Store(clock)
        store.retarget([Target("team", "m1", "d1", ModelOptions())], 300)
        pages = Pages(store, self.registry)
        parts = Parts(
            store, pages, store.ready, lambda _: None, clock, lambda: self.reloads.append("done"), lambda: ()
        )
        self.web = LiveWebConfig(self.file, self)
        self.server = Server(application(parts, "/metrics", self.web), self.web, patience)
        listener = listen("localhost:0")
        self.port: int = listener.getsockname()[1]
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
        self._thread.start()

    def web_config(self, *, good: bool) -> None:
        self.good = good

    def certificate(self, expiry: float) -> None:
        self.expiry = expiry

    @property
    def url(self) -> str:
        return f"{'https' if self.web().context else 'http'}://localhost:{self.port}"

    def get(
        self, context: ssl.SSLContext | None = None, path: str = "/-/healthy", **more: Any
    ) -> httpx.Response:
        with httpx.Client(verify=context or self.web().context is not None) as client:
            return client.get(f"{self.url}{path}", **more)

    def connect(self) -> socket.socket:
        return socket.create_connection(("localhost", self.port), timeout=10)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join()


Serve = Callable[..., Site]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    sites: list[Site] = []

    def start(text: str = "{}", patience: Patience | None = None) -> Site:
        sites.append(Site(tmp_path, text, patience or Patience()))
        return sites[-1]

    yield start
    for site in sites:
        site.stop()


def tls(*more: str) -> str:
    return (
        f"tls_server_config: {{{', '.join(['cert_file: server.pem', 'key_file: server-key.pem', *more])}}}\n"
    )


MUTUAL = ("client_ca_file: ca.pem", "client_auth_type: RequireAndVerifyClientCert")


# TLS


def test_it_speaks_tls_and_nothing_else(serve: Serve, pki: Pki) -> None:
    site = serve(tls())
    assert site.get(pki.client()).text == "healthy\n"
    with pytest.raises(httpx.ConnectError, match="certificate"):
        site.get()
    with site.connect() as plain:
        plain.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"healthy" not in plain.recv(65536)


@pytest.mark.parametrize(
    ("server", "client", "spoken"),
    [
        ("min_version: TLS12", ssl.TLSVersion.TLSv1_2, "TLSv1.2"),
        ("min_version: TLS12", ssl.TLSVersion.TLSv1_3, "TLSv1.3"),
        ("min_version: TLS13", ssl.TLSVersion.TLSv1_2, None),
        ("max_version: TLS12", ssl.TLSVersion.TLSv1_3, None),
        ("cipher_suites: [TLS_AES_128_GCM_SHA256]", ssl.TLSVersion.TLSv1_2, None),
    ],
)
def test_versions_of_tls_are_limited(
    serve: Serve, pki: Pki, server: str, client: ssl.TLSVersion, spoken: str | None
) -> None:
    context = pki.client()
    context.minimum_version = context.maximum_version = client
    assert handshake(serve(tls(server)), context) == spoken


def test_an_old_version_of_tls_is_spoken_if_asked_for(serve: Serve, pki: Pki) -> None:
    """With the one program here that still can."""
    site = serve(tls("min_version: TLS10"))
    command = [_binary("openssl"), "s_client", "-tls1", "-cipher", "DEFAULT:@SECLEVEL=0", "-brief"]
    done = subprocess.run(
        [*command, "-connect", f"localhost:{site.port}"],
        check=False,
        capture_output=True,
        input=b"",
        timeout=30,
    )
    assert b"Protocol version: TLSv1\n" in done.stderr


def handshake(site: Site, context: ssl.SSLContext) -> str | None:
    """The version that is spoken; None where none is."""
    try:
        with context.wrap_socket(site.connect(), server_hostname="localhost") as connection:
            return connection.version()
    except (ssl.SSLError, ConnectionError):
        return None


def test_suites_are_limited_and_the_servers_order_is_kept(serve: Serve, pki: Pki) -> None:
    suites = [f"TLS_ECDHE_ECDSA_WITH_AES_{bits}" for bits in ("256_GCM_SHA384", "128_GCM_SHA256")]
    site = serve(tls("max_version: TLS12", f"cipher_suites: [{', '.join(suites)}]"))
    context = pki.client()
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384")
    with context.wrap_socket(site.connect(), server_hostname="localhost") as connection:
        assert connection.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)
    context.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")
    assert handshake(site, context) is None


# Clients' certificates


def reaches(site: Site, context: ssl.SSLContext) -> bool:
    try:
        return site.get(context).text == "healthy\n"
    except httpx.TransportError:
        return False


def test_only_clients_with_a_certificate_of_the_authority_are_served(serve: Serve, pki: Pki) -> None:
    pki.issue("good", "prometheus.example")
    pki.issue("bad", "prometheus.example", ca=trustme.CA())
    pki.issue("expired", "prometheus.example", days=-1)
    site = serve(tls(*MUTUAL))
    names = ("good", "bad", "expired", "")
    assert {name: reaches(site, pki.client(name)) for name in names} == {
        "good": True,
        "bad": False,
        "expired": False,
        "": False,
    }


def test_a_certificate_that_is_optional_is_verified_where_it_is_given(serve: Serve, pki: Pki) -> None:
    pki.issue("good", "prometheus.example")
    pki.issue("bad", "prometheus.example", ca=trustme.CA())
    site = serve(tls(MUTUAL[0], "client_auth_type: VerifyClientCertIfGiven"))
    assert [reaches(site, pki.client(name)) for name in ("good", "bad", "")] == [True, False, True]


@pytest.mark.parametrize(
    ("certificate", "allowed", "served"),
    [
        ("prometheus.example", "prometheus.example", True),
        ("prometheus.example", "other.example, prometheus.example", True),
        ("prometheus.example", "Prometheus.example", False),
        ("a.prometheus.example", '"*.prometheus.example"', False),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.70", False),
        ("2001:db8::1", '"2001:0DB8:0::1"', True),
        ("prometheus@example.org", "prometheus@example.org", True),
        ("prometheus@example.org", "example.org", False),
    ],
)
def test_only_clients_with_an_allowed_name_are_served(
    serve: Serve, pki: Pki, certificate: str, allowed: str, *, served: bool
) -> None:
    pki.issue("client", certificate)
    site = serve(tls(*MUTUAL, f"client_allowed_sans: [{allowed}]"))
    assert reaches(site, pki.client("client")) is served


def test_a_uri_is_a_name_too(serve: Serve, pki: Pki) -> None:
    """As SPIFFE has it; trustme issues none, so openssl does."""
    text = "subjectAltName=URI:spiffe://example.org/prometheus\nextendedKeyUsage=clientAuth\n"
    (pki.folder / "extensions").write_text(text)
    pki.ca.private_key_pem.write_to_path(pki.folder / "ca-key.pem")
    openssl = _binary("openssl")
    request = (
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -keyout uri-key.pem -out uri.csr"
    )
    sign = "x509 -req -in uri.csr -CA ca.pem -CAkey ca-key.pem -days 1 -extfile extensions -out uri.pem"
    for words in (request, sign):
        subprocess.run([openssl, *words.split()], check=True, cwd=pki.folder, capture_output=True)
    site = serve(tls(*MUTUAL, "client_allowed_sans: ['spiffe://example.org/prometheus']"))
    assert reaches(site, pki.client("uri"))


# Changes while it runs


def expiry(context: ssl.SSLContext, site: Site) -> int:
    """When the certificate that a new connection is shown expires."""
    with context.wrap_socket(site.connect(), server_hostname="localhost") as connection:
        certificate = connection.getpeercert()
        assert certificate is not None
        return ssl.cert_time_to_seconds(str(certificate["notAfter"]))


def test_a_certificate_swapped_by_link_is_served_without_a_restart_or_a_lost_scrape(
    serve: Serve, pki: Pki, eventually: "Eventually"
) -> None:
    for name, days in (("one", 10), ("two", 20)):
        (pki.folder / name).mkdir()
        pki.issue(f"{name}/tls", "localhost", days=days)
    (pki.folder / "..data").symlink_to("one")
    site = serve("tls_server_config: {cert_file: ..data/tls.pem, key_file: ..data/tls-key.pem}")
    context = pki.client()
    first = expiry(context, site)
    assert site.expiry == first
    swapped = pki.folder / "..new"
    swapped.symlink_to("two")

    def scraped() -> bool:
        """Each on a connection of its own: the swap closes idle ones, and httpx does not ask again."""
        return httpx.get(f"{site.url}/metrics", verify=context).status_code == 200

    assert scraped()
    swapped.rename(pki.folder / "..data")
    eventually(lambda: scraped() and site.expiry != first)
    assert expiry(context, site) == site.expiry == first + 10 * 86400


def test_a_certificate_that_turns_bad_leaves_the_old_one_in_service(
    serve: Serve, pki: Pki, eventually: "Eventually"
) -> None:
    site = serve(tls())
    (pki.folder / "server.pem").write_text("no certificate")
    eventually(lambda: site.good is False)
    assert site.get(pki.client()).text == "healthy\n"
    pki.issue("server", "localhost")
    eventually(lambda: site.good)
    assert site.get(pki.client()).text == "healthy\n"


def test_who_was_connected_by_an_old_authority_has_to_connect_again(serve: Serve, pki: Pki) -> None:
    pki.issue("client", "prometheus.example")
    site = serve(tls(*MUTUAL))
    client = pki.client("client")
    with client.wrap_socket(site.connect(), server_hostname="localhost") as connection:
        answered(connection)
        trustme.CA().cert_pem.write_to_path(pki.folder / "ca.pem")
        assert connection.recv(65536) == b""
    assert not reaches(site, client)


def test_a_bug_in_reading_does_not_end_the_serving(
    serve: Serve, eventually: "Eventually", caplog: pytest.LogCaptureFixture
) -> None:
    site = serve()
    site.web_config = None  # type: ignore[assignment, method-assign]
    site.file.write_text(USERS)
    eventually(lambda: [record for record in caplog.records if record.message.startswith("bug: ")])
    assert site.get(path="/metrics").status_code in (200, 401)


def test_users_change_without_a_restart(serve: Serve, eventually: "Eventually") -> None:
    site = serve(USERS)
    assert site.get(auth=GOOD).status_code == 200
    other = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
    site.file.write_text(f"basic_auth_users: {{admin: '{other}', guest: '{HASH}'}}")
    eventually(lambda: site.get(auth=GOOD).status_code == 401)
    assert site.get(auth=("admin", "other")).status_code == 200
    assert site.get(auth=("guest", PASSWORD)).status_code == 200


# One door


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=" ".join)
def test_every_route_is_behind_the_same_door(serve: Serve, method: str, path: str) -> None:
    site = serve(USERS)
    with httpx.Client(base_url=site.url) as client:
        for auth in (None, ("admin", "wrong"), ("nobody", PASSWORD), ("admin", "")):
            refused = client.request(method, path, auth=auth)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Basic ")
            assert refused.text in ("", "unauthorized\n")
        assert site.reloads == []
        assert client.request(method, path, auth=GOOD).status_code != 401


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic =",
        "Basic !!!!",
        f"Basic {base64.b64encode(b'admin').decode()}",
        f"Bearer {base64.b64encode(f'admin:{PASSWORD}'.encode()).decode()}",
        f"Basic {base64.b64encode(b'admin:' + bytes([255, 0, 254])).decode()}",
        f"Basic {base64.b64encode(b'ADMIN:' + PASSWORD.encode()).decode()}",
    ],
)
def test_odd_credentials_are_refused(serve: Serve, header: str) -> None:
    assert serve(USERS).get(headers={"authorization": header}).status_code == 401


@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2y$"])
@pytest.mark.parametrize("password", ["", "päß wörd:mit:Doppelpunkt", "x" * 72, "x" * 200])
def test_every_usual_hash_and_password_works(serve: Serve, prefix: str, password: str) -> None:
    """Of a password bcrypt sees 72 bytes, as the toolkit and htpasswd have it."""
    made = bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()
    site = serve(f"basic_auth_users: {{'jörg': '{made.replace('$2b$', prefix)}'}}")
    assert site.get(auth=httpx.BasicAuth("jörg", password)).status_code == 200
    assert site.get(auth=httpx.BasicAuth("jörg", f"{password[:10]}!")).status_code == 401


def test_tls_and_a_password_go_together(serve: Serve, pki: Pki) -> None:
    site = serve(tls() + USERS)
    assert site.get(pki.client()).status_code == 401
    assert site.get(pki.client(), auth=GOOD).status_code == 200


# Passwords cost time, and nobody else's


class Counting:
    """bcrypt itself, with a note of each hash that is computed; it may be told to wait."""

    def __init__(self) -> None:
        self.hashes: list[bytes] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        self.hashes.append(hashed)
        self.go.wait(30)
        return bcrypt.checkpw(password, hashed)


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def ask(users: Users, *pairs: tuple[str, str]) -> list[bool]:
    """The answers to these users and passwords, one after the other."""

    async def all_of_them() -> list[bool]:
        return [await users.admit(basic(*pair)) for pair in pairs]

    return asyncio.run(all_of_them())


def test_an_unknown_user_costs_what_a_wrong_password_does_also_the_second_time() -> None:
    check = Counting()
    users = Users({"admin": HASH}, check)
    for pair in (("admin", "wrong"), ("nobody", "wrong"), ("nobody", PASSWORD)):
        assert ask(users, pair, pair) == [False, False]
        (hashed,) = check.hashes
        assert hashed[:7] == HASH[:7].encode(), "the same cost"
        check.hashes.clear()


def test_unknown_users_cost_what_some_known_one_does_where_costs_differ() -> None:
    """So that neither the dear nor the cheap ones can be told from names that nobody has."""
    check = Counting()
    costs = {f"$2b$0{cost}$" for cost in (4, 5)}
    ask(
        Users({prefix: prefix + HASH[7:] for prefix in costs}, check),
        *((f"nobody{n}", "x") for n in range(40)),
        *(("nobody0", f"{n}") for n in range(10)),
    )
    assert {each[:7].decode() for each in check.hashes} == costs
    assert len({each[:7] for each in check.hashes[-10:]}) == 1, "always the same for a name"


def test_a_right_password_is_checked_once_and_wrong_ones_cannot_push_it_out() -> None:
    check = Counting()
    users = Users({"admin": HASH}, check)
    assert ask(users, GOOD) == [True]
    assert not any(ask(users, *(("admin", f"{n}") for n in range(1100))))
    assert len(check.hashes) == 1101
    assert ask(users, GOOD, ("admin", "1099"), ("admin", "0")) == [True, False, False]
    assert len(check.hashes) == 1102, "only the oldest wrong one was forgotten"


def test_no_password_is_kept() -> None:
    users = Users({"admin": HASH})
    ask(users, GOOD, ("admin", "wr0ng-passw0rd"))
    kept = repr(vars(users))
    assert PASSWORD not in kept
    assert "wr0ng-passw0rd" not in kept


def test_neither_passwords_nor_hashes_are_logged(
    serve: Serve, eventually: "Eventually", caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        site = serve(USERS)
        answers = [site.get(path=path, auth=GOOD) for path in ("/", "/metrics", "/api/v1/targets")]
        answers += [site.get(auth=("admin", "wr0ng-passw0rd"))]
        site.file.write_text(f"basic_auth_users: {{{HASH!r}: {PASSWORD!r}}}")
        eventually(lambda: site.good is False)
    told = [caplog.text, *(str(vars(record)) for record in caplog.records)]
    told += [f"{answer.headers}{answer.text}" for answer in answers]
    tokens = [basic(*GOOD)[6:], basic("admin", "wr0ng-passw0rd")[6:]]
    for secret in (PASSWORD, HASH[7:], "wr0ng-passw0rd", *tokens):
        assert not [text for text in told if secret in text]


def test_two_processes_remember_differently() -> None:
    one, two = (Users({"admin": HASH}) for _ in range(2))
    ask(one, GOOD)
    ask(two, GOOD)
    assert vars(one)["_right"] != vars(two)["_right"]


def test_scrapers_that_come_at_once_cost_one_check() -> None:
    check = Counting()
    users = Users({"admin": HASH}, check)

    async def at_once() -> list[bool]:
        return await asyncio.gather(*(users.admit(basic(*GOOD)) for _ in range(20)))

    assert all(asyncio.run(at_once()))
    assert len(check.hashes) == 1


def test_only_so_many_passwords_wait_and_known_ones_never_do() -> None:
    check = Counting()
    users = Users({"admin": HASH}, check)

    async def flood() -> tuple[bool, list[bool | BaseException]]:
        await users.admit(basic(*GOOD))
        check.go.clear()
        guesses = [asyncio.create_task(users.admit(basic("admin", f"{n}"))) for n in range(100)]
        await asyncio.sleep(0)
        known = await users.admit(basic(*GOOD))
        assert not all(guess.done() for guess in guesses)
        check.go.set()
        return known, await asyncio.gather(*guesses, return_exceptions=True)

    known, guesses = asyncio.run(flood())
    assert known
    assert sum(isinstance(guess, BusyError) for guess in guesses) == 36
    assert guesses.count(False) == 64
    assert len(check.hashes) == 65


def test_scrapes_go_on_while_passwords_are_guessed(serve: Serve) -> None:
    """Each guess costs some 0.2 s of bcrypt, none of it on the event loop."""
    dear = bcrypt.hashpw(b"unknown", bcrypt.gensalt(12)).decode()
    site = serve(f"basic_auth_users: {{admin: '{HASH}', dear: '{dear}'}}")
    assert site.get(auth=GOOD).status_code == 200
    with ThreadPoolExecutor(8) as pool:
        guesses = [pool.submit(site.get, auth=("dear", f"{n}"), timeout=60) for n in range(8)]
        statuses = [site.get(path="/metrics", auth=GOOD).status_code for _ in range(5)]
        assert not all(guess.done() for guess in guesses)
        assert statuses == [200] * 5
        assert {guess.result().status_code for guess in guesses} == {401}


def test_more_guesses_than_may_wait_are_told_to_come_again(serve: Serve) -> None:
    dear = bcrypt.hashpw(b"unknown", bcrypt.gensalt(8)).decode()
    site = serve(f"basic_auth_users: {{dear: '{dear}'}}")
    with contextlib.ExitStack() as stack:
        guessers = [stack.enter_context(site.connect()) for _ in range(100)]
        for n, guesser in enumerate(guessers):
            guesser.sendall(HEAD + LAST + f"Authorization: {basic('dear', f'{n}')}\r\n\r\n".encode())
        answers = [everything(guesser) for guesser in guessers]
    assert {answer[:12] for answer in answers} == {b"HTTP/1.1 401", b"HTTP/1.1 503"}
    assert all((b"retry-after: 1" in each) == (b" 503 " in each) for each in answers)


# Headers


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=" ".join)
@pytest.mark.parametrize("auth", [None, GOOD], ids=["outside", "inside"])
def test_every_answer_has_the_headers(
    serve: Serve, method: str, path: str, auth: tuple[str, str] | None
) -> None:
    with httpx.Client(base_url=serve(USERS).url) as client:
        headers = client.request(method, path, auth=auth).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'none'; ")
    assert len(headers.get_list("content-security-policy")) == 1
    assert "server" not in headers


def test_the_page_may_use_its_own_style_and_nothing_else(serve: Serve) -> None:
    page = serve().get(path="/")
    policy = page.headers["content-security-policy"]
    assert policy == content_security_policy(STYLE)
    assert "unsafe" not in policy
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert not re.search(r"<script|\sstyle=|\son\w+=", page.text)


def test_headers_of_the_web_config_win(serve: Serve, eventually: "Eventually") -> None:
    text = """http_server_config: {headers: {X-Frame-Options: sameorigin, Content-Security-Policy: "",
        Strict-Transport-Security: max-age=60, X-XSS-Protection: "0"}}"""
    site = serve(text)
    headers = site.get(path="/").headers
    assert headers.get_list("x-frame-options") == ["sameorigin"]
    assert headers["strict-transport-security"] == "max-age=60"
    assert headers["x-xss-protection"] == "0"
    assert headers["referrer-policy"] == "no-referrer"
    assert "content-security-policy" not in headers
    site.file.write_text("{}")
    eventually(lambda: site.get().headers["x-frame-options"] == "DENY")


# Limits


def exchange(site: Site, *parts: bytes) -> bytes:
    """All bytes the server sends for what is sent to it; b"" if it cuts the connection off."""
    with site.connect() as connection, contextlib.suppress(ConnectionError):
        for part in parts:
            connection.sendall(part)
        return everything(connection)
    return b""


def everything(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def through(connection: socket.socket, end: bytes) -> None:
    """Read what comes up to `end`, which must come before the server hangs up."""
    answer = b""
    while not answer.endswith(end):
        piece = connection.recv(65536)
        assert piece, f"the server hung up after {answer!r}"
        answer += piece


HEAD = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n"
LAST = b"Connection: close\r\n"


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ((HEAD, LAST, b"X: ", b"x" * 12_000, b"\r\n\r\n"), 200),
        ((HEAD + LAST + b"X: " + b"x" * 20_000 + b"\r\n\r\n",), 431),
        ((HEAD + LAST + b"".join(b"X%d: x\r\n" % n for n in range(4000)) + b"\r\n",), 431),
        ((b"GET /" + b"x" * 20_000,), 431),
        ((b"POST /-/reload HTTP/1.1\r\nHost: h\r\n" + LAST + b"Content-Length: 4\r\n\r\nbody",), 200),
        (
            (b"POST /-/reload HTTP/1.1\r\nHost: h\r\n" + LAST + b"Content-Length: 4097\r\n\r\n", b"x" * 4097),
            413,
        ),
        ((HEAD + LAST + b"Content-Length: 999999999999\r\n\r\n",), 413),
        (
            (
                HEAD + LAST + b"Transfer-Encoding: chunked\r\n\r\n",
                b"1000\r\n" + b"x" * 4096 + b"\r\n0\r\n\r\n",
            ),
            200,
        ),
        (
            (
                HEAD + LAST + b"Transfer-Encoding: chunked\r\n\r\n",
                b"1001\r\n" + b"x" * 4097 + b"\r\n0\r\n\r\n",
            ),
            413,
        ),
        ((HEAD + LAST + b"Transfer-Encoding: chunked\r\n\r\n", b"nonsense\r\n"), 400),
        ((HEAD + LAST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",), 400),
        ((HEAD + LAST + b"Content-Length: -1\r\n\r\n",), 400),
        ((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",), 400),
    ],
    ids=[
        *(
            "long",
            "too-long",
            "too-many",
            "line",
            "body",
            "large",
            "huge",
            "chunks",
            "large-chunks",
            "bad-chunks",
        ),
        *("two-lengths", "negative", "tls"),
    ],
)
def test_heads_and_bodies_are_limited(
    serve: Serve, caplog: pytest.LogCaptureFixture, parts: Sequence[bytes], status: int
) -> None:
    site = serve()
    assert exchange(site, *parts).startswith(b"HTTP/1.1 %d " % status)
    assert site.get().status_code == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_nonsense_after_an_answer_costs_the_connection_and_no_error_in_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    site = serve(USERS)
    with site.connect() as connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        through(connection, b"unauthorized\n")
        connection.sendall(b"nonsense\r\n")
        assert connection.recv(1) == b""
    assert site.get(auth=GOOD).status_code == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_reload_whose_request_never_ended_does_not_happen(serve: Serve) -> None:
    site = serve(patience=QUICK)
    assert exchange(site, b"POST /-/reload HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nshort") == b""
    assert site.reloads == []


def dribble(connection: socket.socket, parts: Iterator[bytes], eventually: "Eventually") -> None:
    """Send a piece now and then until the server has had enough."""
    connection.settimeout(0.05)

    def cut_off() -> bool:
        try:
            connection.sendall(next(parts))
            return connection.recv(65536) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    eventually(cut_off)


def endless(first: bytes, more: bytes) -> Iterator[bytes]:
    yield first
    while True:
        yield more


SLOW = {
    "silence": (b"", b""),
    "request-line": (b"G", b"E"),
    "header": (HEAD, b"X: y\r\n"),
    "body": (HEAD + b"Content-Length: 4000\r\n\r\n", b"x"),
    "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "body-after-the-answer": (HEAD + b"Content-Length: 999999\r\n\r\n", b"x"),
    "next-request": (HEAD + b"\r\n", b"G"),
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_client_that_dribbles_its_request_is_cut_off_while_scrapes_go_on(
    serve: Serve, eventually: "Eventually", kind: str
) -> None:
    site = serve(patience=QUICK)
    with site.connect() as slow, httpx.Client(base_url=site.url) as scraper:
        assert scraper.get("/metrics").status_code == 200
        dribble(slow, endless(*SLOW[kind]), eventually)
        assert scraper.get("/metrics").status_code == 200


@pytest.mark.parametrize("kind", ["silence", "dribble"])
def test_a_client_that_dribbles_its_handshake_is_cut_off_while_scrapes_go_on(
    serve: Serve, pki: Pki, eventually: "Eventually", kind: str
) -> None:
    site = serve(tls(), patience=QUICK)
    hello = ssl.MemoryBIO()
    session = pki.client().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    pieces = (bytes([each]) for each in hello.read()) if kind == "dribble" else endless(b"", b"")
    with site.connect() as slow, httpx.Client(verify=pki.client(), base_url=site.url) as scraper:
        assert scraper.get("/metrics").status_code == 200
        dribble(slow, pieces, eventually)
        assert scraper.get("/metrics").status_code == 200


def test_it_has_ten_seconds_of_patience_and_a_scraper_its_interval() -> None:
    assert Patience() == Patience(request=10, answer=60, idle=75)


def test_a_client_that_does_not_take_its_answer_is_cut_off(serve: Serve, eventually: "Eventually") -> None:
    site = serve(patience=QUICK)
    large = Gauge("large", "Large.", ["n"], registry=site.registry)
    for n in range(20_000):
        large.labels("x" * 500 + str(n))
    with site.connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        eventually(lambda: site.server.server_state.connections)
        eventually(lambda: not site.server.server_state.connections)
    assert len(site.get(path="/metrics").content) > 10_000_000


def test_requests_that_come_together_are_answered_in_turn(serve: Serve) -> None:
    answer = exchange(serve(), (HEAD + b"\r\n") * 9 + HEAD + LAST + b"\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == answer.count(b"healthy\n") == 10


def answered(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"\r\n")
    through(connection, b"healthy\n")


def test_200_idle_connections_do_not_stop_a_scrape(serve: Serve, eventually: "Eventually") -> None:
    """Also longer than the patience with requests, which is none with pauses between them."""
    site = serve(patience=Patience(request=0.2))
    with contextlib.ExitStack() as stack:
        idle: list[socket.socket] = []
        for _ in range(200):  # each asks at once: the patience with its first request runs from here
            idle.append(stack.enter_context(site.connect()))
            answered(idle[-1])
        began = time.monotonic()
        statuses = [site.get(path="/metrics").status_code for _ in range(10)]
        eventually(lambda: time.monotonic() - began > 0.5)
        assert statuses == [200] * 10
        assert len(site.server.server_state.connections) == 200
        for connection in idle:
            answered(connection)


def test_200_silent_connections_stop_neither_a_scrape_nor_a_handshake(
    serve: Serve, pki: Pki, eventually: "Eventually"
) -> None:
    site = serve(tls(), patience=Patience(request=2))
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(site.connect()) for _ in range(200)]
        assert site.get(pki.client(), "/metrics").status_code == 200
        for connection in silent:
            assert connection.recv(1) == b""


def test_a_stop_does_not_wait_for_idle_connections(
    serve: Serve, pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    site = serve(tls())
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            plain = stack.enter_context(site.connect())
            answered(stack.enter_context(pki.client().wrap_socket(plain, server_hostname="localhost")))
        site.stop()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_keep_alive_connection_ends_after_its_time(serve: Serve) -> None:
    site = serve(patience=Patience(idle=1))
    connection = http.client.HTTPConnection("localhost", site.port, timeout=10)
    connection.request("GET", "/-/healthy")
    connection.getresponse().read()
    assert connection.sock.recv(1) == b""
    connection.close()


# The command line


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "exporter", *words]


def test_a_bad_web_config_ends_the_command_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("basic_auth_users: {admin: hunter2}\ntls_server_config: {cert_fil: x}")
    done = subprocess.run(
        command("demo", "--web.listen-address=127.0.0.1:0", f"--web.config.file={path}"),
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == [
        "tls_server_config.cert_fil",
        "basic_auth_users.admin",
    ]
    assert "hunter2" not in done.stderr


@pytest.fixture
def secured(tmp_path: Path, pki: Pki, eventually: "Eventually") -> Iterator[str]:
    """The address of a demo with TLS and a password."""
    path = tmp_path / "web.yaml"
    path.write_text(tls() + USERS)
    with running(command("demo", "--web.listen-address=:0", f"--web.config.file={path}")) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1].removesuffix("/metrics")
        assert url.startswith("https://localhost:")
        with httpx.Client(verify=pki.client(), auth=GOOD, base_url=url) as client:
            eventually(lambda: _ready(client))
        yield url


def _ready(client: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return client.get("/-/ready").status_code == httpx.codes.OK
    return False


def test_the_exporter_tells_of_its_certificate(secured: str, pki: Pki) -> None:
    page = httpx.get(f"{secured}/metrics", verify=pki.client(), auth=GOOD).text
    assert "\nbaseten_exporter_web_config_last_reload_successful 1.0\n" in page
    (ends,) = re.findall(r"\nbaseten_exporter_web_certificate_expiry_timestamp_seconds (\S+)\n", page)
    assert 29 * 86400 < float(ends) - time.time() <= 30 * 86400


PROMETHEUS = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: baseten
    scheme: https
    tls_config: {{ca_file: ca.pem, server_name: localhost}}
    basic_auth: {{username: admin, password_file: {password}}}
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.mark.xdist_group("prometheus-tls")
def test_prometheus_scrapes_over_tls_with_a_password(
    secured: str, tmp_path: Path, eventually: "Eventually"
) -> None:
    program = _binary("prometheus")
    (tmp_path / "right").write_text(PASSWORD)
    (tmp_path / "wrong").write_text("wrong")
    target = secured.removeprefix("https://")
    jobs = PROMETHEUS.format(password="right", target=target)
    jobs += jobs[jobs.index("  - job_name") :].replace("baseten", "refused").replace("right", "wrong")
    (tmp_path / "prometheus.yml").write_text(jobs)
    url = f"http://127.0.0.1:{_free_port()}"
    words = [
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--log.level=error",
    ]
    with running([program, *words]):
        server = Prometheus(url)
        eventually(lambda: _answers(f"{url}/-/ready"))
        eventually(lambda: len(server.query("up")) == 2)
        assert {labels["job"]: value for labels, value in server.query("up")} == {"baseten": 1, "refused": 0}
        assert server.query("baseten_exporter_web_config_last_reload_successful")[0][1] == 1
