"""The one door that all routes stand behind."""

from collections.abc import Callable
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.web.auth import BusyError
from exporter.web.config import WebConfig
from exporter.web.security import with_headers

_LONGEST_BODY = 4096


class Door:
    """Adds headers to every answer, and lets only those requests in that may and that are small."""

    def __init__(self, app: ASGIApp, web: Callable[[], WebConfig]) -> None:
        self._app = app
        self._web = web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        web, headers = self._web(), Headers(scope=scope)
        send = with_headers(send, web.headers)
        app = await _refusal(web, headers) or await _too_large(headers, receive) or self._app
        await app(scope, receive, send)


async def _refusal(web: WebConfig, headers: Headers) -> PlainTextResponse | None:
    """The answer to who may not come in; None for who may."""
    try:
        if not web.users or await web.users.admit(headers.get("authorization", "")):
            return None
    except BusyError:
        message = "too many passwords wait to be checked, try again\n"
        return PlainTextResponse(message, HTTPStatus.SERVICE_UNAVAILABLE, {"retry-after": "1"})
    challenge = {"www-authenticate": 'Basic realm="baseten-exporter", charset="UTF-8"'}
    return PlainTextResponse("unauthorized\n", HTTPStatus.UNAUTHORIZED, challenge)


async def _too_large(headers: Headers, receive: Receive) -> ASGIApp | None:
    """Take in the body, which nobody needs; what to do with a request whose body is not worth the wait."""
    if int(headers.get("content-length", "0")) > _LONGEST_BODY:
        return _TOO_LARGE
    size, more = 0, "content-length" in headers or "transfer-encoding" in headers
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return _nothing
        size += len(message["body"])
        if size > _LONGEST_BODY:
            return _TOO_LARGE
        more = message["more_body"]
    return None


async def _nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """The client went before it had asked."""


_TOO_LARGE = PlainTextResponse("no body is needed\n", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
