"""Answers of the endpoints that list what there is, as pure functions of the world."""

from exporter.simulator.world import Deployment, Instance, Model, Trainer, World

Json = dict[str, object]

CREATED_AT = "2025-06-02T09:00:00Z"


def models(world: World) -> Json:
    return {"models": [model(each) for each in world.models]}


def model(model: Model) -> Json:
    first = model.deployments[0]
    return {
        "id": model.id,
        "created_at": CREATED_AT,
        "name": model.name,
        "deployments_count": len(model.deployments),
        "production_deployment_id": first.id if first.environment == "production" else None,
        "development_deployment_id": None,
        "instance_type_name": first.instance.name,
        "team_name": "applied",
    }


def deployments(model: Model) -> Json:
    return {"deployments": [deployment(each) for each in model.deployments]}


def deployment(deployment: Deployment) -> Json:
    return {
        "id": deployment.id,
        "created_at": CREATED_AT,
        "name": deployment.name,
        "model_id": deployment.model_id,
        "is_production": deployment.environment == "production",
        "is_development": False,
        "status": deployment.status,
        "active_replica_count": deployment.replicas,
        "autoscaling_settings": _autoscaling(deployment),
        "instance_type_name": deployment.instance.name,
        "environment": deployment.environment,
        "labels": {"service": deployment.model_id},
    }


def _autoscaling(deployment: Deployment) -> Json:
    return {
        "min_replica": min(1, deployment.replicas),
        "max_replica": max(1, 2 * deployment.replicas),
        "autoscaling_window": 60,
        "scale_down_delay": 900,
        "concurrency_target": 8,
        "target_utilization_percentage": 70,
        "target_in_flight_tokens": 20_000 if "llm" in deployment.engine else None,
        "max_scale_down_rate": None,
    }


def environments(model: Model) -> Json:
    return {"environments": [_environment(each) for each in model.deployments if each.environment]}


def _environment(current: Deployment) -> Json:
    return {
        "name": current.environment,
        "created_at": CREATED_AT,
        "model_id": current.model_id,
        "current_deployment": deployment(current),
        "candidate_deployment": None,
        "in_progress_promotion": None,
        "autoscaling_settings": _autoscaling(current),
        "promotion_settings": {"redeploy_on_promotion": False, "rolling_deploy": False},
        "instance_type": _instance(current.instance),
    }


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


def prices(world: World) -> Json:
    priced = [{"instance_type": _instance(each), "price": each.price} for each in world.instances]
    return {"instance_types": priced}


def trainers(world: World, owner: str | None) -> Json:
    """The trainers of one owner, or all."""
    return {"deployments": [_trainer(each) for each in world.trainers if owner in {None, each.owner}]}


def trainer(trainer: Trainer) -> Json:
    return {"deployment": _trainer(trainer)}


def _trainer(trainer: Trainer) -> Json:
    return {
        "id": trainer.id,
        "base_model": trainer.base_model,
        "base_url": f"https://trainer-{trainer.id}.api.baseten.co",
        "status": {"name": trainer.status},
        "user": {"email": trainer.owner},
        "sampler": _sampler(trainer, trainer.sampler) if trainer.sampler else None,
    }


def _sampler(trainer: Trainer, sampler: Deployment) -> Json:
    return {
        "id": f"s{trainer.id}",
        "base_url": f"https://model-{sampler.model_id}.api.baseten.co",
        "base_model": trainer.base_model,
        "created_at": CREATED_AT,
        "model_id": sampler.model_id,
        "deployment_id": sampler.id,
        "status": {"name": sampler.status},
    }
