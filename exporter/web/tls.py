"""TLS with Go's names for it, as far as Python's ssl goes; and what certificates say."""

import ipaddress
import ssl
import warnings
from collections.abc import Callable
from typing import Any, Self

from cryptography import x509

VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}

CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
"""Those of Go's `tls.CipherSuites()` up to TLS 1.2, by OpenSSL's names."""

TLS13_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Known, too, but neither Go nor Python chooses among them: all are always on."""

CURVES = {
    "X25519": "X25519",
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
}

CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
UNVERIFIED_CLIENT_AUTH = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
"""They ask for a certificate and believe any, which Python's ssl cannot do."""


class CurrentContext(ssl.SSLContext):
    """Stands in for the context of the moment, so that each new connection gets the newest."""

    _current: Callable[[], ssl.SSLContext | None]

    @classmethod
    def of(cls, current: Callable[[], ssl.SSLContext | None]) -> Self:
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._current = current
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:  # noqa: ANN401 - passed on
        """Begin a connection, as asyncio does."""
        current = self._current()
        assert current is not None
        return current.wrap_bio(*args, **kwargs)


def limit_versions(context: ssl.SSLContext, lowest: str, highest: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TLS10 and TLS11, which the operator chose
        context.minimum_version = VERSIONS[lowest]
        context.maximum_version = VERSIONS[highest]
    if VERSIONS[lowest] < ssl.TLSVersion.TLSv1_2:
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # OpenSSL 3 lets no older version pass otherwise


def choose_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    """Offer these suites of Go's only, in this order; ssl.SSLError if OpenSSL has none of them."""
    older = [CIPHERS[name] for name in names if name in CIPHERS]
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    old = context.minimum_version < ssl.TLSVersion.TLSv1_2
    context.set_ciphers(":".join([*older, "@SECLEVEL=0"] if old else older))


def expiry(pem: str) -> float:
    """When the first certificate of a PEM text expires, in seconds since the epoch."""
    first, *_ = x509.load_pem_x509_certificates(pem.encode())
    return first.not_valid_after_utc.timestamp()


def alternative_names(certificate: dict[str, Any]) -> set[str]:
    """The DNS names, e-mail addresses, URIs and IP addresses of what `getpeercert` returns."""
    names = certificate.get("subjectAltName", ())
    plain = {value for kind, value in names if kind in ("DNS", "email", "URI")}
    return plain | {address(value) for kind, value in names if kind == "IP Address"}


def address(text: str) -> str:
    """An IP address in its one usual form; any other text as it is."""
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return text
