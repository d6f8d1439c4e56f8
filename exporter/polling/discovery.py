"""Lists what a workspace has, on a thread of its own, so that a full poll queue cannot delay it."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from exporter import exposition
from exporter.baseten.client import Client
from exporter.baseten.errors import ApiError, HeldBack, Stopping
from exporter.baseten.inventory import Inventory, ModelListing, harvest
from exporter.baseten.listings import Environment, Model, Price, Trainer
from exporter.baseten.selection import Wanted, counts, missing_environments, select
from exporter.model import Kind, Piece, Target
from exporter.sharding import Shard
from exporter.telemetry import Telemetry

if TYPE_CHECKING:
    from exporter.baseten.harvest import DropReason

log = logging.getLogger(__name__)

DEFAULT_INTERVAL = 300.0
"""Seconds, where things are listed only to describe what the config names."""

_THREADS = 8
"""Models listed at a time: enough to use the allowed rate at the API's usual latency."""

_HOPELESS = ("connection", "tls", "auth", "timeout")
"""Failures of the first listing that the others would only repeat."""

Items = TypeVar("Items")


class Lister:
    """One run through the listings; what cannot be listed stays as it is in `old`.

    A listing that answers is believed, even if it is empty. `failures` says what did not answer,
    `heard` the kinds whose list did; `stopped` that nobody wants to know any more.
    """

    def __init__(
        self, client: Client, wanted: Wanted, old: Inventory, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._old = old
        self._stopped = stopped
        self.failures: list[ApiError] = []
        self.heard: set[Kind] = set()

    def run(self) -> Inventory:
        """List everything wanted; Stopping when the exporter or this run is stopped meanwhile."""
        models = self._models()
        if any(error.reason in _HOPELESS for error in self.failures) and models is self._old.models:
            return self._old
        return Inventory(models, self._trainers(), self._prices())

    def _models(self) -> Mapping[str, ModelListing]:
        if not self._wanted.lists_models():
            return {}
        models = self._try(lambda: self._client.models().models, None)
        if models is None:
            return self._old.models
        self.heard.add("model")
        listed = self._wanted.listed(models)
        with ThreadPoolExecutor(_THREADS) as pool:
            return {listing.model.id: listing for listing in pool.map(self._model, listed)}

    def _model(self, model: Model) -> ModelListing:
        old = self._old.models.get(model.id, ModelListing(model))
        deployments = self._try(
            lambda: tuple(self._client.deployments(model.id).deployments), old.deployments
        )
        environments: tuple[Environment, ...] = ()
        if self._wanted.lists_environments(model):
            environments = self._try(
                lambda: tuple(self._client.environments(model.id).environments), old.environments
            )
        return ModelListing(model, deployments, environments)

    def _trainers(self) -> tuple[Trainer, ...]:
        if not self._wanted.lists_trainers():
            return ()
        # Only to describe what the config names, all there are may be looked through.
        scope = self._wanted.loops.scope if self._wanted.loops else "org"
        trainers = self._try(lambda: self._client.trainers(scope).deployments, None)
        if trainers is None:
            return self._old.trainers
        self.heard.add("loops")
        return tuple(trainers)

    def _prices(self) -> Mapping[str, Price]:
        if not self._wanted.lists_prices():
            return {}
        return self._try(
            lambda: {each.instance_type.name: each for each in self._client.prices().instance_types},
            self._old.prices,
        )

    def _try(self, ask: Callable[[], Items], old: Items) -> Items:
        if self._stopped():
            raise Stopping
        try:
            return ask()
        except ApiError as error:
            self.failures.append(error.kept())
        except HeldBack as held:
            failure = ApiError(held.reason, str(held))
            failure.endpoint = held.endpoint
            self.failures.append(failure)
        return old


class Discovery:
    """Keeps one workspace's inventory up to date, and calls `found` when it has changed.

    Everything is listed, and `targets` and `description` are what of it is the shard's.
    `inventory` is what is known already. The first run is at once; `attempted` says that it is over,
    well or not; `last_listed` when everything last answered, in seconds since the epoch; `error` is one
    of what did not answer in the last run, and `heard` the kinds whose list ever did.
    """

    def __init__(
        self,
        wanted: Wanted,
        client: Client,
        telemetry: Telemetry,
        clock: Callable[[], float],
        found: Callable[["Discovery"], None],
        inventory: Inventory | None,
        shard: Shard,
    ) -> None:
        self.wanted = wanted
        self.interval = wanted.discovery.interval if wanted.discovery else DEFAULT_INTERVAL
        self.attempted = inventory is not None or not wanted.lists()
        self.client = client
        self.last_listed: float | None = None
        self.error: ApiError | None = None
        self.heard: frozenset[Kind] = frozenset()
        self._telemetry = telemetry
        self._clock = clock
        self._found = found
        self._shard = shard
        self._stop = threading.Event()
        self._troubles: frozenset[str] = frozenset()
        self._empty: frozenset[Kind] = frozenset()
        self._missing: frozenset[tuple[str, str]] = frozenset()
        # Nothing is polled before it was listed, so that no series starts without its labels.
        self.targets: tuple[Target, ...] = ()
        self.description: Mapping[str, Piece] = {}
        self.inventory = inventory or Inventory()
        self._lost: Counter[DropReason] = Counter()  # by the last listing
        if self.attempted:
            self._know(self.inventory)
        if not wanted.lists():
            telemetry.discovery_succeeded(wanted.workspace, None)

    def _know(self, inventory: Inventory) -> None:
        self.inventory = inventory
        labels = (("workspace", self.wanted.workspace),)
        gathered = harvest(inventory, self.wanted.metadata)
        self._lost = gathered.dropped
        del self._lost["null"]  # where a listing has nothing to say
        listed = self._shard.share(self.wanted.workspace, gathered.families())
        self.description = exposition.pieces(listed, labels)
        self.targets = tuple(each for each in select(self.wanted, inventory) if self._shard.owns(each.key))
        for kind, count in counts(self.wanted, inventory).items():
            self._telemetry.discovered(self.wanted.workspace, kind, count)

    def start(self) -> None:
        if not self.wanted.lists():
            return
        name = f"discovery {self.wanted.workspace}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        """Start no more runs; what one under way finds is not told."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.run_once()
            except Stopping:
                return
            except Exception:  # a bug must not end discovery for good
                log.exception("bug: a discovery run failed in a way it should not")
            self._stop.wait(self.interval)

    def run_once(self) -> list[ApiError]:
        """List everything now; return what could not be listed."""
        lister = Lister(self.client, self.wanted, self.inventory, self._stop.is_set)
        inventory = lister.run()
        if self._stop.is_set():
            raise Stopping
        self._judge(lister.failures)
        self._warn_of_nothing(inventory, lister.heard)
        if inventory != self.inventory or not self.attempted:
            self._know(inventory)
            self._found(self)
            self.attempted = True  # only now: what was found is to be polled before the exporter is ready
        if not lister.failures:
            for reason, count in self._lost.items():
                self._telemetry.dropped(reason, count)
        return lister.failures

    def _judge(self, failures: list[ApiError]) -> None:
        workspace = self.wanted.workspace
        troubles = frozenset(error.reason for error in failures)
        self.error = failures[0] if failures else None
        for error in failures:
            self._telemetry.discovery_failed(workspace, error.reason)
        if not troubles:
            self.last_listed = self._clock()
            self._telemetry.discovery_succeeded(workspace, self.last_listed)
        if troubles - self._troubles:
            error = next(error for error in failures if error.reason not in self._troubles)
            extra = {
                "workspace": workspace,
                "endpoint": error.endpoint,
                "reason": error.reason,
                "error": error,
            }
            log.warning("not everything could be listed: what is known of the rest stays", extra=extra)
        elif self._troubles and not troubles:
            log.info("everything could be listed again", extra={"workspace": workspace})
        self._troubles = troubles

    def _warn_of_nothing(self, inventory: Inventory, heard: set[Kind]) -> None:
        """Warn once of a selector that matches nothing, where its list did answer."""
        self.heard |= heard
        found = counts(self.wanted, inventory)
        empty = {kind for kind in heard if found[kind] == 0}
        selectors = {"model": self.wanted.models, "loops": self.wanted.loops}
        for kind in empty - self._empty:
            selector = selectors[kind]
            patterns = [pattern.pattern for pattern in selector.include] if selector else []
            extra = {"workspace": self.wanted.workspace, "kind": kind, "include": patterns or "everything"}
            log.warning("a selector of discovery matches nothing", extra=extra)
        self._empty = self._empty - heard | empty
        if "model" in heard:
            self._warn_of_missing(inventory)

    def _warn_of_missing(self, inventory: Inventory) -> None:
        """Warn once of an environment that the config names and the API does not have."""
        missing = frozenset(missing_environments(self.wanted, inventory))
        for model_id, environment in sorted(missing - self._missing):
            extra = {"workspace": self.wanted.workspace, "model_id": model_id, "environment": environment}
            log.warning("an environment to follow does not exist, or nothing is in it", extra=extra)
        self._missing = missing
