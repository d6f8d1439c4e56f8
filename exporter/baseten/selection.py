"""Which of the things listed are polled, and what the listings say of them. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from exporter.baseten.inventory import Inventory, promotion_of
from exporter.baseten.listings import Environment, Model, Trainer
from exporter.baseten.values import clean_text
from exporter.model import (
    Discovery,
    Followed,
    Kind,
    Labels,
    LoopsOptions,
    LoopsSelector,
    ModelOptions,
    ModelSelector,
    Target,
)

_TRAINER_STATUSES = ("RUNNING", "DEPLOYING")
"""Statuses of a trainer that can have data."""

Ids = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the config says is to be polled in one workspace; `metadata` names the labels to add."""

    workspace: str
    targets: tuple[Target, ...]
    followed: tuple[Followed, ...] = ()
    discovery: Discovery | None = None
    metadata: tuple[str, ...] = ()

    @property
    def models(self) -> ModelSelector | None:
        return self.discovery.models if self.discovery else None

    @property
    def loops(self) -> LoopsSelector | None:
        return self.discovery.loops if self.discovery else None

    def lists(self) -> bool:
        """Whether anything is to be listed at all."""
        return self.lists_models() or self.lists_trainers() or self.lists_prices()

    def lists_models(self) -> bool:
        return self.models is not None or bool(self.named_models())

    def named_models(self) -> frozenset[str]:
        """Models whose deployments the config names, as far as anything is to be known of them."""
        described = self.targets if {"model_name", "environment"} & set(self.metadata) else ()
        named = {target.model_id for target in described if target.model_id}
        return frozenset(named | {entry.model_id for entry in self.followed})

    def listed(self, models: Iterable[Model]) -> list[Model]:
        """Those of all models whose deployments are to be listed."""
        named, selector = self.named_models(), self.models
        return [
            model
            for model in models
            if model.id in named or (selector is not None and selects(selector, model))
        ]

    def lists_environments(self, model: Model) -> bool:
        followed = any(entry.model_id == model.id for entry in self.followed)
        return followed or bool(self.discovery and self.discovery.environments)

    def lists_trainers(self) -> bool:
        named = any(target.kind == "loops" for target in self.targets)
        return self.loops is not None or (named and "base_model" in self.metadata)

    def lists_prices(self) -> bool:
        return bool(self.discovery and self.discovery.prices)


def select(wanted: Wanted, inventory: Inventory) -> tuple[Target, ...]:
    """The workspace's targets, each once: entries of the config win over what is discovered."""
    found: dict[tuple[str, ...], Target] = {}
    for target in (*wanted.targets, *_followed(wanted, inventory), *_discovered(wanted, inventory)):
        if _askable(target):
            found.setdefault(target.key, target)
    facts = _facts(inventory)
    return tuple(
        replace(target, metadata=_metadata(wanted.metadata, facts.get(target.key[1:], {})))
        for target in found.values()
    )


def _askable(target: Target) -> bool:
    """Whether its ids can stand in a URL; what is listed under an odd one is described all the same."""
    needed = 2 if target.kind == "model" else 1
    return len(target.ids) == needed and all(text == clean_text(text) for _, text in target.ids)


def selects(selector: ModelSelector, model: Model) -> bool:
    name = model.name or ""
    return _matches(selector.include, name) and not any(each.fullmatch(name) for each in selector.exclude)


def missing_environments(wanted: Wanted, inventory: Inventory) -> Iterator[Ids]:
    """Model and environment of the entries that find no deployment."""
    for entry in wanted.followed:
        if not any(_ids_of(entry, inventory)):
            yield entry.model_id, entry.environment


def _followed(wanted: Wanted, inventory: Inventory) -> Iterator[Target]:
    """The deployments in the environments that the config names."""
    for entry in wanted.followed:
        for ids in _ids_of(entry, inventory):
            yield Target(wanted.workspace, *ids, entry.options, entry.extra_labels)


def _ids_of(entry: Followed, inventory: Inventory) -> Iterator[Ids]:
    listing = inventory.models.get(entry.model_id)
    for environment in listing.environments if listing else ():
        if environment.name == entry.environment:
            yield from ((entry.model_id, deployment_id) for deployment_id in _deployment_ids(environment))


def _deployment_ids(environment: Environment) -> Iterator[str]:
    """The current deployment, and the candidate while a promotion runs."""
    if environment.current_deployment is not None:
        yield environment.current_deployment.id
    if environment.candidate_deployment is not None and promotion_of(environment) is not None:
        yield environment.candidate_deployment.id


def counts(wanted: Wanted, inventory: Inventory) -> dict[Kind, int | None]:
    """How many deployments each selector itself finds, None where there is none."""
    models = set(_selected_models(wanted.models, inventory)) if wanted.models else None
    loops = {each.id for each in _selected_trainers(wanted.loops, inventory)} if wanted.loops else None
    return {"model": None if models is None else len(models), "loops": None if loops is None else len(loops)}


def _discovered(wanted: Wanted, inventory: Inventory) -> Iterator[Target]:
    """What the selectors of the config find; a trainer brings its sampler along."""
    for ids in _selected_models(wanted.models, inventory) if wanted.models else ():
        yield Target(wanted.workspace, *ids, ModelOptions())
    for trainer in _selected_trainers(wanted.loops, inventory) if wanted.loops else ():
        yield Target(wanted.workspace, "", trainer.id, LoopsOptions())
        if trainer.sampler is not None:
            sampler = trainer.sampler
            yield Target(wanted.workspace, sampler.model_id, sampler.deployment_id, ModelOptions())


def _selected_models(selector: ModelSelector, inventory: Inventory) -> Iterator[Ids]:
    for model_id, listing in inventory.models.items():
        if selects(selector, listing.model):
            for deployment in listing.deployments:
                in_environment = not selector.environments or deployment.environment in selector.environments
                if in_environment and deployment.status in selector.statuses:
                    yield model_id, deployment.id


def _selected_trainers(selector: LoopsSelector, inventory: Inventory) -> Iterator[Trainer]:
    for trainer in inventory.trainers:
        running = trainer.status is not None and trainer.status.name in _TRAINER_STATUSES
        if running and _matches(selector.include, trainer.base_model or ""):
            yield trainer


def _matches(patterns: Iterable[re.Pattern[str]], text: str) -> bool:
    """Whether one of the patterns is the whole text; none at all match everything."""
    return not patterns or any(pattern.fullmatch(text) for pattern in patterns)


def _facts(inventory: Inventory) -> dict[tuple[str, ...], dict[str, str | None]]:
    """What is listed about each deployment, by kind and ids, as labels."""
    facts: dict[tuple[str, ...], dict[str, str | None]] = {}
    for model_id, listing in inventory.models.items():
        for deployment in listing.deployments:
            said = {"model_name": listing.model.name, "environment": deployment.environment}
            facts["model", model_id, deployment.id] = said
    for trainer in inventory.trainers:
        facts["loops", "", trainer.id] = {"base_model": trainer.base_model}
        if trainer.sampler is not None:
            key = ("model", trainer.sampler.model_id, trainer.sampler.deployment_id)
            facts.setdefault(key, {}).setdefault("loops_deployment_id", trainer.id)
    return facts


def _metadata(names: Iterable[str], facts: dict[str, str | None]) -> Labels:
    return tuple((name, clean_text(text)) for name in names if (text := facts.get(name)))
