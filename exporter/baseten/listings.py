"""The answers of the endpoints that list what there is, read leniently.

Only ids are required. Who owns what is not read at all, so that no e-mail address can get out.
`unread` names the documented fields of a type that are of no use here.
"""

from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

Text = str | None
Number = float | None

Item = TypeVar("Item")
Items = Annotated[list[Item], msgspec.Meta(max_length=20_000)]
"""What is listed is all kept: more than anybody has is no listing."""

DeploymentStatus = Annotated[
    Text,
    msgspec.Meta(
        extra={
            "known": (
                *(
                    "BUILDING",
                    "DEPLOYING",
                    "DEPLOY_FAILED",
                    "LOADING_MODEL",
                    "ACTIVE",
                    "UNHEALTHY",
                    "UPDATING",
                ),
                *("BUILD_FAILED", "BUILD_STOPPED", "DEACTIVATING", "INACTIVE", "FAILED", "SCALED_TO_ZERO"),
                "WAKING_UP",
            )
        }
    ),
]
TrainerStatus = Annotated[
    Text,
    msgspec.Meta(extra={"known": ("CREATED", "DEPLOYING", "RUNNING", "SCALED_TO_ZERO", "FAILED", "STOPPED")}),
]
PromotionStatus = Annotated[
    Text,
    msgspec.Meta(
        extra={
            "known": (
                *("RELEASING", "RAMPING_UP", "RAMPING_DOWN", "PAUSED"),
                *("SUCCEEDED", "FAILED", "CANCELED"),
            )
        }
    ),
]


class Model(msgspec.Struct, frozen=True):
    unread: ClassVar = frozenset(
        {
            "created_at",
            "deployments_count",
            "production_deployment_id",
            "development_deployment_id",
            "instance_type_name",
        }
    )

    id: str
    name: Text = None
    team_name: Text = None


class Models(msgspec.Struct, frozen=True):
    models: Items[Model]


class Autoscaling(msgspec.Struct, frozen=True):
    """Replicas and requests are counts, window and delay seconds."""

    unread: ClassVar = frozenset({"target_in_flight_tokens", "max_scale_down_rate"})

    min_replica: Number = None
    max_replica: Number = None
    autoscaling_window: Number = None
    scale_down_delay: Number = None
    concurrency_target: Number = None
    target_utilization_percentage: Number = None


class Deployment(msgspec.Struct, frozen=True):
    unread: ClassVar = frozenset({"model_id", "is_production", "is_development"})

    id: str
    name: Text = None
    environment: Text = None
    status: DeploymentStatus = None
    active_replica_count: Number = None
    instance_type_name: Text = None
    created_at: Text = None
    autoscaling_settings: Autoscaling | None = None
    labels: dict[str, Any] | None = None


class Deployments(msgspec.Struct, frozen=True):
    deployments: Items[Deployment]


class Reference(msgspec.Struct, frozen=True):
    """A deployment that stands inside an environment."""

    unread: ClassVar = Deployment.unread | frozenset(Deployment.__struct_fields__)

    id: str


class Promotion(msgspec.Struct, frozen=True):
    unread: ClassVar = frozenset({"error_message", "rolling_deploy"})

    status: PromotionStatus = None
    percent_traffic_to_new_version: Number = None


class Environment(msgspec.Struct, frozen=True):
    unread: ClassVar = frozenset(
        {"created_at", "model_id", "autoscaling_settings", "promotion_settings", "instance_type"}
    )

    name: str
    current_deployment: Reference | None = None
    candidate_deployment: Reference | None = None
    in_progress_promotion: Promotion | None = None


class Environments(msgspec.Struct, frozen=True):
    environments: Items[Environment]


class Status(msgspec.Struct, frozen=True):
    name: TrainerStatus = None


class SamplerStatus(msgspec.Struct, frozen=True):
    name: DeploymentStatus = None


class Sampler(msgspec.Struct, frozen=True):
    """The half of a Loops deployment that serves: an ordinary model deployment."""

    unread: ClassVar = frozenset({"base_url", "base_model", "created_at"})

    model_id: str
    deployment_id: str
    id: Text = None
    status: SamplerStatus | None = None


class Trainer(msgspec.Struct, frozen=True):
    unread: ClassVar = frozenset({"base_url", "user"})

    id: str
    base_model: Text = None
    status: Status | None = None
    sampler: Sampler | None = None


class Trainers(msgspec.Struct, frozen=True):
    deployments: Items[Trainer]


class InstanceType(msgspec.Struct, frozen=True):
    unread: ClassVar = frozenset({"id", "memory_limit_mib", "millicpu_limit", "gpu_memory_limit_mib"})

    name: str
    gpu_type: Text = None
    gpu_count: Number = None


class Price(msgspec.Struct, frozen=True):
    """`price` is in US dollars per minute."""

    instance_type: InstanceType
    price: Number = None


class Prices(msgspec.Struct, frozen=True):
    instance_types: Items[Price]
