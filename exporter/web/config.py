"""The web config file in the format of the Prometheus exporter toolkit: what it may say, what comes of it."""

import difflib
import re
import ssl
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import bcrypt
from msgspec import Meta, Struct
from msgspec import field as default

from exporter.config import ConfigError, Problem, document
from exporter.config.problems import shown
from exporter.config.schema import FilePath, Text
from exporter.config.walker import Walker
from exporter.web import tls
from exporter.web.auth import Users

Switch = Annotated[bool, Meta(title="true or false")]
Secret = Annotated[str, Meta(title="a text", extra={"hidden": "."})]
HeaderValue = Annotated[str, Meta(pattern=r"^[\t -~]*$(?!\n)", title="what a header can hold")]
UserName = Annotated[
    str,
    Meta(pattern=r"^[^:\x00-\x1f\x7f]*$(?!\n)", title="a user name (it has no colon)", extra={"hidden": "."}),
]
PasswordHash = Annotated[
    str,
    Meta(
        pattern=r"^\$2[aby]\$(0[4-9]|1[0-8])\$[./A-Za-z0-9]{53}$(?!\n)",
        title="a bcrypt hash ($2a$, $2b$ or $2y$) of cost 4 to 18, as `htpasswd -nBC 10` makes them",
        extra={"hidden": "."},
    ),
]

_HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}
"""Those the toolkit knows, with the values it allows; none are any."""

_NO_RATE_LIMIT = (
    "is not offered: size and time of requests are limited, passwords are checked one at a time, and a "
    "scrape costs little; take it out"
)
_HASH = re.compile(r"\$2[a-z]?\$[0-9]{2}\$[./A-Za-z0-9]*")


class TlsServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS, in the toolkit's words."""

    cert_file: FilePath = ""
    key_file: FilePath = ""
    client_ca_file: FilePath = ""
    cert: Secret = ""
    key: Secret = ""
    client_ca: Secret = ""
    client_auth_type: Text = "NoClientCert"
    client_allowed_sans: Annotated[tuple[Text, ...], Meta(title="a list of names")] = ()
    min_version: Text = "TLS12"
    max_version: Text = "TLS13"
    cipher_suites: Annotated[tuple[Text, ...], Meta(title="a list of cipher suites")] = ()
    prefer_server_cipher_suites: Switch = True
    curve_preferences: Annotated[tuple[Text, ...], Meta(title="a list of curves")] = ()


class HttpServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """HTTP; `http2` may stand there, though only HTTP/1.1 is spoken."""

    http2: Switch = True
    headers: dict[Text, HeaderValue] = default(default_factory=dict)


class File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    tls_server_config: TlsServerConfig = default(default_factory=TlsServerConfig)
    http_server_config: HttpServerConfig = default(default_factory=HttpServerConfig)
    basic_auth_users: dict[UserName, PasswordHash] = default(default_factory=dict)


Stamp = tuple[int, ...] | None
"""What tells one content of a file from the next; None where there is no file."""


@dataclass(frozen=True, slots=True)
class WebConfig:
    """A web config that can be used as it stands; without arguments: plain HTTP, open to all.

    `expiry` is that of the certificate, in seconds since the epoch; `files` are those it was read from,
    as they were then.
    """

    context: ssl.SSLContext | None = None
    allowed_names: frozenset[str] | None = None
    expiry: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    users: Users = field(default_factory=lambda: Users({}))
    files: Mapping[Path, Stamp] = field(default_factory=dict)

    def admits(self, certificate: Mapping[str, object] | None) -> bool:
        """Whether a client with this (verified) certificate may connect."""
        return self.allowed_names is None or not self.allowed_names.isdisjoint(
            tls.alternative_names(dict(certificate or {}))
        )


def load(path: Path) -> WebConfig:
    """The web config in a file; ConfigError with every problem found. Relative paths start at its folder."""
    try:
        before = stamp(path)
        walker, content = Walker(), document.read(path)
        if content.pop("rate_limit", None) is not None:
            walker.refuse(_NO_RATE_LIMIT, "rate_limit")
        raw = walker.struct(content, File)
        config = _Builder(walker, path.parent, {path: before}).config(raw)
        problems = [Problem(*problem) for problem in walker.problems.items()]
    except ConfigError as error:
        problems = list(error.problems)
    if problems:
        # A hash may stand where something else belongs, and would be shown as such.
        raise ConfigError([Problem(*(_HASH.sub("<hidden>", text) for text in each)) for each in problems])
    return config


