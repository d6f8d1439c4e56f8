"""The file's shape: every key with its type, its default and what it means.

A `title` says what a valid value is, and completes the sentence "... is not TITLE".
"""

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from exporter.model import Mode

_HOST = r"[A-Za-z0-9][A-Za-z0-9-]{0,62}(\.[A-Za-z0-9-]{1,63})*\.?"
_END = r"$(?!\n)"  # in Python a bare $ also matches before a last line feed
_UNITS = {
    "y": 31_536_000_000,
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
_DURATION = "^(?=[0-9])" + "".join(f"(?:([0-9]{{1,10}}){unit})?" for unit in _UNITS) + _END

Duration = Annotated[
    str, Meta(pattern=_DURATION, title="a duration such as 500ms, 60s, 5m or 1h30m", extra={"unit": "s"})
]
Id = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9._~-]*{_END}", title="an id such as abc123")]
Text = Annotated[str, Meta(pattern=r"\S", title="a text that is not empty")]
Word = Annotated[str, Meta(pattern=rf"^\S+{_END}", title="a metric name")]
LabelName = Annotated[
    str, Meta(pattern=f"^[a-zA-Z_][a-zA-Z0-9_]*{_END}", title="a label name (letters, digits and _)")
]
Pattern = Annotated[str, Meta(pattern=r"\S", title="a regular expression, in quotes")]
StatusName = Annotated[
    str, Meta(pattern=f"^[A-Z][A-Z0-9_]*{_END}", title="a status as the API writes it, such as ACTIVE")
]
MetadataLabel = Annotated[
    Literal["model_name", "environment", "base_model", "loops_deployment_id"],
    Meta(title="one of model_name, environment, base_model, loops_deployment_id"),
]
VariableName = Annotated[
    str,
    Meta(
        pattern=f"^[a-zA-Z_][a-zA-Z0-9_]*{_END}",
        title="the name of an environment variable; write the name, not the key itself",
        extra={"hidden": "."},  # it may well be the key
    ),
]
Url = Annotated[
    str,
    Meta(
        pattern=rf"^https?://({_HOST}|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?(/[A-Za-z0-9._~%/-]*)?{_END}",
        title="an http or https URL such as https://api.baseten.co, without user, query or fragment",
        extra={"hidden": "[@?#]"},  # these parts may hold a password
    ),
]
FilePath = Annotated[
    str,
    Meta(pattern=rf"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*{_END}", title="the path of a file"),
]
Labels = Annotated[dict[LabelName, Text], Meta(description="Labels to add to every series of this target.")]


def seconds(duration: str) -> float:
    """The length of a `Duration`; ValueError for any other text."""
    match = re.match(_DURATION, duration)
    if match is None:
        raise ValueError(duration)
    parts = zip(match.groups(default="0"), _UNITS.values(), strict=True)
    return sum(int(count) * millis for count, millis in parts) / 1000


