"""The web config file: what it may say, what is refused in which words, and how it is followed."""

import contextlib
import logging
import os
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import bcrypt
import pytest
import trustme
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.config import ConfigError
from exporter.web import tls
from exporter.web.config import WebConfig, load
from exporter.web.live import LiveWebConfig

HASH = "$2y$05$cWULyh.b6GuXIdz9caxGuurIRVq6j4pNTQFUMIYwhkoc9Ix1gg0EO"
PAIR = "tls_server_config: {cert_file: cert.pem, key_file: key.pem"
BAD = sorted(Path(__file__).parent.glob("web-config/*.bad.yml"))
PAGE = (Path(__file__).parent.parent / "docs" / "web.md").read_text("utf-8")
EXAMPLES = re.findall(r"```yaml\n((?!scrape_configs).*?)```", PAGE, re.DOTALL)
CERTIFICATE_ENDS = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def folder(tmp_path: Path, authority: trustme.CA) -> Path:
    """A folder with a certificate, its key, and what may be mistaken for one."""
    pair = authority.issue_cert("localhost", not_after=CERTIFICATE_ENDS)
    pair.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    pair.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.issue_cert("localhost").private_key_pem.write_to_path(tmp_path / "other-key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "text.pem").write_text("hello")
    (tmp_path / "junk.pem").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    (tmp_path / "encrypted.pem").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    return tmp_path


def read(folder: Path, text: str) -> WebConfig:
    path = folder / "web.yaml"
    path.write_text(text)
    return load(path)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    return [str(problem) for problem in caught.value.problems]


# What it may say


def test_a_whole_file_as_the_toolkit_documents_it_is_read(folder: Path) -> None:
    config = read(
        folder,
        f"""\
tls_server_config:
  cert_file: cert.pem
  key_file: {folder}/key.pem
  client_ca_file: ca.pem
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [prometheus.example, 2001:DB8::1]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: true
  curve_preferences: [CurveP256]
http_server_config:
  http2: true
  headers:
    Content-Security-Policy: default-src 'self'
    X-Frame-Options: sameorigin
    X-Content-Type-Options: nosniff
    X-XSS-Protection: "0"
    Strict-Transport-Security: max-age=31536000
basic_auth_users:
  prometheus: {HASH}
  "": {HASH.replace("$2y$", "$2b$")}
""",
    )
    assert config.context is not None
    assert config.context.verify_mode is ssl.CERT_REQUIRED
    assert config.allowed_names == frozenset({"prometheus.example", "2001:db8::1"})
    assert config.expiry == CERTIFICATE_ENDS.timestamp()
    assert config.headers["Strict-Transport-Security"] == "max-age=31536000"
    assert repr(config.users) == "Users(2)"
    assert {path.name for path in config.files} == {"web.yaml", "cert.pem", "key.pem", "ca.pem"}


@pytest.mark.parametrize("text", ["{}", "tls_server_config: {}", "http_server_config: {http2: false}"])
def test_without_a_certificate_there_is_no_tls(folder: Path, text: str) -> None:
    config = read(folder, text)
    assert (config.context, config.expiry, bool(config.users)) == (None, None, False)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("NoClientCert", ssl.CERT_NONE),
        ("VerifyClientCertIfGiven", ssl.CERT_OPTIONAL),
        ("RequireAndVerifyClientCert", ssl.CERT_REQUIRED),
    ],
)
def test_client_auth_types_are_those_of_go(folder: Path, name: str, mode: ssl.VerifyMode) -> None:
    context = read(folder, f"{PAIR}, client_auth_type: {name}}}").context
    assert context is not None
    assert context.verify_mode is mode


def test_the_authorities_of_the_system_are_trusted_where_none_is_named(folder: Path) -> None:
    context = read(folder, f"{PAIR}, client_auth_type: RequireAndVerifyClientCert}}").context
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN


def test_comments_between_certificates_may_be_in_any_language(folder: Path) -> None:
    for name in ("ca.pem", "cert.pem"):
        (folder / name).write_text(f"# größer\n{(folder / name).read_text()}", "utf-8")
    text = f"{PAIR}, client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert}}"
    assert read(folder, text).expiry == CERTIFICATE_ENDS.timestamp()


def test_the_client_authority_may_stand_in_the_file_itself(folder: Path) -> None:
    text = (folder / "ca.pem").read_text().replace("\n", "\n    ")
    head = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
    auth = "  client_auth_type: VerifyClientCertIfGiven\n"
    context = read(folder, f"{head}{auth}  client_ca: |\n    {text}\n").context
    assert context is not None
    assert context.cert_store_stats()["x509"] == 1


