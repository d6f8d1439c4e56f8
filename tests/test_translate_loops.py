"""Loops trainers: the question, and answers in, exposition text out.

Now is 1000 s after the epoch and the delay 120 s, so traffic is settled at 00:14:40.
"""

from typing import Any

import pytest

from exporter.baseten import loops_metrics
from exporter.baseten.answers import LoopsAnswer, decode
from exporter.baseten.errors import ApiError
from exporter.baseten.values import parse_time
from exporter.model import LoopsOptions
from tests.helpers_baseten import NOW, Json, encoded, expected, lines, loops_translated

SETTLED = "1970-01-01T00:14:40Z"
LATER = "1970-01-01T00:15:10Z"


def at(timestamp: object, value: object = 1) -> Json:
    return {"value": value, "timestamp": timestamp}


def loops(**metrics: Any) -> Json:
    return {"deployment_id": "d", "metrics": metrics}


COMPUTE: Json = {
    "gpu_memory_usage_bytes": {"0": [at(SETTLED, 64e9)], "1": [at(SETTLED, 65e9)]},
    "gpu_utilization": {"0": [at(SETTLED, 0.5)], "1": [at(SETTLED, 0.25)]},
    "cpu_usage": [at(SETTLED, 3.5)],
    "cpu_memory_usage_bytes": [at(SETTLED, 80e9)],
    "ephemeral_storage": {"usage_bytes": [at(SETTLED, 12e9)], "utilization": [at(SETTLED, 0.125)]},
}


def test_the_question_reaches_from_window_and_delay_ago_up_to_now() -> None:
    assert loops_metrics.body(LoopsOptions(window=300, step=15, delay=120), 1000.9) == {
        "start_epoch_millis": 580_000,
        "end_epoch_millis": 1_000_000,
        "step_seconds": 15,
    }


# Each field


@pytest.mark.parametrize(
    ("metrics", "samples"),
    [
        pytest.param(
            {"inference_volume": [at(SETTLED, 2.5)]},
            "baseten_loops_inference_requests_per_second 2.5",
            id="inference_volume",
        ),
        pytest.param(
            {"concurrent_requests": [at(SETTLED, 4)]},
            "baseten_loops_concurrent_requests 4.0",
            id="concurrent_requests",
        ),
        pytest.param(
            {
                "inference_volume_by_status": [
                    {"timestamp": SETTLED, "status_2xx": 2, "status_4xx": 0.5, "status_5xx": 0}
                ]
            },
            """
            baseten_loops_inference_requests_by_status_per_second{status="2xx"} 2.0
            baseten_loops_inference_requests_by_status_per_second{status="4xx"} 0.5
            baseten_loops_inference_requests_by_status_per_second{status="5xx"} 0.0
            """,
            id="inference_volume_by_status",
        ),
        pytest.param(
            {"inference_volume_by_status": [{"timestamp": SETTLED, "status_3xx": 7, "total": 9}]},
            'baseten_loops_inference_requests_by_status_per_second{status="3xx"} 7.0',
            id="a class of status never heard of appears, other fields do not",
        ),
        pytest.param(
            {"response_time_stats": [{"timestamp": SETTLED, "p50": 250, "p95": 500, "p99": 4000}]},
            """
            baseten_loops_response_time_seconds{quantile="0.5"} 0.25
            baseten_loops_response_time_seconds{quantile="0.95"} 0.5
            baseten_loops_response_time_seconds{quantile="0.99"} 4.0
            """,
            id="response_time_stats: milliseconds become seconds",
        ),
        pytest.param(
            {"response_time_stats": [{"timestamp": SETTLED, "p50": 250, "p999": 9000}]},
            'baseten_loops_response_time_seconds{quantile="0.5"} 0.25',
            id="a percentile never heard of is ignored",
        ),
        pytest.param(
            COMPUTE,
            """
            baseten_loops_leader_gpu_memory_usage_bytes{gpu_rank="0"} 6.4e+10
            baseten_loops_leader_gpu_memory_usage_bytes{gpu_rank="1"} 6.5e+10
            baseten_loops_leader_gpu_utilization_ratio{gpu_rank="0"} 0.5
            baseten_loops_leader_gpu_utilization_ratio{gpu_rank="1"} 0.25
            baseten_loops_leader_cpu_usage_cores 3.5
            baseten_loops_leader_cpu_memory_usage_bytes 8e+10
            baseten_loops_leader_ephemeral_storage_usage_bytes 1.2e+10
            baseten_loops_leader_ephemeral_storage_utilization_ratio 0.125
            """,
            id="the leader",
        ),
        pytest.param(
            {"per_node_metrics": [{"node_id": "n0", **COMPUTE}]},
            """
            baseten_loops_node_gpu_memory_usage_bytes{gpu_rank="0",node_id="n0"} 6.4e+10
            baseten_loops_node_gpu_memory_usage_bytes{gpu_rank="1",node_id="n0"} 6.5e+10
            baseten_loops_node_gpu_utilization_ratio{gpu_rank="0",node_id="n0"} 0.5
            baseten_loops_node_gpu_utilization_ratio{gpu_rank="1",node_id="n0"} 0.25
            baseten_loops_node_cpu_usage_cores{node_id="n0"} 3.5
            baseten_loops_node_cpu_memory_usage_bytes{node_id="n0"} 8e+10
            baseten_loops_node_ephemeral_storage_usage_bytes{node_id="n0"} 1.2e+10
            baseten_loops_node_ephemeral_storage_utilization_ratio{node_id="n0"} 0.125
            """,
            id="a node",
        ),
        pytest.param(
            {"per_node_metrics": [
                {"node_id": "n0", "cpu_usage": [at(SETTLED, 1)]},
                {"node_id": "n1", "cpu_usage": [at(SETTLED, 2)]},
            ]},
            """
            baseten_loops_node_cpu_usage_cores{node_id="n0"} 1.0
            baseten_loops_node_cpu_usage_cores{node_id="n1"} 2.0
            """,
            id="nodes side by side",
        ),
        pytest.param(
            {"gpu_utilization": {"0": [at(SETTLED)], "2": [at(SETTLED)]},
             "gpu_memory_usage_bytes": {"1": [at(SETTLED)]}},
            """
            baseten_loops_leader_gpu_utilization_ratio{gpu_rank="0"} 1.0
            baseten_loops_leader_gpu_utilization_ratio{gpu_rank="2"} 1.0
            baseten_loops_leader_gpu_memory_usage_bytes{gpu_rank="1"} 1.0
            """,
            id="ranks of the two GPU metrics may differ",
        ),
        pytest.param(
            {"gpu_utilization": {"\ud800": [at(SETTLED)]},
             "per_node_metrics": [{"node_id": 'a"\udfff', "cpu_usage": [at(SETTLED)]}]},
            r"""
            baseten_loops_leader_gpu_utilization_ratio{gpu_rank="?"} 1.0
            baseten_loops_node_cpu_usage_cores{node_id="a\"?"} 1.0
            """,
            id="lone surrogates in ranks and node ids",
        ),
    ],
)  # fmt: skip
def test_each_field_has_its_family(metrics: Json, samples: str) -> None:
    harvest = loops_translated(loops(**metrics))
    assert lines(harvest) == expected(samples)
    assert harvest.newest == 880
    assert not harvest.dropped