class Poll(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When to ask, and how long an answer is good for."""

    interval: Annotated[Duration, Meta(description="How often each target is polled.")] = "60s"
    timeout: Annotated[Duration, Meta(description="When a request is given up.")] = "10s"
    concurrency: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            title="a whole number from 1 to 1000",
            description="How many polls of a workspace run at once.",
        ),
    ] = 32
    stale_after: Annotated[
        Duration,
        Meta(description="How long after its last good poll a failing target keeps its series."),
    ] = "5m"
    max_sample_age: Annotated[
        Duration, Meta(description="Values that were measured longer ago are left out.")
    ] = "10m"
    max_series_per_target: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            title="a whole number from 1 to 1000000",
            description="How many series a target may have; what is more is dropped, and counted.",
        ),
    ] = 20_000


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every target has."""

    window: Annotated[Duration, Meta(description="The span each value is taken over; at most 7d.")] = "5m"
    delay: Annotated[
        Duration,
        Meta(description="How long ago the window ends: the API's newest data is incomplete and reads low."),
    ] = "2m"
    labels: Labels = field(default_factory=dict)


class Model(Entry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One deployment of a model."""

    model_id: Annotated[Id, Meta(description="The model's id.")]
    deployment_id: Annotated[Id, Meta(description="The deployment's id.")] = ""
    environment: Annotated[
        Text,
        Meta(description="Instead of deployment_id: poll what is in this environment, whatever that is."),
    ] = ""
    mode: Annotated[
        Mode,
        Meta(
            title="one of auto, current, summary, series",
            description="Which of the API's views to ask for; window and delay mean nothing to current.",
        ),
    ] = "auto"
    metrics: Annotated[
        Literal["all", "default"] | tuple[Word, ...],
        Meta(
            title="all, default or a list of metric names",
            description="Every known metric, the few the API returns unasked, or these.",
        ),
    ] = "all"


class Loops(Entry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One Loops trainer."""

    deployment_id: Annotated[Id, Meta(description="The deployment's id.")]
    step: Annotated[
        Duration,
        Meta(description="The distance of the points asked for; whole seconds, at most the window."),
    ] = "30s"


class DiscoverModels(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which deployments to poll; `{}` is all that can have data."""

    include: Annotated[
        tuple[Pattern, ...],
        Meta(title="a list of patterns", description="Regular expressions for whole model names."),
    ] = ()
    exclude: Annotated[
        tuple[Pattern, ...],
        Meta(title="a list of patterns", description="Model names to leave out, though included."),
    ] = ()
    environments: Annotated[
        tuple[Text, ...],
        Meta(
            title="a list of environments", description="Only deployments in these; none means any or none."
        ),
    ] = ()
    statuses: Annotated[
        tuple[StatusName, ...],
        Meta(
            title="a list of statuses", description="Only deployments in one of these, as the API calls them."
        ),
    ] = ("ACTIVE", "UNHEALTHY", "UPDATING", "WAKING_UP", "LOADING_MODEL", "DEPLOYING")


class DiscoverLoops(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which trainers to poll, each with its sampler; `{}` is all of one's own that run or deploy."""

    scope: Annotated[
        Literal["mine", "org"],
        Meta(title="one of mine, org", description="Those of the key's owner, or the whole organization's."),
    ] = "mine"
    include: Annotated[
        tuple[Pattern, ...],
        Meta(title="a list of patterns", description="Regular expressions for whole base models."),
    ] = ()


class Discovery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to list and to poll without naming it; models and loops are off unless they are written."""

    interval: Annotated[Duration, Meta(description="How often everything is listed.")] = "5m"
    models: Annotated[DiscoverModels, Meta(description="Which model deployments to poll.")] = field(
        default_factory=DiscoverModels
    )
    loops: Annotated[DiscoverLoops, Meta(description="Which Loops trainers to poll.")] = field(
        default_factory=DiscoverLoops
    )
    environments: Annotated[
        bool,
        Meta(title="true or false", description="Whether to list and expose environments and promotions."),
    ] = True
    prices: Annotated[bool, Meta(title="true or false", description="Whether to list and expose prices.")] = (
        True
    )


class Workspace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One API key and what to poll with it; the key comes from exactly one of two places."""

    name: Annotated[Text, Meta(description="The `workspace` label of its series.")]
    api_key_env: Annotated[
        VariableName, Meta(description="The environment variable that holds the API key.")
    ] = ""
    api_key_file: Annotated[
        FilePath, Meta(description="The file that holds the API key; read again when it changes.")
    ] = ""
    api_url: Annotated[Url, Meta(description="Where the management API is.")] = "https://api.baseten.co"
    requests_per_second: Annotated[
        float,
        Meta(
            gt=0,
            le=100,
            title="a number above 0 and at most 100 (the API's limit)",
            description="The most requests per second to each endpoint.",
        ),
    ] = 20
    ca_file: Annotated[
        FilePath,
        Meta(
            description="Certificates (PEM) to trust instead of the usual ones, say a proxy's; "
            "read when the config is."
        ),
    ] = ""
    models: Annotated[
        tuple[Model, ...], Meta(title="a list of models", description="The model deployments to poll.")
    ] = ()
    loops: Annotated[
        tuple[Loops, ...], Meta(title="a list of Loops trainers", description="The Loops trainers to poll.")
    ] = ()
    discovery: Annotated[
        Discovery, Meta(description="What to poll without naming it; off unless it is written.")
    ] = field(default_factory=Discovery)
    metadata_labels: Annotated[
        tuple[MetadataLabel, ...],
        Meta(
            title="a list of labels", description="What the listings say that becomes labels of every series."
        ),
    ] = ("model_name", "environment", "base_model", "loops_deployment_id")


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    poll: Annotated[Poll, Meta(description="The timing, the same for every target.")] = field(
        default_factory=Poll
    )
    workspaces: Annotated[
        tuple[Workspace, ...],
        Meta(title="a list of workspaces", description="The API keys, and what to poll with each."),
    ] = ()