@pytest.mark.parametrize(("go", "openssl"), tls.CIPHERS.items(), ids=tls.CIPHERS)
def test_every_cipher_suite_of_go_is_one_of_openssl(folder: Path, go: str, openssl: str) -> None:
    context = read(folder, f"{PAIR}, cipher_suites: [{go}]}}").context
    assert context is not None
    chosen = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert chosen == [openssl]


@pytest.mark.parametrize("curve", tls.CURVES)
def test_every_curve_of_the_toolkit_is_one_of_openssl(folder: Path, curve: str) -> None:
    assert read(folder, f"{PAIR}, curve_preferences: [{curve}]}}").context


def test_suites_of_tls_1_3_alone_leave_tls_1_3_alone(folder: Path) -> None:
    context = read(folder, f"{PAIR}, cipher_suites: [TLS_AES_256_GCM_SHA384]}}").context
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_the_clients_order_of_suites_can_be_preferred(folder: Path) -> None:
    servers = read(folder, f"{PAIR}}}").context
    clients = read(folder, f"{PAIR}, prefer_server_cipher_suites: false}}").context
    assert servers is not None
    assert clients is not None
    assert servers.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert not clients.options & ssl.OP_CIPHER_SERVER_PREFERENCE


@pytest.mark.parametrize("year", [2049, 2050, 9999])
def test_the_expiry_is_that_of_the_certificate(authority: trustme.CA, year: int) -> None:
    end = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    pem = authority.issue_cert("localhost", not_after=end).cert_chain_pems[0].bytes()
    assert tls.expiry(f"key and comments first\n{pem.decode()}") == end.timestamp()


# What is refused


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name.removesuffix(".bad.yml"))
def test_a_bad_file_is_refused_with_every_problem_and_the_nearest_key(folder: Path, path: Path) -> None:
    """Each file begins with what is wrong with it."""
    text = path.read_text("utf-8")
    told = [each.removeprefix(f"{folder}/web.yaml: ") for each in problems(folder, text)]
    assert told == re.findall("^# error: (.+)", text, re.MULTILINE)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        load(tmp_path / "web.yaml")


@pytest.mark.parametrize(
    "users",
    [
        "{admin: hunter2}",
        "{admin: 271828}",
        f"{{admin: {HASH[:-1]}}}",
        f"{{admin: {HASH.replace('$05$', '$31$')}}}",
        f"{{admin: {HASH.replace('$2y$', '$2x$')}}}",
        f"{{admin: {HASH[:28] + 'z' + HASH[29:]}}}",
        f"{{{HASH}: admin}}",
        f"{{a: {HASH}, {HASH}: b, {HASH}: c}}",
        f"[{HASH}]",
        f"{{admin: [{HASH}]}}",
        f'{{"a:b": {HASH}}}',
        f'{{"a\\n{HASH}": {HASH}}}',
    ],
)
def test_no_password_and_no_hash_is_repeated(folder: Path, users: str) -> None:
    told = "\n".join(problems(folder, f"basic_auth_users: {users}"))
    assert told.startswith(("basic_auth_users", str(folder)))
    for secret in ("hunter2", "271828", HASH[7:20], HASH[40:50]):
        assert secret not in told


def test_no_key_is_repeated(folder: Path) -> None:
    told = problems(folder, "tls_server_config: {cert: [s3cr3t], key: {s3cr3t: 1}, client_ca: s3cr3t}")
    assert "s3cr3t" not in "\n".join(told)


def test_a_hash_appears_in_no_repr(folder: Path) -> None:
    assert HASH[7:] not in repr(read(folder, f"basic_auth_users: {{admin: {HASH}}}"))


YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["cert.pem", "."]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "tls_server_config",
                    "http_server_config",
                    "basic_auth_users",
                    "headers",
                    "cert_file",
                    "key_file",
                    "client_ca",
                    "client_ca_file",
                    "cipher_suites",
                    "min_version",
                    "client_auth_type",
                    "X-Frame-Options",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(data=YAML)
