"""What can go wrong between a question to the API and its answer.

ApiError          the question failed; `reason` is one of REASONS, usable as a label
EndpointPaused    not asked: the API wants this endpoint left alone until later
Stopping          not asked: the exporter is shutting down
"""

from typing import Literal, get_args

Reason = Literal[
    "timeout",
    "connection",
    "tls",
    "auth",
    "forbidden",
    "not_found",
    "rate_limited",
    "client_error",
    "server_error",
    "invalid_response",
    "too_large",
]
REASONS: tuple[Reason, ...] = get_args(Reason)


class ApiError(Exception):
    """A question the API did not answer well.

    `status` is the HTTP status, None where no answer came; `retry_after` is in seconds, as the
    answer asked for; `endpoint` is what was asked.
    """

    endpoint = ""

    def __init__(
        self, reason: Reason, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.retry_after = retry_after


class EndpointPaused(Exception):  # noqa: N818 - a state, not an error: the poll is skipped
    """The endpoint is left alone for `seconds` more, as its last 429 asked."""

    def __init__(self, endpoint: str, seconds: float) -> None:
        super().__init__(f"{endpoint} is paused for {seconds:.0f} s after a 429")
        self.seconds = seconds


class Stopping(Exception):  # noqa: N818 - a state, not an error
    """The exporter is shutting down; nothing more is asked."""