NODE_ALONE: Json = {"node_id": "n0"}


@pytest.mark.parametrize(
    "metrics",
    [
        pytest.param({}, id="no fields"),
        pytest.param(dict.fromkeys((
            "inference_volume", "concurrent_requests", "response_time_stats", "inference_volume_by_status",
            "per_node_metrics", *COMPUTE)), id="null for every field"),
        pytest.param({
            "inference_volume": [], "concurrent_requests": [], "response_time_stats": [],
            "inference_volume_by_status": [], "gpu_utilization": {}, "gpu_memory_usage_bytes": {},
            "cpu_usage": [], "cpu_memory_usage_bytes": [],
            "ephemeral_storage": {"usage_bytes": [], "utilization": []}, "per_node_metrics": [],
        }, id="empty lists: scaled to zero"),
        pytest.param({"gpu_utilization": {"0": [], "1": None}}, id="ranks without points"),
        pytest.param({"ephemeral_storage": {}}, id="a storage without fields"),
        pytest.param({"ephemeral_storage": dict.fromkeys(("usage_bytes", "utilization"))}, id="of nulls"),
        pytest.param({"per_node_metrics": [NODE_ALONE]}, id="a node without fields"),
        pytest.param({"per_node_metrics": [NODE_ALONE | dict.fromkeys(COMPUTE)]}, id="a node of nulls"),
        pytest.param({"inference_volume_by_status": [{"timestamp": SETTLED}]}, id="a row without values"),
        pytest.param({"something_new": [{"x": 1}]}, id="a field never heard of"),
    ],
)  # fmt: skip
def test_absent_data_is_absent_and_no_loss(metrics: Json) -> None:
    harvest = loops_translated(loops(**metrics))
    assert (lines(harvest), harvest.newest, harvest.dropped) == ([], None, {})


# Which point