def test_no_content_raises_anything_but_a_config_error(
    data: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_text(yaml.safe_dump(data))
    with contextlib.suppress(ConfigError):
        load(path)


# Following the files


class Told:
    """Hears what the exporter's own metrics would."""

    def __init__(self) -> None:
        self.good: list[bool] = []
        self.expiry: float | None = None

    def web_config(self, *, good: bool) -> None:
        self.good.append(good)

    def certificate(self, expiry: float) -> None:
        self.expiry = expiry


@pytest.fixture
def told() -> Told:
    return Told()


def live(folder: Path, told: Told, text: str) -> LiveWebConfig:
    (folder / "web.yaml").write_text(text)
    return LiveWebConfig(folder / "web.yaml", told)


def test_what_has_not_changed_is_not_read_again(folder: Path, told: Told) -> None:
    web = live(folder, told, f"{PAIR}}}")
    before = web()
    assert not web.refresh()
    assert web() is before
    assert told.good == [True]


@pytest.mark.parametrize("name", ["cert.pem", "key.pem", "ca.pem"])
def test_each_file_is_followed(folder: Path, told: Told, name: str) -> None:
    text = f"{PAIR}, client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert}}"
    web = live(folder, told, text)
    before = web()
    os.utime(folder / name, (1, 1))
    assert web.refresh()
    assert web() is not before
    assert not web.refresh()


def test_a_new_certificate_brings_its_expiry(folder: Path, told: Told, authority: trustme.CA) -> None:
    web = live(folder, told, f"{PAIR}}}")
    assert told.expiry == CERTIFICATE_ENDS.timestamp()
    end = datetime(2040, 1, 1, tzinfo=UTC)
    pair = authority.issue_cert("localhost", not_after=end)
    pair.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    assert not web.refresh(), "its key is not there yet"
    assert (told.good, told.expiry) == ([True, False], CERTIFICATE_ENDS.timestamp())
    pair.private_key_pem.write_to_path(folder / "key.pem")
    assert web.refresh()
    assert (told.good, told.expiry) == ([True, False, True], end.timestamp())


def test_links_are_followed_as_kubernetes_swaps_them(folder: Path, told: Told) -> None:
    mount = folder / "mount"
    for name, users in (("one", "{}"), ("two", f"{{admin: {HASH}}}")):
        (mount / name).mkdir(parents=True)
        (mount / name / "web.yaml").write_text(f"basic_auth_users: {users}")
    (mount / "..data").symlink_to("one")
    (mount / "web.yaml").symlink_to("..data/web.yaml")
    web = LiveWebConfig(mount / "web.yaml", told)
    assert not web().users
    (mount / "..new").symlink_to("two")
    (mount / "..new").rename(mount / "..data")
    assert web.refresh()
    assert web().users


@pytest.mark.parametrize(
    "break_it",
    [
        lambda folder: (folder / "web.yaml").write_text("basic_auth_users: {a: b}"),
        lambda folder: (folder / "web.yaml").write_text(""),
        lambda folder: (folder / "web.yaml").unlink(),
        lambda folder: (folder / "cert.pem").unlink(),
        lambda folder: (folder / "key.pem").write_text("hello"),
        lambda folder: (folder / "web.yaml").write_text("{}"),
    ],
    ids=["user", "empty", "gone", "certificate-gone", "key-bad", "tls-off"],
)
def test_a_bad_later_file_changes_nothing_and_is_logged_once(
    folder: Path, told: Told, caplog: pytest.LogCaptureFixture, break_it: Callable[[Path], object]
) -> None:
    web = live(folder, told, f"{PAIR}}}")
    before = web()
    break_it(folder)
    for _ in range(3):
        assert not web.refresh()
    assert web() is before
    assert told.good == [True, False, False, False]
    (record,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    assert record.message == "web config not reloaded, the old one stays"


def test_each_new_problem_is_logged_and_the_old_file_heals_it(
    folder: Path, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "web.yaml"
    web = live(folder, told, f"{PAIR}}}")
    path.rename(folder / "aside")
    for text in ("x: 1", "y: 1", "y: 1"):
        path.write_text(text)
        assert not web.refresh()
    (folder / "aside").rename(path)
    assert web.refresh(), "the very file that was good before, to the inode"
    assert told.good[-1]
    texts = [each.__dict__["problems"][:1] for each in caplog.records if each.levelno == logging.ERROR]
    assert texts == ["x", "y"]


def test_a_first_file_that_is_bad_is_an_error(folder: Path, told: Told) -> None:
    with pytest.raises(ConfigError):
        live(folder, told, "x: 1")
    assert told.good == []


def test_the_hash_of_the_tests_is_one() -> None:
    assert bcrypt.checkpw(b"correct horse", HASH.encode())


# The documentation


@pytest.mark.parametrize("section", EXAMPLES, ids=lambda section: section.splitlines()[-1].strip()[:20])
def test_an_example_of_the_documentation_is_read(folder: Path, section: str) -> None:
    for example, ours in {"server": "cert", "server-key": "key", "clients-ca": "ca"}.items():
        (folder / f"{example}.pem").symlink_to(f"{ours}.pem")
    assert read(folder, section) != WebConfig()


def test_the_documentation_has_examples() -> None:
    assert len(EXAMPLES) == 4
