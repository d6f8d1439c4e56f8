"""The API itself: a request and the time in, a response out."""

import hmac
import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from threading import Lock
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from exporter.simulator import answers, listings
from exporter.simulator.answers import MODES, Mode, Window
from exporter.simulator.catalogue import DEFAULT, METRICS, Metric
from exporter.simulator.organization import Deployment, Model, Organization
from exporter.simulator.world import World

Json = dict[str, object]
T = TypeVar("T")

JSON = (("Content-Type", "application/json"),)
HOUR = 3_600_000
LONGEST = 7 * 24 * HOUR
MOST_POINTS = 11_000


class Request(NamedTuple):
    """`target` is the path with its query; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


class Response(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = JSON


class ApiError(Exception):
    """A refusal, with the status and the JSON body it is answered with."""

    def __init__(self, status: HTTPStatus, message: str, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.body: Json = {"error": message, **more}


class Call(NamedTuple):
    """One authorized request to a known endpoint; `now` is in milliseconds."""

    organization: Organization
    ids: Mapping[str, str]
    query: Mapping[str, list[str]]
    body: bytes
    now: int


class Endpoint(NamedTuple):
    name: str
    method: str
    path: re.Pattern[str]
    answer: Callable[[Call], Json]

    @property
    def lists(self) -> bool:
        """Whether answers change only with the organization, and not with the time as metrics do."""
        return not self.name.endswith("_metrics")


def json_response(status: int, body: object, *headers: tuple[str, str]) -> Response:
    return Response(status, json.dumps(body, separators=(",", ":")).encode(), (*JSON, *headers))


class Api:
    """Answers for one key; at most `limit` requests per second and endpoint, without limit where None.

    `world` and `key` may change at any time: every request is answered by what they are when it comes.
    """

    def __init__(self, world: World, key: str, limit: int | None = 100) -> None:
        self.world = world
        self.key = key
        self._limit = limit
        self._lock = Lock()
        self._spent: dict[str, tuple[int, int]] = {}
        self._listed: tuple[Organization, dict[str, Response]] = (world, {})

    def answer(self, request: Request, now: float) -> tuple[str, Response]:
        """The endpoint's name ("unknown" where there is none) and the response; `now` in seconds."""
        url = urlsplit(request.target)
        found = [(each, match) for each in ENDPOINTS if (match := each.path.fullmatch(url.path))]
        name = found[0][0].name if found else "unknown"
        try:
            self._authorize(request)
            endpoint, match = _pick(found, request.method)
            self._admit(endpoint, now)
            query = parse_qs(url.query, keep_blank_values=True)
            call = Call(self.world.at(now), match.groupdict(), query, request.body, int(now * 1000))
            return name, self._answer(endpoint, call, request.target)
        except ApiError as error:
            return name, json_response(error.status, error.body)

    def _answer(self, endpoint: Endpoint, call: Call, target: str) -> Response:
        """Lists are long and asked for often: each is made once for as long as nothing changes."""
        if not endpoint.lists:
            return json_response(200, endpoint.answer(call))
        organization, listed = self._listed
        if organization is not call.organization:
            listed = {}
            self._listed = (call.organization, listed)
        if target not in listed:
            listed[target] = json_response(200, endpoint.answer(call))
        return listed[target]

    def _authorize(self, request: Request) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme not in {"Bearer", "Api-Key"} or not hmac.compare_digest(key.encode(), self.key.encode()):
            raise ApiError(HTTPStatus.UNAUTHORIZED, "invalid API key")

    def _admit(self, endpoint: Endpoint, now: float) -> None:
        if self._limit is None:
            return
        second = int(now)
        with self._lock:
            last, spent = self._spent.get(endpoint.name, (second, 0))
            spent = spent + 1 if last == second else 1
            self._spent[endpoint.name] = (second, spent)
        if spent > self._limit:
            raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, "rate limit exceeded", retry_after=1)


def _pick(found: list[tuple[Endpoint, re.Match[str]]], method: str) -> tuple[Endpoint, re.Match[str]]:
    if not found:
        raise ApiError(HTTPStatus.NOT_FOUND, "no such path")
    for endpoint, match in found:
        if endpoint.method == method:
            return endpoint, match
    raise ApiError(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not allowed here")


def _bad(message: str) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, message)


def _known(found: T | None, what: str) -> T:
    if found is None:
        raise ApiError(HTTPStatus.NOT_FOUND, f"{what} not found")
    return found


def _model(call: Call) -> Model:
    return _known(call.organization.model_by_id.get(call.ids["model"]), "model")


def _deployment(call: Call) -> Deployment:
    ids = (call.ids["model"], call.ids["deployment"])
    return _known(call.organization.deployment_by_ids.get(ids), "deployment")


