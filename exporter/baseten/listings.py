"""The answers of the endpoints that list what there is, read leniently.

Only ids are required. Who owns what is not read at all, so that no e-mail address can get out.
"""

from typing import Any

import msgspec

Text = str | None
Number = float | None


class Model(msgspec.Struct, frozen=True):
    id: str
    name: Text = None
    team_name: Text = None


class Models(msgspec.Struct, frozen=True):
    models: list[Model]


class Autoscaling(msgspec.Struct, frozen=True):
    """Replicas and requests are counts, window and delay seconds."""

    min_replica: Number = None
    max_replica: Number = None
    autoscaling_window: Number = None
    scale_down_delay: Number = None
    concurrency_target: Number = None
    target_utilization_percentage: Number = None


class Deployment(msgspec.Struct, frozen=True):
    id: str
    name: Text = None
    environment: Text = None
    status: Text = None
    active_replica_count: Number = None
    instance_type_name: Text = None
    created_at: Text = None
    autoscaling_settings: Autoscaling | None = None
    labels: dict[str, Any] | None = None


class Deployments(msgspec.Struct, frozen=True):
    deployments: list[Deployment]


class Reference(msgspec.Struct, frozen=True):
    """A deployment that stands inside an environment."""

    id: str


class Promotion(msgspec.Struct, frozen=True):
    status: Text = None
    percent_traffic_to_new_version: Number = None


class Environment(msgspec.Struct, frozen=True):
    name: str
    current_deployment: Reference | None = None
    candidate_deployment: Reference | None = None
    in_progress_promotion: Promotion | None = None


class Environments(msgspec.Struct, frozen=True):
    environments: list[Environment]


class Status(msgspec.Struct, frozen=True):
    name: Text = None


class Sampler(msgspec.Struct, frozen=True):
    """The half of a Loops deployment that serves: an ordinary model deployment."""

    model_id: str
    deployment_id: str
    id: Text = None
    status: Status | None = None


class Trainer(msgspec.Struct, frozen=True):
    id: str
    base_model: Text = None
    status: Status | None = None
    sampler: Sampler | None = None


class Trainers(msgspec.Struct, frozen=True):
    deployments: list[Trainer]


class InstanceType(msgspec.Struct, frozen=True):
    name: str
    gpu_type: Text = None
    gpu_count: Number = None


class Price(msgspec.Struct, frozen=True):
    """`price` is in US dollars per minute."""

    instance_type: InstanceType
    price: Number = None


class Prices(msgspec.Struct, frozen=True):
    instance_types: list[Price]
