"""The one door to the API: a question out, a typed answer or an ApiError back."""

import random
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, cast
from urllib.parse import quote, urlencode

import httpx

from exporter import __version__
from exporter.apikey import ApiKey
from exporter.baseten import listings
from exporter.baseten.answers import LoopsAnswer, ModelAnswer, decode
from exporter.baseten.circuit import Circuit, Outage
from exporter.baseten.connections import Connections
from exporter.baseten.deadline import Deadline
from exporter.baseten.drift import Drift, Unknown
from exporter.baseten.errors import ApiError, EndpointPaused, HeldBack, Stopping
from exporter.baseten.replies import Reply, content, gather, refusal, transport_error
from exporter.baseten.throttle import Throttle

MODEL_METRICS = "model_metrics"
LOOPS_METRICS = "loops_metrics"
MODELS = "models"
DEPLOYMENTS = "deployments"
ENVIRONMENTS = "environments"
LOOPS_DEPLOYMENTS = "loops_deployments"
PRICES = "instance_type_prices"
METRICS_ENDPOINTS = (MODEL_METRICS, LOOPS_METRICS)
ENDPOINTS = (*METRICS_ENDPOINTS, MODELS, DEPLOYMENTS, ENVIRONMENTS, LOOPS_DEPLOYMENTS, PRICES)

_HEADERS = httpx.Headers(
    {
        "User-Agent": f"baseten-exporter/{__version__}",
        "Accept": "application/json",
        "Accept-Encoding": "gzip",
    }
)
_JITTER = (0.1, 0.5)
"""Seconds before a retry: so that what broke many requests at once does not get them all back at once."""

_READING = threading.Lock()
"""Answers are unfolded, decoded and used one at a time, over all workspaces: so what they unfold to is in
memory once, however many polls are under way. It takes little time: Python runs one thread at a time."""

Answer = TypeVar("Answer")
Made = TypeVar("Made")


class Observer(Protocol):
    """Told of what happens on the way to the API, and of what the API sends unknown to us.

    Durations in seconds.
    """

    def requested(self, workspace: str, endpoint: str, code: str, seconds: float) -> None: ...

    def waited(self, workspace: str, endpoint: str, seconds: float) -> None: ...

    def retried(self, workspace: str, endpoint: str) -> None: ...

    def paused(self, workspace: str, endpoint: str, seconds: float) -> None: ...

    def unknown(self, endpoint: str, item: Unknown) -> None: ...


@dataclass(frozen=True, slots=True)
class Connection:
    """Where and how to reach the API.

    `timeout` bounds a whole request, its retry included; while nothing gets through, one probe goes
    out every `probe_interval`. Both in seconds. `ca` has the certificates to trust, PEM, instead of the
    usual ones.
    """

    workspace: str
    url: str
    key: ApiKey
    requests_per_second: float
    timeout: float
    probe_interval: float = 60.0
    ca: str | None = None


class Spare:
    """What one poll may ask again: one request, once. A request without has one of its own."""

    def __init__(self) -> None:
        self._left = True

    def take(self) -> bool:
        left, self._left = self._left, False
        return left


