"""What a workspace has, as last listed, and how it is exposed. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from exporter.baseten.catalogue import sanitize
from exporter.baseten.harvest import Harvest
from exporter.baseten.listings import (
    Deployment,
    Environment,
    Model,
    Price,
    Promotion,
    Trainer,
)
from exporter.baseten.values import clean_text, label_text, parse_time
from exporter.model import Labels

Texts = tuple[str | None, ...]

_OVER = ("SUCCEEDED", "FAILED", "CANCELED")
"""States of a promotion that is still listed but no longer in progress."""

_PERCENT = 100.0
_PER_HOUR = 60.0
"""Prices are listed per minute."""

_MAX_TEXT = 64 * 2**20
"""Characters of all names and labels: some ten times what 10,000 deployments usually have."""

_MAX_USER_LABELS = 20
_MAX_LABEL_LENGTH = 200


@dataclass(frozen=True, slots=True)
class ModelListing:
    """One model with its deployments and environments."""

    model: Model
    deployments: tuple[Deployment, ...] = ()
    environments: tuple[Environment, ...] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """Models by id, trainers, and prices by the name of the instance type."""

    models: Mapping[str, ModelListing] = field(default_factory=dict)
    trainers: tuple[Trainer, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict)


def promotion_of(environment: Environment) -> Promotion | None:
    """The promotion in progress; one that is over may still be listed."""
    promotion = environment.in_progress_promotion
    return promotion if promotion is not None and promotion.status not in _OVER else None


class Metric(NamedTuple):
    """A family about listed things; their value is the listed one times `scale` divided by `per`."""

    family: str
    help: str
    labels: tuple[str, ...] = ()
    scale: float = 1.0
    per: float = 1.0


def _model(name: str, help_text: str, *labels: str, scale: float = 1.0, per: float = 1.0) -> Metric:
    return Metric(
        f"baseten_model_deployment_{name}",
        help_text,
        ("model_id", "deployment_id", "model_name", "environment", *labels),
        scale,
        per,
    )


def _environment(name: str, help_text: str, *labels: str, per: float = 1.0) -> Metric:
    own = ("model_id", "environment", *labels)
    return Metric(f"baseten_model_environment_{name}", help_text, own, per=per)


def _loops(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(f"baseten_loops_{name}", help_text, ("deployment_id", *labels))


DEPLOYMENT_INFO = _model(
    "info",
    "A deployment and what is said of it, always 1; the user's own labels as label_<name>.",
    "deployment_name",
    "team",
    "instance_type",
)
DEPLOYMENT_STATUS = _model("status", "1 for the status it is in; the others are absent.", "status")
DEPLOYMENT_PRICE = _model(
    "price_dollars_per_hour", "Active replicas times the price of their instance type.", scale=_PER_HOUR
)
CREATED = _model("created_timestamp_seconds", "Time it was created, in seconds since the epoch.")
ACTIVE_REPLICAS = _model("active_replicas", "Replicas that run, as listed.")

# By the field of the autoscaling settings.
AUTOSCALING = MappingProxyType(
    {
        "min_replica": _model("autoscaling_min_replicas", "Fewest replicas the autoscaler may leave."),
        "max_replica": _model("autoscaling_max_replicas", "Most replicas the autoscaler may start."),
        "concurrency_target": _model(
            "autoscaling_concurrency_target", "Requests per replica the autoscaler aims at."
        ),
        "scale_down_delay": _model(
            "autoscaling_scale_down_delay_seconds", "Time the autoscaler waits before it removes a replica."
        ),
        "autoscaling_window": _model(
            "autoscaling_window_seconds", "Span of traffic the autoscaler looks at."
        ),
        "target_utilization_percentage": _model(
            "autoscaling_target_utilization_ratio", "Utilization the autoscaler aims at.", per=_PERCENT
        ),
    }
)

ENVIRONMENT_INFO = _environment(
    "info", "An environment, always 1; its deployments by id.", "deployment_id", "candidate_deployment_id"
)
PROMOTION = _environment("promotion_in_progress", "Whether a promotion is in progress (1) or not (0).")
PROMOTION_TRAFFIC = _environment(
    "promotion_traffic_ratio", "Share of the traffic that goes to the candidate.", per=_PERCENT
)
LOOPS_INFO = _loops(
    "deployment_info",
    "A Loops deployment and its sampler, always 1.",
    "base_model",
    "sampler_id",
    "sampler_model_id",
    "sampler_deployment_id",
)
LOOPS_STATUS = _loops("deployment_status", "1 for the status it is in; the others are absent.", "status")
SAMPLER_STATUS = _loops(
    "sampler_status", "1 for the status its sampler is in; the others are absent.", "status"
)
INSTANCE_PRICE = Metric(
    "baseten_instance_type_price_dollars_per_hour",
    "Price of an instance type.",
    ("instance_type", "gpu_type", "gpu_count"),
    _PER_HOUR,
)

METRICS = (
    *(DEPLOYMENT_INFO, DEPLOYMENT_STATUS, DEPLOYMENT_PRICE, CREATED, ACTIVE_REPLICAS, *AUTOSCALING.values()),
    *(ENVIRONMENT_INFO, PROMOTION, PROMOTION_TRAFFIC),
    *(LOOPS_INFO, LOOPS_STATUS, SAMPLER_STATUS, INSTANCE_PRICE),
)


def harvest(inventory: Inventory, metadata: Collection[str]) -> Harvest:
    """All that is listed, also what is scaled to zero or has no metrics.

    `metadata` names the labels that stand on every series of a deployment; its info has them all.
    """
    gathered = Harvest(oldest=0.0, max_text=_MAX_TEXT)
    for listing in inventory.models.values():
        for deployment in listing.deployments:
            _add_deployment(gathered, listing.model, deployment, inventory.prices, metadata)
        for environment in listing.environments:
            _add_environment(gathered, listing.model, environment)
    for trainer in inventory.trainers:
        _add_trainer(gathered, trainer)
    for each in inventory.prices.values():
        instance = each.instance_type
        count = None if instance.gpu_count is None else f"{instance.gpu_count:g}"
        _add(gathered, INSTANCE_PRICE, (instance.name, instance.gpu_type, count), each.price)
    return gathered


def _add_deployment(
    harvest: Harvest,
    model: Model,
    deployment: Deployment,
    prices: Mapping[str, Price],
    metadata: Collection[str],
) -> None:
    names = {"model_name": model.name, "environment": deployment.environment}
    said = (deployment.name, model.team_name, deployment.instance_type_name)
    info = (model.id, deployment.id, *names.values(), *said)
    ids = (model.id, deployment.id, *(text if name in metadata else None for name, text in names.items()))
    _add(harvest, DEPLOYMENT_INFO, info, 1, _user_labels(deployment))
    _add(harvest, DEPLOYMENT_STATUS, (*ids, deployment.status), deployment.status and 1)
    _add(harvest, CREATED, ids, parse_time(deployment.created_at))
    _add(harvest, ACTIVE_REPLICAS, ids, deployment.active_replica_count)
    for name, metric in AUTOSCALING.items():
        _add(harvest, metric, ids, getattr(deployment.autoscaling_settings, name, None))
    price = prices.get(deployment.instance_type_name or "")
    if price is not None and price.price is not None and deployment.active_replica_count is not None:
        _add(harvest, DEPLOYMENT_PRICE, ids, deployment.active_replica_count * price.price)


def _add_environment(harvest: Harvest, model: Model, environment: Environment) -> None:
    key = (model.id, environment.name)
    current, candidate = environment.current_deployment, environment.candidate_deployment
    deployments = (each.id if each is not None else None for each in (current, candidate))
    _add(harvest, ENVIRONMENT_INFO, (*key, *deployments), 1)
    promotion = promotion_of(environment)
    _add(harvest, PROMOTION, key, int(promotion is not None))
    if promotion is not None:
        _add(harvest, PROMOTION_TRAFFIC, key, promotion.percent_traffic_to_new_version)


def _add_trainer(harvest: Harvest, trainer: Trainer) -> None:
    sampler = trainer.sampler
    ids = (sampler.id, sampler.model_id, sampler.deployment_id) if sampler else (None, None, None)
    _add(harvest, LOOPS_INFO, (trainer.id, trainer.base_model, *ids), 1)
    _add_status(harvest, LOOPS_STATUS, trainer.id, trainer.status.name if trainer.status else None)
    if sampler is not None and sampler.status is not None:
        _add_status(harvest, SAMPLER_STATUS, trainer.id, sampler.status.name)


def _add_status(harvest: Harvest, metric: Metric, trainer_id: str, status: str | None) -> None:
    if status:
        _add(harvest, metric, (trainer_id, status), 1)


def _add(harvest: Harvest, metric: Metric, texts: Texts, raw: object, more: Labels = ()) -> None:
    """Add a sample; `texts` are the values of the metric's labels, None or "" where there is none."""
    own = ((name, clean_text(text)) for name, text in zip(metric.labels, texts, strict=True) if text)
    harvest.add(metric.family, metric.help, tuple(sorted((*own, *more))), raw, 0.0, metric.scale, metric.per)


def _user_labels(deployment: Deployment) -> Labels:
    """The user's labels, sanitized; the first few and not too long, since they cost every scrape."""
    labels: dict[str, str] = {}
    for name, raw in sorted((deployment.labels or {}).items())[:_MAX_USER_LABELS]:
        text = label_text(raw)
        if text:
            labels.setdefault(f"label_{sanitize(name[:_MAX_LABEL_LENGTH])}", text[:_MAX_LABEL_LENGTH])
    return tuple(labels.items())
