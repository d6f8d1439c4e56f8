"""The one door to the API: a question out, a typed answer or an ApiError back."""

import math
import ssl
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from exporter import __version__
from exporter.apikey import ApiKey
from exporter.baseten import listings
from exporter.baseten.answers import ErrorBody, LoopsAnswer, ModelAnswer, decode
from exporter.baseten.deadline import Deadline, enforce
from exporter.baseten.drift import Drift, Unknown
from exporter.baseten.errors import ApiError, Reason, Stopping
from exporter.baseten.throttle import Throttle

MAX_BODY = 32 * 1024 * 1024
"""Bytes, as sent and again after decompression."""

MODEL_METRICS = "model_metrics"
LOOPS_METRICS = "loops_metrics"
MODELS = "models"
DEPLOYMENTS = "deployments"
ENVIRONMENTS = "environments"
LOOPS_DEPLOYMENTS = "loops_deployments"
PRICES = "instance_type_prices"
METRICS_ENDPOINTS = (MODEL_METRICS, LOOPS_METRICS)
ENDPOINTS = (*METRICS_ENDPOINTS, MODELS, DEPLOYMENTS, ENVIRONMENTS, LOOPS_DEPLOYMENTS, PRICES)

_STATUS_REASONS: Mapping[int, Reason] = MappingProxyType(
    {401: "auth", 403: "forbidden", 404: "not_found", 429: "rate_limited"}
)
_GZIP = zlib.MAX_WBITS | 16
_UNFOLD = 1024 * 1024
_EXCERPT = 200

Answer = TypeVar("Answer")


class Observer(Protocol):
    """Told of every request, every wait for the rate limit, and what the API sends unknown to us.

    Durations in seconds.
    """

    def requested(self, workspace: str, endpoint: str, code: str, seconds: float) -> None: ...

    def waited(self, workspace: str, endpoint: str, seconds: float) -> None: ...

    def unknown(self, endpoint: str, item: Unknown) -> None: ...


@dataclass(frozen=True, slots=True)
class Connection:
    """Where and how to reach the API. `timeout` bounds a whole request, in seconds."""

    workspace: str
    url: str
    key: ApiKey
    requests_per_second: float
    timeout: float
    connections: int
    ca_file: Path | None = None


class Client:
    """One workspace's client; safe to share between threads.

    `pause(seconds)` sleeps and returns True when the exporter is stopping. The connections close
    with `close`, or when the last poll that uses the client lets go of it.
    """

    def __init__(self, connection: Connection, observer: Observer, pause: Callable[[float], bool]) -> None:
        self._connection = connection
        self._observer = observer
        self._pause = pause
        self._deadline = Deadline()
        self._http = _http(connection)
        enforce(self._http, self._deadline)
        self.drift = Drift(connection.workspace, observer.unknown, time.monotonic)
        self.close = weakref.finalize(self, self._http.close)
        self._throttles = {
            endpoint: Throttle(endpoint, connection.requests_per_second, time.monotonic)
            for endpoint in ENDPOINTS
        }

    def model_metrics(
        self, model_id: str, deployment_id: str, params: Sequence[tuple[str, str]]
    ) -> ModelAnswer:
        path = f"/v1/models/{_part(model_id)}/deployments/{_part(deployment_id)}/metrics"
        return self._get(MODEL_METRICS, path, ModelAnswer, params)

    def loops_metrics(self, deployment_id: str, body: Mapping[str, int]) -> LoopsAnswer:
        path = f"/v1/loops/deployments/{_part(deployment_id)}/metrics"
        request = self._http.build_request("POST", self._connection.url + path, json=dict(body))
        return self._ask(LOOPS_METRICS, request, LoopsAnswer)

    def models(self) -> listings.Models:
        return self._get(MODELS, "/v1/models", listings.Models)

    def deployments(self, model_id: str) -> listings.Deployments:
        return self._get(DEPLOYMENTS, f"/v1/models/{_part(model_id)}/deployments", listings.Deployments)

    def environments(self, model_id: str) -> listings.Environments:
        return self._get(ENVIRONMENTS, f"/v1/models/{_part(model_id)}/environments", listings.Environments)

    def trainers(self, scope: Literal["mine", "org"]) -> listings.Trainers:
        """The Loops deployments of the key's owner, or of the whole organization."""
        params = [("scope", "org")] if scope == "org" else []
        return self._get(LOOPS_DEPLOYMENTS, "/v1/loops/deployments", listings.Trainers, params)

    def prices(self) -> listings.Prices:
        return self._get(PRICES, "/v1/instance_type_prices", listings.Prices)

    def _get(
        self, endpoint: str, path: str, answer_type: type[Answer], params: Sequence[tuple[str, str]] = ()
    ) -> Answer:
        request = self._http.build_request("GET", self._connection.url + path, params=list(params))
        return self._ask(endpoint, request, answer_type)

    def _ask(self, endpoint: str, request: httpx.Request, answer_type: type[Answer]) -> Answer:
        self._wait_for_turn(endpoint)
        request.headers["Authorization"] = f"Bearer {self._connection.key.read()}"
        try:
            reply = self._observed(endpoint, request)
            if reply.status != httpx.codes.OK:
                raise _refusal(reply)
            answer = decode(answer_type, reply.body)
        except ApiError as error:
            error.endpoint = endpoint
            self._react(endpoint, error)
            raise
        self.drift.look(endpoint, reply.body, answer_type)
        return answer

    def _wait_for_turn(self, endpoint: str) -> None:
        seconds = self._throttles[endpoint].reserve()
        if seconds > 0:
            self._observer.waited(self._connection.workspace, endpoint, seconds)
        if self._pause(seconds):
            raise Stopping

    def _observed(self, endpoint: str, request: httpx.Request) -> "_Reply":
        started = time.monotonic()
        code = "none"
        try:
            reply = self._send(request)
            code = str(reply.status)
        except ApiError as error:
            code = error.reason
            raise
        finally:
            self._observer.requested(self._connection.workspace, endpoint, code, time.monotonic() - started)
        return reply

    def _send(self, request: httpx.Request) -> "_Reply":
        timeout = self._connection.timeout
        try:
            with self._deadline.within(timeout):
                response = self._http.send(request, stream=True)
                try:
                    return _Reply(response.status_code, _body(response), response.headers.get("retry-after"))
                finally:
                    response.close()
        except httpx.TimeoutException:
            raise ApiError("timeout", f"no complete answer within {timeout:g} s") from None
        except httpx.TransportError as error:
            raise _transport_error(error) from None

    def _react(self, endpoint: str, error: ApiError) -> None:
        if error.reason == "rate_limited":
            self._throttles[endpoint].pause(error.retry_after)
        elif error.reason == "auth":
            self._connection.key.refresh()