@pytest.mark.parametrize(
    ("points", "value"),
    [
        pytest.param([at(SETTLED, 1), at(LATER, 2)], 2, id="in order"),
        pytest.param([at(LATER, 2), at(SETTLED, 1)], 2, id="newest first"),
        pytest.param([at(SETTLED, 1), at(LATER, 2), at("1970-01-01T00:15:00Z", 3)], 2, id="in no order"),
        pytest.param([at(LATER, 1), at(LATER, 2)], 2, id="a tie: the last"),
        pytest.param([at("1970-01-01T02:15:00+02:00", 1), at("1970-01-01T00:14:59Z", 2)], 1, id="by instant"),
        pytest.param([at(None, 9), at(SETTLED, 1)], 1, id="one without a time never"),
    ],
)
def test_a_gauge_takes_the_newest_point(points: list[Json], value: float) -> None:
    harvest = loops_translated(loops(concurrent_requests=points))
    assert lines(harvest) == [f"baseten_loops_concurrent_requests {value:.1f}"]


def test_traffic_takes_the_newest_settled_point_and_gauges_the_newest() -> None:
    rows = [
        {"timestamp": time, "status_2xx": value, "p50": 1000 * value}
        for time, value in ((LATER, 2), (SETTLED, 1))
    ]
    points = [at(LATER, 2), at(SETTLED, 1)]
    harvest = loops_translated(
        loops(
            inference_volume=points,
            inference_volume_by_status=rows,
            response_time_stats=rows,
            concurrent_requests=points,
            cpu_usage=points,
            per_node_metrics=[{"node_id": "n", "gpu_utilization": {"0": points}}],
        )
    )
    assert lines(harvest) == expected(
        """
        baseten_loops_inference_requests_per_second 1.0
        baseten_loops_inference_requests_by_status_per_second{status="2xx"} 1.0
        baseten_loops_response_time_seconds{quantile="0.5"} 1.0
        baseten_loops_concurrent_requests 2.0
        baseten_loops_leader_cpu_usage_cores 2.0
        baseten_loops_node_gpu_utilization_ratio{gpu_rank="0",node_id="n"} 2.0
        """
    )
    assert harvest.newest == 910


def test_unsettled_traffic_is_absent_and_no_loss() -> None:
    row = {"timestamp": LATER, "status_2xx": 1, "p50": 1}
    harvest = loops_translated(
        loops(inference_volume=[at(LATER)], inference_volume_by_status=[row], response_time_stats=[row])
    )
    assert (lines(harvest), harvest.dropped) == ([], {})


def test_a_null_percentile_is_absent_and_never_an_older_one() -> None:
    rows = [
        {"timestamp": "1970-01-01T00:14:10Z", "p50": 100, "p95": 200, "p99": 300},
        {"timestamp": SETTLED, "p50": 400, "p95": 500, "p99": None},
    ]
    harvest = loops_translated(loops(response_time_stats=rows))
    assert lines(harvest) == expected(
        """
        baseten_loops_response_time_seconds{quantile="0.5"} 0.4
        baseten_loops_response_time_seconds{quantile="0.95"} 0.5
        """
    )
    assert harvest.dropped == {"null": 1}


# Bad data


@pytest.mark.parametrize(
    ("timestamp", "time"),
    [
        pytest.param("1970-01-01T00:10:00Z", 600, id="Z"),
        pytest.param("1970-01-01T00:10:00+00:00", 600, id="no offset from UTC"),
        pytest.param("1970-01-01T02:10:00+02:00", 600, id="an offset"),
        pytest.param("1969-12-31T18:40:00-05:30", 600, id="an offset westwards"),
        pytest.param("1970-01-01T00:10:00.125Z", 600.125, id="milliseconds"),
        pytest.param("1970-01-01T00:10:00.125000Z", 600.125, id="microseconds"),
        pytest.param("1970-01-01T00:10:00.125000999Z", 600.125, id="nanoseconds, cut"),
        pytest.param("1970-01-01T00:10:00.125000+02:00", 600.125 - 7200, id="a fraction and an offset"),
        pytest.param("1970-01-01T00:10:00", 600, id="no offset: UTC"),
        pytest.param("1970-01-01 00:10:00", 600, id="a space for the T"),
    ],
)
def test_timestamps(timestamp: str, time: float) -> None:
    harvest = loops_translated(loops(inference_volume=[at(timestamp)]))
    assert harvest.newest == time


@pytest.mark.parametrize(
    "timestamp",
    ["", "yesterday", "1970-01-01T25:00:00Z", "\ud800", 600, 600.5, None, True, ["1970-01-01T00:10:00Z"], {}],
    ids=repr,
)
def test_a_point_without_a_readable_time_costs_itself_only(timestamp: object) -> None:
    row = {"timestamp": timestamp, "status_2xx": 5}
    harvest = loops_translated(
        loops(concurrent_requests=[at(timestamp, 9), at(SETTLED, 1)], inference_volume_by_status=[row])
    )
    assert lines(harvest) == ["baseten_loops_concurrent_requests 1.0"]
    assert harvest.dropped == {"bad_timestamp": 2}


