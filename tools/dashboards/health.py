"""Exporter health: whether what the other dashboards show is fresh, and what having it costs."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from tools.dashboards import frame, limits
from tools.dashboards.style import (
    BYTES,
    COUNT,
    PER_SECOND,
    QUARTER,
    RATIO,
    REQUESTS,
    SECONDS,
    Column,
    Names,
    Query,
    figure,
    limited,
    listing,
    stacked,
    timeseries,
)

_SCRAPE = "and on (job, instance) baseten_exporter_build_info"
"""Of the exporters only: these families have series of everything that Prometheus scrapes."""

_TARGET = "workspace, kind, deployment_id"


def _of(name: str) -> str:
    return frame.chosen(f"baseten_exporter_{name}", ["workspace"])


def _rate(name: str) -> str:
    return f"rate({_of(name)}[$__rate_interval])"


def _total(name: str, *labels: str) -> Query:
    """How fast a counter grows by its labels."""
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    return Query(f"sum by ({', '.join(labels)}) ({_rate(name)})", legend)


def _p95(name: str, *labels: str) -> Query:
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    return Query(
        f"histogram_quantile(0.95, sum by ({', '.join(['le', *labels])}) ({_rate(name + '_bucket')}))", legend
    )


def _age(name: str) -> str:
    return f"time() - {_of(name)}"


_NEWEST = _age("target_newest_sample_timestamp_seconds")
_POLLED = _age("target_last_success_timestamp_seconds")
_LISTED = _age("discovery_last_success_timestamp_seconds")


def dashboard() -> Dashboard:
    return frame.dashboard(
        frame.HEALTH,
        "Whether the values are fresh, what is asked of the Baseten API, what fails, and what it costs.",
        [],
        {
            "Targets": _targets(),
            "Freshness": _freshness(),
            "Requests to the API": _requests(),
            "Polls and listings": _polls(),
            "Limits and outages": _limits(),
            "Shards and certificate": _serving(),
            "Cost": _cost(),
        },
    )


def _targets() -> frame.Panels:
    target = {"workspace": "Workspace", "kind": "Kind", "deployment_id": "Deployment"}
    return [
        figure(
            *(11, "Targets", COUNT, "Deployments and trainers that are polled."), f"count({_of('target_up')})"
        ),
        figure(
            *(12, "Failing targets", COUNT, "Targets whose last poll failed."),
            f"count({_of('target_up')} == 0) or vector(0)",
        ).thresholds(limits.ANY),
        figure(
            *(13, "Oldest data", SECONDS, "Age of the newest value of the target that is most behind."),
            f"max({_NEWEST})",
        ).thresholds(limits.TRAFFIC_AGE),
        figure(
            *(14, "Last listing", SECONDS, "Time since everything could last be listed."), f"max({_LISTED})"
        ).thresholds(limits.LISTING_AGE),
        figure(*(15, "Series", COUNT, "Series of all targets on the page."), f"sum({_of('target_series')})"),
        figure(
            *(
                16,
                "Config loaded",
                COUNT,
                "1 if the last load of the config succeeded; 0 keeps the one before.",
            ),
            "min(baseten_exporter_config_last_reload_successful)",
        ).thresholds(limits.UP),
        listing(
            *(17, "All targets", "Up is 0 where the last poll failed; the log and the status page say why."),
            Names(target),
            Column("Up", f"max by ({_TARGET}) ({_of('target_up')})", COUNT, limits.UP),
            Column("Newest value", f"max by ({_TARGET}) ({_NEWEST})", SECONDS, limits.TRAFFIC_AGE),
            Column("Last good poll", f"max by ({_TARGET}) ({_POLLED})", SECONDS, limits.POLL_AGE),
            Column("Series", f"max by ({_TARGET}) ({_of('target_series')})"),
        ),
    ]


def _freshness() -> frame.Panels:
    return [
        limited(
            timeseries(
                *(21, "Age of the newest value", SECONDS, "What the API itself is behind is in it."),
                Query(f"max by ({_TARGET}) ({_NEWEST})", "{{kind}} {{deployment_id}}"),
            ),
            limits.TRAFFIC_AGE,
        ),
        limited(
            timeseries(
                *(22, "Time since the last good poll", SECONDS, "Normally below the polling interval."),
                Query(f"max by ({_TARGET}) ({_POLLED})", "{{kind}} {{deployment_id}}"),
            ),
            limits.POLL_AGE,
        ),
        limited(
            timeseries(
                *(23, "Time since the last listing", SECONDS, "Normally below the discovery interval."),
                Query(f"max by (workspace) ({_LISTED})", "{{workspace}}"),
            ),
            limits.LISTING_AGE,
        ),
    ]


def _requests() -> frame.Panels:
    return [
        stacked(
            timeseries(
                *(31, "Requests", REQUESTS, "What is used of the API's rate limit, by endpoint."),
                _total("api_requests_total", "workspace", "endpoint"),
            )
        ).span(QUARTER),
        stacked(
            timeseries(
                *(32, "Answers", REQUESTS, "By HTTP status, or why there was none; 429 is the rate limit."),
                _total("api_requests_total", "workspace", "code"),
            )
        ).span(QUARTER),
        timeseries(
            *(
                33,
                "Waiting for the budget",
                RATIO,
                "Time polls wait to keep requests_per_second, per second.",
            ),
            _total("api_rate_limit_wait_seconds_total", "workspace", "endpoint"),
        ).span(QUARTER),
        timeseries(
            *(34, "Duration, p95", SECONDS, "95 of 100 requests to an endpoint took no longer."),
            _p95("api_request_duration_seconds", "workspace", "endpoint"),
        ).span(QUARTER),
    ]


def _polls() -> frame.Panels:
    return [
        timeseries(
            *(41, "Polls", PER_SECOND, "Polls that ran, and those that did not start, by reason."),
            Query(f"sum by (workspace, kind) ({_rate('polls_total')})", "{{workspace}} {{kind}} ran"),
            Query(
                f"sum by (workspace, kind, reason) ({_rate('polls_skipped_total')})",
                "{{workspace}} {{kind}} skipped, {{reason}}",
            ),
        ),
        timeseries(
            *(42, "Failed polls", PER_SECOND, "By reason; 0 is what is expected."),
            _total("poll_failures_total", "workspace", "kind", "reason"),
        ),
        timeseries(
            *(43, "Duration of polls, p95", SECONDS, "95 of 100 polls took no longer, waits included."),
            _p95("poll_duration_seconds", "workspace", "kind"),
        ),
        timeseries(
            *(44, "Failed listings", PER_SECOND, "By reason; what was listed before is polled on."),
            _total("discovery_failures_total", "workspace", "reason"),
        ),
        timeseries(
            *(45, "Discovered targets", COUNT, "What the selectors find; 0 means that they match nothing."),
            Query(f"sum by (workspace, kind) ({_of('discovered_targets')})", "{{workspace}} {{kind}}"),
        ),
        timeseries(
            *(46, "Values left out", PER_SECOND, "Values in answers that were not exposed, by reason."),
            Query(
                "sum by (reason) (rate(baseten_exporter_dropped_samples_total[$__rate_interval]))",
                "{{reason}}",
            ),
        ),
    ]


def _limits() -> frame.Panels:
    return [
        limited(
            timeseries(
                *(61, "Circuit", COUNT, "1 while nothing gets through: only probes go out."),
                Query(f"max by (workspace) ({_of('workspace_circuit_open')})", "{{workspace}}"),
            ),
            limits.ANY,
        ).span(QUARTER),
        timeseries(
            *(62, "Polling interval", SECONDS, "Longer than configured where the rate allows no more."),
            Query(
                f"max by (workspace, kind) ({_of('effective_interval_seconds')})", "{{workspace}} {{kind}}"
            ),
            Query("max(baseten_exporter_poll_interval_seconds)", "configured"),
        ).span(QUARTER),
        timeseries(
            *(63, "Pauses", SECONDS, "How much longer an endpoint is left alone after a 429."),
            Query(
                f"max by (workspace, endpoint) ({_of('api_paused_until_timestamp_seconds')}) - time() > 0",
                "{{workspace}} {{endpoint}}",
            ),
        ).span(QUARTER),
        timeseries(
            *(64, "Retries", REQUESTS, "Requests sent a second time; at most one for each poll."),
            _total("api_retries_total", "workspace", "endpoint"),
        ).span(QUARTER),
    ]


def _serving() -> frame.Panels:
    return [
        timeseries(
            *(71, "Shards", COUNT, "Shards that are there, by how many each takes them to be in all."),
            Query(
                "count by (total_shards) (count by (shard, total_shards) (baseten_exporter_shard_info))",
                "of {{total_shards}}",
            ),
        ),
        timeseries(
            *(72, "Targets of each shard", COUNT, "About the same for each, since a hash spreads them."),
            Query(
                f"max by (shard) (count by (job, instance) ({_of('target_up')})"
                " * on (job, instance) group_left (shard) baseten_exporter_shard_info)",
                "shard {{shard}}",
            ),
        ),
        limited(
            timeseries(
                *(73, "Certificate", SECONDS, "Time until the served certificate ends; none without TLS."),
                Query(
                    "min by (instance) (baseten_exporter_web_certificate_expiry_timestamp_seconds) - time()",
                    "{{instance}}",
                ),
            ),
            limits.CERTIFICATE,
        ),
    ]


def _cost() -> frame.Panels:
    return [
        timeseries(
            *(51, "Duration of scrapes", SECONDS, "What Prometheus measures; no scrape calls the API."),
            Query(f"max by (job, instance) (scrape_duration_seconds {_SCRAPE})", "{{instance}}"),
        ).span(QUARTER),
        timeseries(
            *(52, "Samples of a scrape", COUNT, "Size of the page."),
            Query(f"max by (job, instance) (scrape_samples_scraped {_SCRAPE})", "{{instance}}"),
        ).span(QUARTER),
        timeseries(
            *(53, "CPU", "suffix: cores", "CPU cores that the exporter uses."),
            Query(
                f"max by (job, instance) (rate(process_cpu_seconds_total[$__rate_interval]) {_SCRAPE})",
                "{{instance}}",
            ),
        ).span(QUARTER),
        timeseries(
            *(54, "Memory", BYTES, "Resident memory of the exporter."),
            Query(f"max by (job, instance) (process_resident_memory_bytes {_SCRAPE})", "{{instance}}"),
        ).span(QUARTER),
    ]
