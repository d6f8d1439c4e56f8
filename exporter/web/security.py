"""The headers that tell a browser what an answer may do."""

import base64
import hashlib
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

_HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def content_security_policy(style: str) -> str:
    """What a page needs that has this inline style sheet, no script, an empty icon and forms to itself.

    `style` is the constant, never what stands in a finished page: that might allow what was smuggled in.
    """
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def with_headers(send: Send, chosen: Mapping[str, str]) -> Send:
    """Add to what `send` sends the headers of every answer; those `chosen` win, and a blank one removes."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            for name, value in chosen.items():
                headers[name] = value
                if not value:
                    del headers[name]
        await send(message)

    return wrapped
