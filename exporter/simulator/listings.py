"""Answers of the endpoints that list what there is, as pure functions of the organization."""

from datetime import UTC, datetime

from exporter.simulator.organization import Deployment, Instance, Model, Organization, Promotion, Trainer

Json = dict[str, object]

UNFINISHED = ("BUILDING", "BUILD_FAILED", "BUILD_STOPPED", "DEPLOYING", "DEPLOY_FAILED")


def models(organization: Organization) -> Json:
    return {"models": [model(each) for each in organization.models]}


def model(model: Model) -> Json:
    by_environment = {each.environment: each for each in reversed(model.deployments)}
    production, development = map(by_environment.get, ("production", "development"))
    return {
        "id": model.id,
        "created_at": _stamp(model.created),
        "name": model.name,
        "deployments_count": len(model.deployments),
        "production_deployment_id": production.id if production else None,
        "development_deployment_id": development.id if development else None,
        "instance_type_name": (production or model.deployments[0]).instance.name,
        "team_name": model.team,
    }


def deployments(model: Model) -> Json:
    return {"deployments": [deployment(each) for each in model.deployments]}


def deployment(deployment: Deployment) -> Json:
    return {
        "id": deployment.id,
        "created_at": _stamp(deployment.created),
        "name": deployment.name,
        "model_id": deployment.model_id,
        "is_production": deployment.environment == "production",
        "is_development": deployment.environment == "development",
        "status": deployment.status,
        "active_replica_count": deployment.active_replicas,
        "autoscaling_settings": None if deployment.status in UNFINISHED else _autoscaling(deployment),
        "instance_type_name": deployment.instance.name,
        "environment": deployment.environment,
        "labels": {"service": deployment.model_id, **dict(deployment.labels)},
    }


def _autoscaling(deployment: Deployment) -> Json:
    return {
        "min_replica": min(1, deployment.active_replicas),
        "max_replica": max(1, 2 * deployment.replicas),
        "autoscaling_window": 60,
        "scale_down_delay": 900,
        "concurrency_target": 8,
        "target_utilization_percentage": 70,
        "target_in_flight_tokens": 20_000 if "llm" in deployment.engine else None,
        "max_scale_down_rate": None,
    }


def environments(model: Model) -> Json:
    return {"environments": [_environment(model, each) for each in model.deployments if each.environment]}


def _environment(model: Model, current: Deployment) -> Json:
    promotion = model.promotion_to(current.environment)
    candidates = [
        deployment(each) for each in model.deployments if promotion and each.id == promotion.candidate_id
    ]
    return {
        "name": current.environment,
        "created_at": _stamp(model.created),
        "model_id": model.id,
        "current_deployment": deployment(current),
        "candidate_deployment": candidates[0] if candidates else None,
        "in_progress_promotion": _promotion(promotion) if promotion else None,
        "autoscaling_settings": _autoscaling(current),
        "promotion_settings": {"redeploy_on_promotion": False, "rolling_deploy": False},
        "instance_type": _instance(current.instance),
    }


def _promotion(promotion: Promotion) -> Json:
    return {"status": promotion.status, "percent_traffic_to_new_version": promotion.percent}


def _instance(instance: Instance) -> Json:
    return {
        "id": instance.name,
        "name": instance.name,
        "memory_limit_mib": instance.memory_mib,
        "millicpu_limit": instance.millicpu,
        "gpu_count": instance.gpus,
        "gpu_type": instance.gpu_type,
        "gpu_memory_limit_mib": instance.gpu_memory_mib,
    }


def prices(organization: Organization) -> Json:
    priced = [{"instance_type": _instance(each), "price": each.price} for each in organization.instances]
    return {"instance_types": priced}


def trainers(organization: Organization, owner: str | None) -> Json:
    """The trainers of one owner, or all."""
    found = [each for each in organization.trainers if owner in {None, each.owner}]
    return {"deployments": [_trainer(organization, each) for each in found]}


def trainer(organization: Organization, trainer: Trainer) -> Json:
    return {"deployment": _trainer(organization, trainer)}


def _trainer(organization: Organization, trainer: Trainer) -> Json:
    sampler = organization.deployment_by_ids.get(trainer.sampler) if trainer.sampler else None
    return {
        "id": trainer.id,
        "base_model": trainer.base_model,
        "base_url": f"https://trainer-{trainer.id}.api.baseten.co",
        "status": {"name": trainer.status},
        "user": {"email": trainer.owner},
        "sampler": _sampler(trainer, sampler) if sampler else None,
    }


def _sampler(trainer: Trainer, sampler: Deployment) -> Json:
    return {
        "id": f"s{trainer.id}",
        "base_url": f"https://model-{sampler.model_id}.api.baseten.co",
        "base_model": trainer.base_model,
        "created_at": _stamp(sampler.created),
        "model_id": sampler.model_id,
        "deployment_id": sampler.id,
        "status": {"name": sampler.status},
    }


def _stamp(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
