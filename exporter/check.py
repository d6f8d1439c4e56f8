"""What `check` tells a person about a config: what would be polled, and what it costs."""

import difflib
from collections.abc import Iterable, Iterator

from exporter import budget
from exporter.app import Exporter, part, wanted
from exporter.baseten.catalogue import CATALOGUE
from exporter.baseten.client import DEPLOYMENTS, ENVIRONMENTS, LOOPS_DEPLOYMENTS, MODELS, PRICES
from exporter.baseten.errors import ApiError
from exporter.baseten.fetch import Api
from exporter.baseten.listings import Model
from exporter.baseten.selection import Wanted, counts, missing_environments
from exporter.config import Config, Workspace
from exporter.model import ModelOptions, Target
from exporter.polling.discovery import DEFAULT_INTERVAL, Discovery
from exporter.sharding import WHOLE, Shard


def offline(config: Config, shard: Shard = WHOLE) -> Iterator[str]:
    """What the file alone says."""
    config = part(config, shard)
    yield from _targets(config, [target for target in config.targets if shard.owns(target.key)])
    for workspace in config.workspaces:
        yield from (
            f"{workspace.name}: follows environment {entry.environment} of model {entry.model_id}"
            for entry in workspace.followed
        )
        if workspace.discovery is not None:
            yield f"{workspace.name}: discovers more; check --live says what, and what listing it costs"
        else:
            named = [Model(model_id) for model_id in wanted(workspace).named_models()]
            yield from _listing_cost(workspace, wanted(workspace), named, DEFAULT_INTERVAL)


def live(exporter: Exporter) -> tuple[list[str], bool]:
    """What the API says, too, and whether it answered everything: lists all, polls one target of a kind."""
    troubles = [*_list(exporter), *_probe(exporter)]
    lines = list(_targets(exporter.config, exporter.targets))
    for workspace in exporter.config.workspaces:
        discovery = exporter.discoveries[workspace.name]
        models = [listing.model for listing in discovery.inventory.models.values()]
        lines += _listing_cost(workspace, discovery.wanted, models, discovery.interval)
        lines += _learned(workspace.name, exporter.poller.apis[workspace.name])
        lines += unmatched(discovery)
    return lines + troubles, not troubles


def unmatched(discovery: Discovery) -> Iterator[str]:
    """What the config selects or follows, and the listings do not have."""
    wanted, inventory = discovery.wanted, discovery.inventory
    for kind, count in counts(wanted, inventory).items():
        if count == 0 and kind in discovery.heard:
            yield f"{wanted.workspace}: discovery of {kind} targets matches nothing"
    missing = missing_environments(wanted, inventory) if "model" in discovery.heard else ()
    for model_id, environment in missing:
        yield f"{wanted.workspace}: nothing is in environment {environment} of model {model_id}"


def _list(exporter: Exporter) -> Iterator[str]:
    for workspace, errors in exporter.list_once().items():
        yield from (unlisted(workspace, error) for error in errors)


def unlisted(workspace: str, error: ApiError) -> str:
    return f"{workspace}: could not list {error.endpoint}: {error}"


def _probe(exporter: Exporter) -> Iterator[str]:
    samples = {(target.workspace, target.kind): target for target in reversed(exporter.targets)}
    for target in samples.values():
        outcome = exporter.poller.poll(target)
        if outcome is not None and outcome.reason is not None:
            yield f"{target}: could not poll: {outcome.error}"


def _learned(workspace: str, api: Api) -> Iterator[str]:
    yield from (f"{workspace}: the API does not know the metric {name}" for name in api.names.rejected())
    for endpoint, item in api.client.drift.found:
        yield f"{workspace}: {endpoint} sends an unknown {item.what}: {item.path}"


def _targets(config: Config, targets: Iterable[Target]) -> Iterator[str]:
    targets = list(targets)
    for target in targets:
        yield str(target)
        yield from (f"  {hint}" for hint in _doubtful_names(target))
    yield f"targets: {len(targets)}, each polled every {config.poll.interval:g} s"
    yield from _budgets(budget.polls(config, targets))
    warnings = budget.warnings(config, budget.intervals(config, targets))
    yield from (f"  {warning}" for warning in warnings)


def _listing_cost(
    workspace: Workspace, wanted: Wanted, models: list[Model], interval: float
) -> Iterator[str]:
    requests = {
        MODELS: int(wanted.lists_models()),
        DEPLOYMENTS: len(models),
        ENVIRONMENTS: sum(wanted.lists_environments(model) for model in models),
        LOOPS_DEPLOYMENTS: int(wanted.lists_trainers()),
        PRICES: int(wanted.lists_prices()),
    }
    made = {endpoint: count for endpoint, count in requests.items() if count}
    budgets = budget.listings(workspace, made, interval)
    yield from _budgets(budgets)
    if any(each.share_of_rate > 1 for each in budgets):
        yield "  listing takes longer than its interval: raise requests_per_second or discovery.interval"


def _budgets(budgets: Iterable[budget.Budget]) -> Iterator[str]:
    for each in budgets:
        yield (
            f"{each.workspace}: {each.endpoint}, {each.per_minute:.1f} requests/minute: "
            f"{each.share_of_rate:.1%} of requests_per_second, {each.share_of_limit:.1%} of the API's limit"
        )


def _doubtful_names(target: Target) -> Iterator[str]:
    """Metric names that this version does not know; the API may, so they are no error."""
    asked = target.options.metrics if isinstance(target.options, ModelOptions) else ()
    for name in asked if isinstance(asked, tuple) else ():
        if name not in CATALOGUE:
            source = name.replace("baseten_model_", "baseten_", 1)
            near = difflib.get_close_matches(source, CATALOGUE, n=1, cutoff=0.8)
            hint = f", did you mean {near[0]}?" if near else ""
            yield f"metric {name} is not known to this version{hint}"