class _Builder:
    """Judges and converts in one go; what it returns is good only if the walker has no problems."""

    def __init__(self, walker: Walker, folder: Path, files: dict[Path, Stamp]) -> None:
        self._given = walker.given
        self._refuse = walker.refuse
        self._folder = folder
        self._files = files

    def config(self, raw: File) -> WebConfig:
        section = raw.tls_server_config
        context, expiry = self._tls(section) if self._has_tls() else (None, None)
        names = frozenset(map(tls.address, section.client_allowed_sans))
        self._headers(raw.http_server_config.headers)
        self._users(raw.basic_auth_users)
        return WebConfig(
            context,
            names if "tls_server_config.client_allowed_sans" in self._given else None,
            expiry,
            raw.http_server_config.headers,
            Users(raw.basic_auth_users),
            self._files,
        )

    def _has_tls(self) -> bool:
        return any(path.startswith("tls_server_config.") for path in self._given)

    # TLS

    def _tls(self, raw: TlsServerConfig) -> tuple[ssl.SSLContext, float | None]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        context.options |= ssl.OP_NO_RENEGOTIATION
        if not raw.prefer_server_cipher_suites:
            context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        self._versions(context, raw)
        self._ciphers(context, raw)
        self._curves(context, raw.curve_preferences)
        self._clients(context, raw)
        return context, self._certificate(context, raw)

    def _versions(self, context: ssl.SSLContext, raw: TlsServerConfig) -> None:
        limits = {"min_version": raw.min_version, "max_version": raw.max_version}
        known = [
            self._known(text, tls.VERSIONS, f"tls_server_config.{key}", "a TLS version")
            for key, text in limits.items()
        ]
        if not all(known):
            return
        if tls.VERSIONS[raw.min_version] > tls.VERSIONS[raw.max_version]:
            message = f"{raw.min_version} is above max_version ({raw.max_version}): no version is left"
            self._refuse(message, "tls_server_config.min_version", "tls_server_config.max_version")
            return
        tls.limit_versions(context, raw.min_version, raw.max_version)

    def _ciphers(self, context: ssl.SSLContext, raw: TlsServerConfig) -> None:
        path, names = "tls_server_config.cipher_suites", raw.cipher_suites
        every = (*tls.CIPHERS, *tls.TLS13_CIPHERS)
        known = [
            self._known(name, every, f"{path}[{index}]", "a cipher suite that Go calls secure")
            for index, name in enumerate(names)
        ]
        if not names or not all(known):
            return
        if raw.max_version != "TLS13" and not any(name in tls.CIPHERS for name in names):
            message = f"holds suites of TLS 1.3 only, and max_version is {raw.max_version}: none is left"
            self._refuse(message, path, "tls_server_config.max_version")
            return
        try:
            tls.choose_ciphers(context, names)
        except ssl.SSLError:
            self._refuse("OpenSSL has none of these on this machine: name others", path)

    def _curves(self, context: ssl.SSLContext, names: tuple[str, ...]) -> None:
        path = "tls_server_config.curve_preferences"
        known = [
            self._known(name, tls.CURVES, f"{path}[{index}]", "a curve") for index, name in enumerate(names)
        ]
        if len(names) > 1:
            message = "Python's ssl takes one curve, not an order of several: name one, or take the key out"
            self._refuse(message, path)
        elif names and all(known):
            context.set_ecdh_curve(tls.CURVES[names[0]])

    def _clients(self, context: ssl.SSLContext, raw: TlsServerConfig) -> None:
        path, kind = "tls_server_config.client_auth_type", raw.client_auth_type
        if kind in tls.UNVERIFIED_CLIENT_AUTH:
            message = (
                f"{kind} takes any certificate unverified, which Python's ssl cannot do and which is "
                "insecure: write RequireAndVerifyClientCert"
            )
            self._refuse(message, path)
        elif self._known(kind, tls.CLIENT_AUTH, path, "a client_auth_type"):
            context.verify_mode = tls.CLIENT_AUTH[kind]
        self._authorities(context, raw)
        if "tls_server_config.client_allowed_sans" not in self._given:
            return
        sans = "tls_server_config.client_allowed_sans"
        if not raw.client_allowed_sans:
            self._refuse("is an empty list, which nobody matches: name one, or take the key out", sans)
        if kind != "RequireAndVerifyClientCert":
            message = "needs client_auth_type: RequireAndVerifyClientCert, or there may be no name to match"
            self._refuse(message, sans, path)

    def _authorities(self, context: ssl.SSLContext, raw: TlsServerConfig) -> None:
        """Trust the operator's authorities, or like Go the system's where none are named."""
        path = f"tls_server_config.{'client_ca_file' if raw.client_ca_file else 'client_ca'}"
        if raw.client_ca_file and raw.client_ca:
            self._refuse("client_ca is there, too: keep one of the two", path)
        pem = self._read(raw.client_ca_file, path) if raw.client_ca_file else raw.client_ca
        if pem is None:
            return
        if not pem:
            if context.verify_mode != ssl.CERT_NONE:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
            return
        if raw.client_auth_type == "NoClientCert":
            message = "has no effect without client_auth_type: write RequireAndVerifyClientCert there"
            self._refuse(message, path)
        # As in Go: what is named is trusted, also if it is not a root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=pem.encode("ascii", "ignore").decode())
        except (ssl.SSLError, ValueError):
            self._refuse("holds no certificate (PEM) that OpenSSL can read", path)

    def _certificate(self, context: ssl.SSLContext, raw: TlsServerConfig) -> float | None:
        """Load certificate and key; return when the certificate expires."""
        certificate = self._pem(raw.cert_file, raw.cert, "cert", "CERTIFICATE")
        key = self._pem(raw.key_file, raw.key, "key", "PRIVATE KEY")
        path = "tls_server_config.key_file"
        if key is not None and "ENCRYPTED" in key:
            self._refuse("the key is encrypted, and nobody is there to type the password: decrypt it", path)
        elif key is not None and certificate is not None:
            try:
                context.load_cert_chain(self._folder / raw.cert_file, self._folder / raw.key_file)
                return tls.expiry(certificate)
            except ssl.SSLError as error:
                reason = (error.reason or "").replace("_", " ").lower() or "it is not what OpenSSL can read"
                self._refuse(f"does not go with cert_file: {reason}", path, "tls_server_config.cert_file")
            except OSError as error:
                self._refuse(f"cannot be read: {error.strerror}", path)
            except ValueError:  # what OpenSSL takes, and its end cannot be told
                self._refuse("is no X.509 certificate in order", "tls_server_config.cert_file")
        return None

    def _pem(self, file: str, inline: str, name: str, kind: str) -> str | None:
        path = f"tls_server_config.{name}_file"
        if inline:
            message = f"Python's ssl reads it from a file only: write {name}_file with the path of one"
            self._refuse(message, f"tls_server_config.{name}")
        elif not file:
            self._refuse("is missing: without it there is no TLS, so write it or take out the section", path)
        else:
            text = self._read(file, path)
            if text is None or f"{kind}-----" in text:
                return text
            self._refuse(f"{shown(file)} holds no PEM {kind.lower()}", path)
        return None

    def _read(self, file: str, path: str) -> str | None:
        full = self._folder / file
        try:
            # Stamped before it is read: a change in between is then seen as one later.
            self._files[full] = stamp(full)
            if not stat.S_ISREG(full.stat().st_mode):
                self._refuse(f"{shown(file)} is not a regular file", path)
                return None
            return full.read_text("ascii", errors="ignore")  # of comments, say
        except OSError as error:
            self._refuse(f"{shown(file)} cannot be read: {error.strerror}", path)
            return None

    # HTTP

    def _headers(self, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            path = f"http_server_config.headers.{name}"
            if self._known(name, _HEADERS, path, "a header that can be set") and value and _HEADERS[name]:
                self._known(value, _HEADERS[name], path, "a value it can have")

    def _users(self, hashes: Mapping[str, str]) -> None:
        for name, each in hashes.items():
            try:
                bcrypt.hashpw(b"", b"$2b$04$" + each.encode()[7:29])  # the cheapest use of its salt
            except ValueError:
                self._refuse("the hash has a salt that bcrypt cannot use", f"basic_auth_users.{name}")

    def _known(self, value: str, known: Collection[str], path: str, what: str) -> bool:
        """Whether it is one of them; if not, that is a problem."""
        if value not in known:
            near = difflib.get_close_matches(value, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(known)}"
            self._refuse(f"{shown(value)} is not {what}; {hint}", path)
        return value in known


def stamp(path: Path) -> Stamp:
    """Links are followed, since Kubernetes swaps those."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