def _model_metrics(call: Call) -> Json:
    deployment = _deployment(call)
    mode = _mode(call)
    metrics = [each for each in _metrics(call) if deployment.serves(each)]
    start, end = (_integer(call, f"{edge}_epoch_millis") for edge in ("start", "end"))
    if mode != "CURRENT":
        return answers.model_answer(deployment, metrics, mode, _window(start, end, call.now))
    if (start, end) != (None, None):
        raise _bad("start_epoch_millis and end_epoch_millis must be omitted in CURRENT mode")
    window = Window(call.now - answers.CURRENT_MILLIS, call.now, call.now)
    return answers.model_answer(deployment, metrics, mode, window)


def _mode(call: Call) -> Mode:
    asked = call.query.get("mode", ["CURRENT"])
    for mode in MODES:
        if asked == [mode]:
            return mode
    raise _bad(f"mode must be one of {', '.join(MODES)}")


def _metrics(call: Call) -> list[Metric]:
    names = dict.fromkeys(call.query.get("metrics", DEFAULT))
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise _bad(f"unknown metrics: {', '.join(unknown)}")
    return [METRICS[name] for name in names]


def _integer(call: Call, name: str) -> int | None:
    texts = call.query.get(name, [])
    if not texts:
        return None
    if len(texts) > 1 or not re.fullmatch("[0-9]{1,16}", texts[0]):
        raise _bad(f"{name} must be an integer")
    return int(texts[0])


def _window(start: int | None, end: int | None, now: int) -> Window:
    end = now if end is None else end
    start = end - HOUR if start is None else start
    if start < 0 or end <= start:
        raise _bad("end_epoch_millis must be after start_epoch_millis")
    if end - start > LONGEST:
        raise _bad("the time range must not exceed 7 days")
    return Window(start, end, now)


def _loops_metrics(call: Call) -> Json:
    trainer = _known(call.organization.trainer_by_id.get(call.ids["deployment"]), "Loops deployment")
    body = _object(call.body)
    start, end = (_field(body, f"{edge}_epoch_millis", 0) for edge in ("start", "end"))
    step, divisor = (_field(body, f"{name}_seconds", 1) for name in ("step", "time_divisor"))
    window = _window(start, end, call.now)
    if step and (window.end - window.start) // (1000 * step) > MOST_POINTS:
        raise _bad("step_seconds is too small for the time range")
    return answers.loops_answer(trainer, window, step, divisor or 1)


def _object(body: bytes) -> Json:
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise _bad("the body must be JSON") from error
    if not isinstance(parsed, dict):
        raise _bad("the body must be a JSON object")
    return parsed


def _field(body: Json, name: str, least: int) -> int | None:
    value = body.get(name)
    if value is not None and (type(value) is not int or value < least):
        raise _bad(f"{name} must be null or an integer of at least {least}")
    return value if isinstance(value, int) else None


def _trainers(call: Call) -> Json:
    scope = call.query.get("scope")
    if scope not in (None, ["org"]):
        raise _bad("scope must be org")
    return listings.trainers(call.organization, None if scope else call.organization.user)


def _trainer(call: Call) -> Json:
    found = call.organization.trainer_by_id.get(call.ids["deployment"])
    return listings.trainer(call.organization, _known(found, "Loops deployment"))


def _endpoint(name: str, route: str, answer: Callable[[Call], Json]) -> Endpoint:
    method, _, path = route.partition(" ")
    return Endpoint(name, method, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), answer)


_MODEL = "GET /v1/models/{model}"
_DEPLOYMENT = f"{_MODEL}/deployments/{{deployment}}"
_LOOPS = "/v1/loops/deployments"
_PRICES = "/v1/instance_type_prices"
ENDPOINTS = (
    _endpoint("models", "GET /v1/models", lambda call: listings.models(call.organization)),
    _endpoint("model", _MODEL, lambda call: listings.model(_model(call))),
    _endpoint("deployments", f"{_MODEL}/deployments", lambda call: listings.deployments(_model(call))),
    _endpoint("deployment", _DEPLOYMENT, lambda call: listings.deployment(_deployment(call))),
    _endpoint("model_metrics", f"{_DEPLOYMENT}/metrics", _model_metrics),
    _endpoint("environments", f"{_MODEL}/environments", lambda call: listings.environments(_model(call))),
    _endpoint("loops_deployments", f"GET {_LOOPS}", _trainers),
    _endpoint("loops_deployment", f"GET {_LOOPS}/{{deployment}}", _trainer),
    _endpoint("loops_metrics", f"POST {_LOOPS}/{{deployment}}/metrics", _loops_metrics),
    _endpoint("instance_type_prices", f"GET {_PRICES}", lambda call: listings.prices(call.organization)),
)