def test_a_point_that_names_no_time_is_one_without_a_readable_time() -> None:
    harvest = loops_translated(loops(cpu_usage=[{"value": 1}], response_time_stats=[{"p50": 1}]))
    assert harvest.dropped == {"bad_timestamp": 2}


@pytest.mark.parametrize(
    ("value", "reason"),
    [(None, "null"), (True, "not_a_number"), ("1", "not_a_number"), (float("nan"), "not_finite")],
)
def test_a_bad_value_costs_itself_only(value: object, reason: Any) -> None:
    points = {"0": [at(SETTLED, value)], "1": [at(SETTLED, 0.5)]}
    harvest = loops_translated(loops(gpu_utilization=points))
    assert lines(harvest) == ['baseten_loops_leader_gpu_utilization_ratio{gpu_rank="1"} 0.5']
    assert harvest.dropped == {reason: 1}


def test_a_point_that_names_no_value_is_null() -> None:
    assert loops_translated(loops(cpu_usage=[{"timestamp": SETTLED}])).dropped == {"null": 1}


def test_old_points_are_absent_and_counted() -> None:
    harvest = loops_translated(loops(cpu_usage=[at(SETTLED)], concurrent_requests=[at(LATER)]), oldest=900)
    assert lines(harvest) == ["baseten_loops_concurrent_requests 1.0"]
    assert harvest.dropped == {"too_old": 1}


def test_a_node_that_comes_twice_keeps_its_first_values() -> None:
    nodes = [{"node_id": "n", "cpu_usage": [at(SETTLED, value)]} for value in (1, 2)]
    harvest = loops_translated(loops(per_node_metrics=nodes))
    assert lines(harvest) == ['baseten_loops_node_cpu_usage_cores{node_id="n"} 1.0']
    assert harvest.dropped == {"duplicate": 1}
    assert harvest.duplicate == "baseten_loops_node_cpu_usage_cores{'node_id': 'n'}"


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        pytest.param({}, "missing required field `metrics`", id="no metrics"),
        pytest.param({"metrics": []}, "$.metrics", id="metrics"),
        pytest.param(loops(cpu_usage={}), "$.metrics.cpu_usage", id="a list of points"),
        pytest.param(loops(cpu_usage=[3]), "$.metrics.cpu_usage[0]", id="a point"),
        pytest.param(loops(cpu_usage=[at(SETTLED), None]), "$.metrics.cpu_usage[1]", id="a later point"),
        pytest.param(loops(gpu_utilization=[]), "$.metrics.gpu_utilization", id="ranks"),
        pytest.param(loops(gpu_utilization={"0": 1}), "$.metrics.gpu_utilization[...]", id="a rank"),
        pytest.param(loops(response_time_stats=[0]), "$.metrics.response_time_stats[0]", id="a row"),
        pytest.param(loops(ephemeral_storage=[]), "$.metrics.ephemeral_storage", id="storage"),
        pytest.param(
            loops(ephemeral_storage={"usage_bytes": 1}),
            "$.metrics.ephemeral_storage.usage_bytes",
            id="of storage",
        ),
        pytest.param(loops(per_node_metrics={}), "$.metrics.per_node_metrics", id="nodes"),
        pytest.param(
            loops(per_node_metrics=[{}]), "$.metrics.per_node_metrics[0]", id="a node without an id"
        ),
        pytest.param(
            loops(per_node_metrics=[{"node_id": 7}]),
            "$.metrics.per_node_metrics[0].node_id",
            id="a node's id",
        ),
    ],
)
def test_a_structure_of_the_wrong_type_is_named_by_its_path(answer: Json, path: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode(LoopsAnswer, encoded(answer))
    assert caught.value.reason == "invalid_response"
    assert path in str(caught.value)


def test_every_family_is_listed_for_the_documentation() -> None:
    assert len({metric.family for metric in loops_metrics.METRICS}) == len(loops_metrics.METRICS) == 16


@pytest.mark.parametrize("metric", loops_metrics.METRICS, ids=lambda metric: metric.family)
def test_help_says_source_unit_and_age(metric: loops_metrics.Metric) -> None:
    pattern = rf"Source: {metric.source}. Unit: "
    assert pattern in metric.help
    assert "Covers: " in metric.help
    assert metric.help.endswith(" Latest polled value.")


def test_now_is_what_the_docstring_says() -> None:
    assert parse_time(SETTLED) == NOW - 120
