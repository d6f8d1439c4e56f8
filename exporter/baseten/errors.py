"""What can go wrong between a question to the API and its answer.

ApiError    the question failed; `reason` is one of REASONS, usable as a label
HeldBack    not asked: the endpoint is paused after a 429, or the workspace's circuit is open
Stopping    not asked: the exporter is shutting down
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
    answer asked for; `transient` says that asking again may well help; `endpoint` is what was asked.
    """

    endpoint = ""

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        transient: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.retry_after = retry_after
        self.transient = transient

    def kept(self) -> "ApiError":
        """What of it may be kept: an exception holds on to its traceback, and so to answers and clients."""
        copy = ApiError(
            self.reason,
            str(self),
            status=self.status,
            retry_after=self.retry_after,
            transient=self.transient,
        )
        copy.endpoint = self.endpoint
        return copy


class HeldBack(Exception):  # noqa: N818 - a state, not an error: the poll is skipped
    """Not asked, for a failure before: `reason` says of which kind, `endpoint` what was to be asked."""

    reason: Reason
    endpoint = ""


class EndpointPaused(HeldBack):
    """The endpoint is left alone for `seconds` more, as its last 429 asked."""

    reason = "rate_limited"

    def __init__(self, endpoint: str, seconds: float) -> None:
        super().__init__(f"{endpoint} is paused for {seconds:.0f} s after a 429")
        self.seconds = seconds


class CircuitOpen(HeldBack):
    """One request failed after the other, so only a probe goes out now and then; `error` was the last."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(f"not asked, since nothing gets through to this workspace: {error}")
        self.reason = error.reason


class Stopping(Exception):  # noqa: N818 - a state, not an error
    """The exporter is shutting down; nothing more is asked."""
