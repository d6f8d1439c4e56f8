"""What types cannot say: the rules between values, and the frozen `Config` that comes out."""

import re
import ssl
import warnings
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from exporter.apikey import ApiKey, ApiKeyError
from exporter.config import document, schema
from exporter.config.problems import ConfigError, Problem, shown
from exporter.config.walker import Walker
from exporter.model import (
    Discovery,
    Followed,
    Labels,
    LoopsOptions,
    LoopsSelector,
    ModelOptions,
    ModelSelector,
    Target,
)

_T = TypeVar("_T")
_TAKEN_LABELS = frozenset(
    {
        *("workspace", "model_id", "deployment_id", "loops_deployment_id"),
        *("model_name", "environment", "base_model", "kind"),
        *("node_id", "gpu_rank", "quantile", "status", "stat", "replica", "gpu", "condition", "le"),
    }
)
_CERTIFICATE = re.compile(
    "-----BEGIN (?:X509 )?CERTIFICATE-----.*?-----END (?:X509 )?CERTIFICATE-----", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Poll:
    """The timing of all targets; durations in seconds."""

    interval: float
    timeout: float
    concurrency: int
    stale_after: float
    max_sample_age: float
    max_series_per_target: int


@dataclass(frozen=True, slots=True)
class Workspace:
    """One API key and what to poll with it. `api_url` has no trailing slash."""

    name: str
    api_url: str
    key: ApiKey
    requests_per_second: float
    ca: str | None
    targets: tuple[Target, ...]
    followed: tuple[Followed, ...] = ()
    discovery: Discovery | None = None
    metadata_labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration, valid as it stands: no target twice, every key at hand.

    `targets` are those it names itself; followed and discovered ones are known only once listed.
    """

    poll: Poll
    workspaces: tuple[Workspace, ...]

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(target for workspace in self.workspaces for target in workspace.targets)


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """The configuration in a YAML file; ConfigError with every problem found.

    API keys come from `environ` and from files; relative paths start at the file's own folder.
    """
    walker = Walker()
    raw = walker.struct(document.read(path), schema.Config)
    config = _Builder(walker, raw, path.parent, environ).config()
    if walker.problems:
        raise ConfigError([Problem(*problem) for problem in walker.problems.items()])
    return config


class _Builder:
    """Judges and converts in one go; what it returns is good only if the walker has no problems."""

    def __init__(self, walker: Walker, raw: schema.Config, folder: Path, environ: Mapping[str, str]) -> None:
        self._given = walker.given
        self._refuse = walker.refuse
        self._raw = raw
        self._folder = folder
        self._environ = environ

    def config(self) -> Config:
        poll = self._poll(self._raw.poll)
        workspaces = _placed("workspaces", self._raw.workspaces)
        self._unique((f"{path}.name", each.name) for path, each in workspaces)
        built = tuple(self._workspace(path, each) for path, each in workspaces)
        if not workspaces:
            self._refuse("no workspace to poll: write at least one", "workspaces")
        named = any(each.models or each.loops for each in self._raw.workspaces)
        if not named and not any(f"{path}.discovery" in self._given for path, _ in workspaces):
            lists = [f"{path}.{name}" for path, _ in workspaces for name in ("models", "loops", "discovery")]
            message = "nothing to poll: write an entry under models or loops, or write discovery"
            self._refuse(message, "workspaces", *lists)
        return Config(poll, tuple(each for each in built if each is not None))

    def _poll(self, raw: schema.Poll) -> Poll:
        timing = Poll(
            interval=self._seconds("poll.interval", raw.interval),
            timeout=self._seconds("poll.timeout", raw.timeout),
            concurrency=raw.concurrency,
            stale_after=self._seconds("poll.stale_after", raw.stale_after),
            max_sample_age=self._seconds("poll.max_sample_age", raw.max_sample_age),
            max_series_per_target=raw.max_series_per_target,
        )
        interval = f"the interval ({self._told('poll.interval', raw.interval)})"
        if timing.timeout > timing.interval:
            given = self._told("poll.timeout", raw.timeout)
            message = f"{given} is longer than {interval} and would outlast a poll's turn: write less"
            self._refuse(message, "poll.timeout", "poll.interval")
        if timing.stale_after < timing.interval:
            given = self._told("poll.stale_after", raw.stale_after)
            message = f"{given} is shorter than {interval} and series would flicker: write more"
            self._refuse(message, "poll.stale_after", "poll.interval")
        return timing

    def _told(self, path: str, value: str) -> str:
        """A value as the person who wrote the file, or did not write it there, knows it."""
        return value if path in self._given else f"{value} by default"

    def _workspace(self, path: str, raw: schema.Workspace) -> Workspace | None:
        models, loops = _placed(f"{path}.models", raw.models), _placed(f"{path}.loops", raw.loops)
        targets = {
            place: self._model(place, each, raw.name) for place, each in models if not each.environment
        }
        targets |= {place: self._loops(place, each, raw.name) for place, each in loops}
        followed = {place: self._followed(place, each) for place, each in models if each.environment}
        self._unique((place, target.key) for place, target in targets.items())
        self._unique((place, (each.model_id, each.environment)) for place, each in followed.items())
        url = self._url(f"{path}.api_url", raw.api_url)
        ca = self._ca(f"{path}.ca_file", raw.ca_file)
        discovery = self._discovery(f"{path}.discovery", raw.discovery)
        self._unique(_placed(f"{path}.metadata_labels", raw.metadata_labels))
        key = self._key(path, raw)
        if key is None:
            return None
        return Workspace(
            raw.name,
            url,
            key,
            raw.requests_per_second,
            ca,
            tuple(targets.values()),
            tuple(followed.values()),
            discovery,
            raw.metadata_labels,
        )

    def _key(self, path: str, raw: schema.Workspace) -> ApiKey | None:
        env, file = f"{path}.api_key_env", f"{path}.api_key_file"
        if raw.api_key_env and raw.api_key_file:
            self._refuse("stands beside api_key_env: keep one of the two", file, env)
        try:
            if raw.api_key_env:
                return ApiKey.from_env(raw.api_key_env, self._environ.get(raw.api_key_env))
            if raw.api_key_file:
                return ApiKey.from_file(self._folder / raw.api_key_file)
        except ApiKeyError as error:
            self._refuse(str(error), env if raw.api_key_env else file)
        message = "is missing: name the environment variable that holds the key, or write api_key_file"
        self._refuse(message, env, file, f"{path}.api_key")
        return None

    def _url(self, path: str, raw: str) -> str:
        try:
            _ = urlsplit(raw).port
        except ValueError:
            self._refuse(f"{shown(raw)} has an impossible address or port: write one that exists", path)
        return raw.rstrip("/")

    def _ca(self, path: str, raw: str) -> str | None:
        """The certificates in a file, as PEM; by its content, since a file is replaced under its name."""
        if not raw:
            return None
        certificates, reason = "", "holds no PEM certificate"
        try:
            text = (self._folder / raw).read_text("ascii", "backslashreplace")  # comments may hold anything
            certificates = "\n".join(_CERTIFICATE.findall(text))
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates or "none")
        except OSError as error:
            if not isinstance(error, ssl.SSLError):
                reason = str(error.strerror)
            self._refuse(f"{shown(raw)}: {reason}, write the path of a PEM file", path)
        return certificates

    def _model(self, path: str, raw: schema.Model, workspace: str) -> Target:
        if not raw.deployment_id:
            message = "is missing: write the deployment's id, or follow an environment"
            self._refuse(message, f"{path}.deployment_id", f"{path}.environment")
        deployment_id = raw.deployment_id or path  # two without one are not the same
        options = self._options(path, raw)
        return Target(workspace, raw.model_id, deployment_id, options, self._labels(path, raw))

    def _followed(self, path: str, raw: schema.Model) -> Followed:
        if raw.deployment_id:
            message = "stands beside deployment_id: keep one of the two"
            self._refuse(message, f"{path}.environment", f"{path}.deployment_id")
        options = self._options(path, raw)
        return Followed(raw.model_id, raw.environment, options, self._labels(path, raw))

    def _options(self, path: str, raw: schema.Model) -> ModelOptions:
        window, delay = self._span(path, raw)
        if raw.mode == "current":
            self._spanless(path)
        else:
            self._fresh(path, raw)
        if raw.mode == "series":
            self._within_a_week(path, window + delay)
        return ModelOptions(raw.mode, window, delay, self._metrics(f"{path}.metrics", raw))

    def _loops(self, path: str, raw: schema.Loops, workspace: str) -> Target:
        window, delay = self._span(path, raw)
        self._fresh(path, raw)
        self._within_a_week(path, window + delay)
        step = self._seconds(f"{path}.step", raw.step)
        if step % 1:
            self._refuse(f"{raw.step} is not a whole number of seconds: write 1s or more", f"{path}.step")
        if step > window:
            message = f"{raw.step} is longer than the window ({raw.window}): write less"
            self._refuse(message, f"{path}.step", f"{path}.window")
        options = LoopsOptions(window, int(step), delay)
        return Target(workspace, "", raw.deployment_id, options, self._labels(path, raw))

    def _discovery(self, path: str, raw: schema.Discovery) -> Discovery | None:
        if path not in self._given:
            return None
        has_models, has_loops = (f"{path}.{name}" in self._given for name in ("models", "loops"))
        if not has_models and not has_loops:
            message = "discovers nothing: write models or loops in it, {} for all of a kind"
            self._refuse(message, path, f"{path}.model", f"{path}.loop")
        models, loops = raw.models, raw.loops
        if not models.statuses:
            message = "is an empty list, which no deployment matches: name a status, or take the key out"
            self._refuse(message, f"{path}.models.statuses")
        selector = ModelSelector(
            self._patterns(f"{path}.models.include", models.include),
            self._patterns(f"{path}.models.exclude", models.exclude),
            models.environments,
            models.statuses,
        )
        loops_selector = LoopsSelector(loops.scope, self._patterns(f"{path}.loops.include", loops.include))
        return Discovery(
            self._seconds(f"{path}.interval", raw.interval),
            selector if has_models else None,
            loops_selector if has_loops else None,
            raw.environments,
            raw.prices,
        )

    def _patterns(self, path: str, texts: Iterable[str]) -> tuple[re.Pattern[str], ...]:
        patterns = []
        for place, text in _placed(path, texts):
            try:
                patterns.append(_compiled(text))
            except (re.error, OverflowError, RecursionError, Warning) as error:
                reason = shown(str(error))[1:-1]  # it may quote the pattern, line feeds and all
                self._refuse(f"{shown(text)} is not a regular expression: {reason}", place)
        return tuple(patterns)

    def _span(self, path: str, raw: schema.Entry) -> tuple[float, float]:
        return self._seconds(f"{path}.window", raw.window, "7d"), schema.seconds(raw.delay)

    def _spanless(self, path: str) -> None:
        for place in (f"{path}.window", f"{path}.delay"):
            if place in self._given:
                self._refuse("mode current knows no window: take this out, or choose another mode", place)

    def _fresh(self, path: str, raw: schema.Entry) -> None:
        oldest = self._raw.poll.max_sample_age
        if schema.seconds(raw.delay) >= schema.seconds(oldest):
            message = f"{raw.delay} makes every value older than poll.max_sample_age ({oldest}): write less"
            self._refuse(message, f"{path}.delay", "poll.max_sample_age")

    def _within_a_week(self, path: str, span: float) -> None:
        if span > schema.seconds("7d"):
            message = "window and delay add up to more than 7d, the most the API answers: write less"
            self._refuse(message, f"{path}.window", f"{path}.delay")

    def _seconds(self, path: str, text: str, most: str = "1y") -> float:
        length = schema.seconds(text)
        if not 0 < length <= schema.seconds(most):
            self._refuse(f"{text} is not above 0s and at most {most}: write a duration that is", path)
        return length

    def _metrics(self, path: str, raw: schema.Model) -> Literal["all", "default"] | tuple[str, ...]:
        if not raw.metrics:
            self._refuse("is an empty list: name a metric, or write all or default", path)
        if not isinstance(raw.metrics, str):
            self._unique((f"{path}[{index}]", name) for index, name in enumerate(raw.metrics))
        return raw.metrics

    def _labels(self, path: str, raw: schema.Entry) -> Labels:
        for name in raw.labels:
            if name.startswith("__") or name in _TAKEN_LABELS:
                message = f"{name} is a label that Prometheus or the exporter sets: choose another name"
                self._refuse(message, f"{path}.labels.{name}")
        return tuple(raw.labels.items())

    def _unique(self, entries: Iterable[tuple[str, Hashable]]) -> None:
        first: dict[Hashable, str] = {}
        for path, what in entries:
            if first.setdefault(what, path) != path:
                self._refuse(f"the same as {first[what]}: keep one of the two", path)


def _placed(path: str, entries: Iterable[_T]) -> list[tuple[str, _T]]:
    return [(f"{path}[{index}]", entry) for index, entry in enumerate(entries)]


def _compiled(text: str) -> re.Pattern[str]:
    """The pattern; what Python only warns of, such as `[[:alpha:]]`, means something else than it says."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return re.compile(text)
