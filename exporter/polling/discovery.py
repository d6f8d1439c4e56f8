"""Lists what a workspace has, on a thread of its own, so that a full poll queue cannot delay it."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from exporter import exposition
from exporter.baseten.client import Client
from exporter.baseten.errors import ApiError, EndpointPaused, Stopping
from exporter.baseten.inventory import Inventory, ModelListing, families
from exporter.baseten.listings import Model, Price, Trainer
from exporter.baseten.selection import Wanted, discovered, select
from exporter.model import KINDS
from exporter.telemetry import Telemetry

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

    A listing that answers is believed, even if it is empty. `failures` says what did not answer;
    `stopped` that nobody wants to know any more.
    """

    def __init__(
        self, client: Client, wanted: Wanted, old: Inventory, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._old = old
        self._stopped = stopped
        self.failures: list[ApiError] = []

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
        listed = [model for model in models if self._wanted.lists_model(model)]
        with ThreadPoolExecutor(_THREADS) as pool:
            return {listing.model.id: listing for listing in pool.map(self._model, listed)}

    def _model(self, model: Model) -> ModelListing:
        old = self._old.models.get(model.id, ModelListing(model))
        deployments = self._try(
            lambda: tuple(self._client.deployments(model.id).deployments), old.deployments
        )
        environments = old.environments
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
        return self._try(lambda: tuple(self._client.trainers(scope).deployments), self._old.trainers)

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
            self.failures.append(error)
        except EndpointPaused as pause:
            self.failures.append(ApiError("rate_limited", str(pause)))
        return old


class Discovery:
    """Keeps one workspace's inventory up to date, and calls `found` when it has changed.

    `client` gives the workspace's present client, `inventory` is what is known already. The first run
    is at once; `attempted` says that it is over, well or not.
    """

    def __init__(
        self,
        wanted: Wanted,
        client: Callable[[], Client],
        telemetry: Telemetry,
        clock: Callable[[], float],
        found: Callable[["Discovery"], None],
        inventory: Inventory | None,
    ) -> None:
        self.wanted = wanted
        self.attempted = inventory is not None or not wanted.lists()
        self._client = client
        self._telemetry = telemetry
        self._clock = clock
        self._found = found
        self._stop = threading.Event()
        self._troubles: frozenset[str] = frozenset()
        self._empty: frozenset[str] = frozenset()
        self._know(inventory or Inventory())

    def _know(self, inventory: Inventory) -> None:
        self.inventory = inventory
        labels = (("workspace", self.wanted.workspace),)
        self.description = exposition.pieces(families(inventory, self.wanted.metadata), labels)
        # Nothing is polled before it was listed, so that no series starts without its labels.
        self.targets = select(self.wanted, inventory) if self.attempted else ()

    def start(self) -> None:
        if not self.wanted.lists():
            return
        name = f"discovery {self.wanted.workspace}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        """Start no more runs; what one under way finds is not told."""
        self._stop.set()

    def _run(self) -> None:
        interval = self.wanted.discovery.interval if self.wanted.discovery else DEFAULT_INTERVAL
        while not self._stop.is_set():
            try:
                self.run_once()
            except Stopping:
                return
            except Exception:  # a bug must not end discovery for good
                log.exception("bug: a discovery run failed in a way it should not")
            self._stop.wait(interval)

    def run_once(self) -> None:
        lister = Lister(self._client(), self.wanted, self.inventory, self._stop.is_set)
        inventory = lister.run()
        self._judge(lister.failures)
        self._count(inventory)
        if inventory != self.inventory or not self.attempted:
            self.attempted = True
            self._know(inventory)
            self._found(self)

    def _judge(self, failures: Iterable[ApiError]) -> None:
        workspace = self.wanted.workspace
        troubles = frozenset(error.reason for error in failures)
        for error in failures:
            self._telemetry.discovery_failed(workspace, error.reason)
        if not troubles:
            self._telemetry.discovery_succeeded(workspace, self._clock())
        if troubles - self._troubles:
            error = next(iter(failures))
            extra = {"workspace": workspace, "reason": error.reason, "error": str(error)}
            log.warning("not everything could be listed: what is known of the rest stays", extra=extra)
        elif self._troubles and not troubles:
            log.info("everything could be listed again", extra={"workspace": workspace})
        self._troubles = troubles

    def _count(self, inventory: Inventory) -> None:
        """Count what the selectors find, and warn once of one that finds nothing."""
        wanted = self.wanted
        kinds = [kind for _, kind, *_ in {target.key for target in discovered(wanted, inventory)}]
        selectors = {"model": wanted.models, "loops": wanted.loops}
        empty = set()
        for kind in KINDS:
            found = kinds.count(kind) if selectors[kind] is not None else None
            self._telemetry.discovered(wanted.workspace, kind, found)
            empty |= {kind} if found == 0 else set()
        for kind in empty - self._empty:
            log.warning(
                "a selector matches nothing",
                extra={"workspace": wanted.workspace, "kind": kind, "selector": selectors[kind]},
            )
        self._empty = frozenset(empty)