class Client:
    """One workspace's client; safe to share between threads.

    `pause(seconds)` sleeps and returns True when the exporter is stopping. The connections close
    with `close`, or when the last poll that uses the client lets go of it. The `throttles` of another
    client of the same API go on with their turns and pauses.
    """

    def __init__(
        self,
        connection: Connection,
        observer: Observer,
        pause: Callable[[float], bool],
        throttles: Mapping[str, Throttle] | None = None,
    ) -> None:
        self._connection = connection
        self._observer = observer
        self._pause = pause
        self._deadline = Deadline()
        self._connections = Connections(httpx.URL(connection.url), connection.ca, self._deadline)
        self.drift = Drift(connection.workspace, observer.unknown, time.monotonic)
        self.close = weakref.finalize(self, self._connections.close)
        rate = connection.requests_per_second
        self.throttles = throttles or {each: Throttle(each, rate, time.monotonic) for each in ENDPOINTS}
        for throttle in self.throttles.values():
            throttle.rate = rate
        self._last_key = connection.key.read()
        self._circuit = Circuit(connection.workspace, connection.probe_interval, time.monotonic)

    @property
    def outage(self) -> Outage | None:
        """Why the workspace's circuit is open; None while it is not. Times are monotonic."""
        return self._circuit.outage

    def is_cut_off(self) -> bool:
        """Whether nothing gets through, and only probes go out."""
        return self.outage is not None

    def paused(self, endpoint: str) -> float:
        """The seconds that the endpoint is still left alone after a 429."""
        return self.throttles[endpoint].paused()

    def model_metrics(
        self,
        model_id: str,
        deployment_id: str,
        params: Sequence[tuple[str, str]],
        use: Callable[[ModelAnswer], Made],
        spare: Spare | None = None,
    ) -> Made:
        """What `use` makes of the answer. It should keep nothing of it, and not take long."""
        path = f"/v1/models/{_part(model_id)}/deployments/{_part(deployment_id)}/metrics"
        request = self._request("GET", f"{path}?{urlencode(params)}")
        return self._ask(MODEL_METRICS, request, ModelAnswer, use, spare)

    def loops_metrics(
        self,
        deployment_id: str,
        question: Mapping[str, int],
        use: Callable[[LoopsAnswer], Made],
        spare: Spare | None = None,
    ) -> Made:
        """What `use` makes of the answer. It should keep nothing of it, and not take long."""
        path = f"/v1/loops/deployments/{_part(deployment_id)}/metrics"
        request = self._request("POST", path, json=dict(question))
        return self._ask(LOOPS_METRICS, request, LoopsAnswer, use, spare)

    def models(self) -> listings.Models:
        return self._list(MODELS, "/v1/models", listings.Models)

    def deployments(self, model_id: str) -> listings.Deployments:
        return self._list(DEPLOYMENTS, f"/v1/models/{_part(model_id)}/deployments", listings.Deployments)

    def environments(self, model_id: str) -> listings.Environments:
        return self._list(ENVIRONMENTS, f"/v1/models/{_part(model_id)}/environments", listings.Environments)

    def trainers(self, scope: Literal["mine", "org"]) -> listings.Trainers:
        """The Loops deployments of the key's owner, or of the whole organization."""
        query = "?scope=org" if scope == "org" else ""
        return self._list(LOOPS_DEPLOYMENTS, f"/v1/loops/deployments{query}", listings.Trainers)

    def prices(self) -> listings.Prices:
        return self._list(PRICES, "/v1/instance_type_prices", listings.Prices)

    def _list(self, endpoint: str, target: str, answer_type: type[Answer]) -> Answer:
        return self._ask(endpoint, self._request("GET", target), answer_type, lambda answer: answer)

    def _request(self, method: str, target: str, json: object = None) -> httpx.Request:
        return httpx.Request(method, self._connection.url + target, headers=_HEADERS, json=json)

    def _ask(
        self,
        endpoint: str,
        request: httpx.Request,
        answer_type: type[Answer],
        use: Callable[[Answer], Made],
        spare: Spare | None = None,
    ) -> Made:
        self._present_key()
        try:
            self._circuit.enter()
            turn = self.throttles[endpoint].reserve()
        except HeldBack as held:
            held.endpoint = endpoint
            raise
        self._take_turn(turn, endpoint)
        key = self._present_key()  # it may have been replaced while this waited for its turn
        end = time.monotonic() + self._connection.timeout
        try:
            try:
                reply = self._attempt(endpoint, request, key, end)
            except ApiError as error:
                again = self._before_retry(endpoint, error, key, end, Spare() if spare is None else spare)
                if again is None:
                    raise
                reply = self._attempt(endpoint, request, again, end)
            made = self._read(endpoint, reply, answer_type, use)
        except ApiError as error:
            error.endpoint = endpoint
            self._circuit.failed(error)
            raise
        self._circuit.succeeded()
        return made

    def _present_key(self) -> str:
        """The key; a new one is reason to try again though nothing got through with the last."""
        key = self._connection.key.read()
        if key != self._last_key:
            self._last_key = key
            self._circuit.probe_now()
        return key

    def _before_retry(self, endpoint: str, error: ApiError, key: str, end: float, spare: Spare) -> str | None:
        """Wait for the retry and return the key for it; None where there is to be none."""
        fresh = self._connection.key.refresh() if error.reason == "auth" else key
        if not (error.transient or fresh != key) or not spare.take():
            return None
        try:
            turn = self.throttles[endpoint].reserve()
        except EndpointPaused:
            return None
        wait = max(turn, error.retry_after or 0) + random.uniform(*_JITTER)  # noqa: S311 - no secret
        if time.monotonic() + wait >= end:
            return None
        self._observer.retried(self._connection.workspace, endpoint)
        self._take_turn(wait, endpoint)
        return fresh

    def _take_turn(self, seconds: float, endpoint: str) -> None:
        if seconds > 0:
            self._observer.waited(self._connection.workspace, endpoint, seconds)
        if self._pause(seconds):
            raise Stopping

    def _attempt(self, endpoint: str, request: httpx.Request, key: str, end: float) -> Reply:
        """Send the request once; `end` is when it must be over, of the monotonic clock."""
        request.headers["Authorization"] = f"Bearer {key}"
        reply = self._observed(endpoint, request, end)
        if reply.status != httpx.codes.OK:
            raise self._refused(endpoint, reply)
        return reply

    def _read(
        self, endpoint: str, reply: Reply, answer_type: type[Answer], use: Callable[[Answer], Made]
    ) -> Made:
        with _READING:
            body = content(reply)
            made = use(decode(answer_type, body))
            self.drift.look(endpoint, body, answer_type)
            return made

    def _refused(self, endpoint: str, reply: Reply) -> ApiError:
        with _READING:
            error = refusal(reply)
        if error.reason == "rate_limited":
            left = self.throttles[endpoint].pause(error.retry_after)
            self._observer.paused(self._connection.workspace, endpoint, left)
        return error

    def _observed(self, endpoint: str, request: httpx.Request, end: float) -> Reply:
        started = time.monotonic()
        code = "none"
        try:
            reply = self._send(request, end - started)
            code = str(reply.status)
        except ApiError as error:
            code = error.reason
            raise
        finally:
            self._observer.requested(self._connection.workspace, endpoint, code, time.monotonic() - started)
        return reply

    def _send(self, request: httpx.Request, seconds: float) -> Reply:
        try:
            with self._deadline.within(seconds), self._connections.one() as http:
                response = http.handle_request(request)
                try:
                    raw, headers = gather(cast("httpx.SyncByteStream", response.stream)), response.headers
                    encoding = headers.get("content-encoding", "identity")
                    return Reply(response.status_code, raw, encoding, headers.get("retry-after"))
                finally:
                    response.close()
        except httpx.ConnectTimeout:
            raise ApiError("connection", f"no connection within {self._connection.timeout:g} s") from None
        except httpx.TimeoutException:
            raise ApiError("timeout", f"no complete answer within {self._connection.timeout:g} s") from None
        except (httpx.TransportError, UnicodeError) as error:  # UnicodeError: a host that IDNA refuses
            raise transport_error(error) from None


def _part(text: str) -> str:
    """A path part, percent-encoded; `.` and `..` too, which a server would resolve away."""
    return quote(text, safe="").replace(".", "%2E")
