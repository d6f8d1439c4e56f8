"""What came back for a request: its body read within bounds, and the ApiError for what is no answer."""

import math
import ssl
import time
import zlib
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from exporter.baseten.answers import ErrorBody
from exporter.baseten.errors import ApiError, Reason

MAX_BODY = 8 * 1024 * 1024
"""Bytes, as sent and again after decompression."""

_TRANSIENT = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)

_STATUS_REASONS: Mapping[int, Reason] = MappingProxyType(
    {401: "auth", 403: "forbidden", 404: "not_found", 429: "rate_limited"}
)
_GZIP = zlib.MAX_WBITS | 16
_EXCERPT = 200
_MAX_REFUSAL = 64 * 1024


class Reply(NamedTuple):
    """What came, as it was sent; `content` unfolds it."""

    status: int
    raw: bytes | bytearray
    encoding: str = "identity"
    retry_after: str | None = None


def gather(chunks: Iterable[bytes]) -> bytearray:
    """A body as it is sent, at most MAX_BODY; never there twice, as in pieces and joined."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_BODY:
            raise _too_large()
    return body


def content(reply: Reply) -> bytes | bytearray:
    """The body, decompressed, at most MAX_BODY; a gzip bomb is not unfolded to find out."""
    encoding = reply.encoding.lower()
    if encoding == "gzip":
        return _gunzip(reply.raw)
    if encoding in ("identity", ""):
        return reply.raw
    raise ApiError("invalid_response", f"answered with content-encoding {encoding[:20]!r}, unasked")


def _gunzip(raw: bytes | bytearray) -> bytes:
    decompressor = zlib.decompressobj(_GZIP)
    try:
        unfolded = decompressor.decompress(raw, MAX_BODY + 1)
    except zlib.error:
        raise ApiError("invalid_response", "the answer's gzip data is broken") from None
    if len(unfolded) > MAX_BODY:
        raise _too_large()
    if not decompressor.eof:
        raise ApiError("invalid_response", "the answer's gzip data is cut short")
    return unfolded


def _too_large() -> ApiError:
    return ApiError("too_large", f"the answer is larger than {MAX_BODY // 2**20} MiB")


def transport_error(error: Exception) -> ApiError:
    """The ApiError for a connection that could not be made, or broke."""
    causes = [error, error.__cause__, error.__context__]
    while causes[-1] is not None:
        causes.append(causes[-1].__context__)
    is_tls = any(isinstance(cause, ssl.SSLError) for cause in causes)
    return ApiError(
        "tls" if is_tls else "connection", f"{type(error).__name__}: {error}", transient=not is_tls
    )


def refusal(reply: Reply) -> ApiError:
    """The ApiError for an answer that is not 200."""
    details = _error_body(reply)
    said = next((str(text) for text in (details.error, details.message, details.code) if text), "")
    message = f"HTTP {reply.status}" + (f": {said[:_EXCERPT]}" if said else "")
    if 300 <= reply.status < 400:
        message += ": redirects are not followed; is api_url right?"
    return ApiError(
        _reason(reply.status),
        message,
        status=reply.status,
        retry_after=_retry_after(details.retry_after, reply.retry_after),
        transient=reply.status in _TRANSIENT,
    )


def _reason(status: int) -> Reason:
    if status in _STATUS_REASONS:
        return _STATUS_REASONS[status]
    if status >= 500:
        return "server_error"
    return "client_error" if status >= 400 else "invalid_response"


def _error_body(reply: Reply) -> ErrorBody:
    """What is said of it; nothing, where that is no explanation of the API's."""
    try:
        body = content(reply)
        return msgspec.json.decode(body, type=ErrorBody) if len(body) <= _MAX_REFUSAL else ErrorBody()
    except (ApiError, msgspec.DecodeError, RecursionError):
        return ErrorBody()


def _retry_after(in_body: object, header: str | None) -> float | None:
    """Seconds to wait: from the body, else from the header, which holds seconds or a date."""
    for raw in (in_body, header):
        try:
            seconds = float(raw)  # type: ignore[arg-type] # what is no number raises TypeError or ValueError
        except (TypeError, ValueError, OverflowError):
            continue
        if not math.isnan(seconds):
            return seconds
    try:
        return parsedate_to_datetime(header or "").timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