class _Reply(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None


def _http(connection: Connection) -> httpx.Client:
    return httpx.Client(
        headers={
            "User-Agent": f"baseten-exporter/{__version__}",
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
        },
        timeout=connection.timeout,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=connection.connections),
        verify=ssl.create_default_context(cafile=connection.ca_file),
        follow_redirects=False,
    )


def _part(text: str) -> str:
    """A path part, percent-encoded; `.` and `..` too, which a server would resolve away."""
    return quote(text, safe="").replace(".", "%2E")


def _body(response: httpx.Response) -> bytes:
    """The body, decompressed, at most MAX_BODY; a gzip bomb is not unfolded to find out."""
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding not in ("gzip", "identity", ""):
        raise ApiError("invalid_response", f"answered with content-encoding {encoding[:20]!r}, unasked")
    raw = _capped(response.iter_raw())
    return b"".join(_capped(_gunzip(raw)) if encoding == "gzip" else raw)


def _capped(chunks: Iterator[bytes]) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_BODY:
            raise ApiError("too_large", f"the answer is larger than {MAX_BODY // 2**20} MiB")
        yield chunk


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(_GZIP)
    try:
        for chunk in chunks:
            if decompressor.eof:  # read on, since the connection is to be used again, but do not gather junk
                continue
            yield decompressor.decompress(chunk, _UNFOLD)
            while decompressor.unconsumed_tail:
                yield decompressor.decompress(decompressor.unconsumed_tail, _UNFOLD)
        yield decompressor.flush()
    except zlib.error:
        raise ApiError("invalid_response", "the answer's gzip data is broken") from None
    if not decompressor.eof:
        raise ApiError("invalid_response", "the answer's gzip data is cut short")


def _transport_error(error: Exception) -> ApiError:
    causes = [error, error.__cause__, error.__context__]
    while causes[-1] is not None:
        causes.append(causes[-1].__context__)
    is_tls = any(isinstance(cause, ssl.SSLError) for cause in causes)
    return ApiError("tls" if is_tls else "connection", f"{type(error).__name__}: {error}")


def _refusal(reply: _Reply) -> ApiError:
    """The ApiError for an answer that is not 200."""
    details = _error_body(reply.body)
    said = next((str(text) for text in (details.error, details.message, details.code) if text), "")
    message = f"HTTP {reply.status}" + (f": {said[:_EXCERPT]}" if said else "")
    if 300 <= reply.status < 400:
        message += ": redirects are not followed; is api_url right?"
    wait = _retry_after(details.retry_after, reply.retry_after)
    return ApiError(_reason(reply.status), message, status=reply.status, retry_after=wait)


def _reason(status: int) -> Reason:
    if status in _STATUS_REASONS:
        return _STATUS_REASONS[status]
    if status >= 500:
        return "server_error"
    return "client_error" if status >= 400 else "invalid_response"


def _error_body(body: bytes) -> ErrorBody:
    try:
        return msgspec.json.decode(body, type=ErrorBody)
    except (msgspec.DecodeError, RecursionError):
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
