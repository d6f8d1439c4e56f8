"""The routes, and nothing behind them that is slow."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from exporter.config import ConfigError
from exporter.model import Target
from exporter.sharding import WHOLE, Shard
from exporter.store import Store
from exporter.web import page, status
from exporter.web.config import WebConfig
from exporter.web.door import Door
from exporter.web.negotiation import accepts_gzip, page_format
from exporter.web.pages import Pages
from exporter.web.security import content_security_policy
from exporter.web.style import STYLE
from exporter.web.view import View

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes read and do; `reload` is None where it is not enabled, and raises ConfigError."""

    store: Store
    pages: Pages
    ready: Callable[[], bool]
    next_poll: Callable[[Target], float | None]
    clock: Callable[[], float]
    reload: Callable[[], None] | None
    workspaces: Callable[[], Sequence[status.WorkspaceStatus]]
    shard: Shard = WHOLE


def application(parts: Parts, telemetry_path: str, web: Callable[[], WebConfig] | None = None) -> Door:
    """All routes, behind one door that follows `web`; without it the door is open to all."""
    open_to_all = WebConfig()
    page_policy = {"content-security-policy": content_security_policy(STYLE)}

    async def metrics(request: Request) -> Response:
        gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
        chosen = page_format(request.headers.get("accept", ""))
        names = request.query_params.getlist("name[]")
        body = await parts.pages.page(chosen, gzip=gzip, names=names)
        encoding = {"content-encoding": "gzip"} if gzip else {}
        return PageResponse(
            body, {"content-type": chosen.value, "vary": "accept, accept-encoding"} | encoding
        )

    async def index(request: Request) -> Response:
        view = View.of(request.query_params)
        body = await asyncio.to_thread(
            lambda: page.render(_status(parts), view, parts.clock(), telemetry_path)
        )
        return HTMLResponse(body, headers=page_policy)

    async def targets(_: Request) -> Response:
        body = await asyncio.to_thread(lambda: status.to_json(_status(parts)))
        return Response(body, media_type="application/json")

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("healthy\n")

    async def ready(_: Request) -> Response:
        if parts.ready():
            return PlainTextResponse("ready\n")
        return PlainTextResponse(
            "not ready: some targets wait to be listed or polled for the first time\n",
            HTTPStatus.SERVICE_UNAVAILABLE,
        )

    async def reload(_: Request) -> Response:
        if parts.reload is None:
            message = "reload is off; start with --web.enable-lifecycle\n"
            return PlainTextResponse(message, HTTPStatus.FORBIDDEN)
        try:
            await asyncio.to_thread(parts.reload)
        except ConfigError as error:
            message = f"not reloaded, the old config stays:\n{error}\n"
            return PlainTextResponse(message, HTTPStatus.INTERNAL_SERVER_ERROR)
        return PlainTextResponse("reloaded\n")

    routes = Starlette(
        routes=[
            Route(telemetry_path, metrics),
            Route("/", index),
            Route("/api/v1/targets", targets),
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
            Route("/-/reload", reload, methods=["POST"]),
        ]
    )
    return Door(routes, web or (lambda: open_to_all))


def _status(parts: Parts) -> status.Status:
    return status.status(parts.store.view()[1], parts.next_poll, parts.workspaces(), parts.shard)


class PageResponse(Response):
    """A page in parts, sent one after the other as they are: all scrapers share them."""

    def __init__(self, parts: Sequence[bytes], headers: dict[str, str]) -> None:
        super().__init__(headers=headers | {"content-length": str(sum(map(len, parts)))})
        self._parts = parts

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
