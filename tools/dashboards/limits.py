"""The limits that colour panels: red begins where an alert does, at its default threshold."""

from tools.dashboards.style import AMBER, BLUE, GREEN, GREY, RED, steps

FAILED = steps((0.01, AMBER), (0.05, RED))
"""Share of requests that failed."""

LATENCY = steps((10, AMBER), (30, RED))
"""Seconds of the slowest hundredth."""

STORAGE = steps((0.8, AMBER), (0.9, RED))
"""Share of the ephemeral storage."""

LAG = steps((0.6, AMBER), (0.75, GREEN), base=RED)
"""A GPU rank's utilization as a share of the median of its trainer."""

TRAFFIC_AGE = steps((300, AMBER), (600, RED))
"""Seconds since the newest value; it is left out when it is ten minutes old."""

POLL_AGE = steps((150, AMBER), (300, RED))
"""Seconds since the last good poll; the series go after five minutes."""

LISTING_AGE = steps((600, AMBER), (900, RED))
"""Seconds since everything was listed, which is tried every five minutes."""

CERTIFICATE = steps((1_209_600, GREEN), base=RED)
"""Seconds until the served certificate ends: two weeks are time enough to renew it."""

ANY = steps((1, RED))
"""One is too many."""

UP = steps((1, GREEN), base=RED)

DEPLOYMENT_STATES = {
    "ACTIVE": GREEN,
    **dict.fromkeys(("BUILDING", "DEPLOYING", "LOADING_MODEL", "UPDATING", "WAKING_UP"), BLUE),
    **dict.fromkeys(("DEACTIVATING", "INACTIVE", "SCALED_TO_ZERO"), GREY),
    **dict.fromkeys(("UNHEALTHY", "DEPLOY_FAILED", "BUILD_FAILED", "BUILD_STOPPED", "FAILED"), RED),
}

TRAINER_STATES = {
    "RUNNING": GREEN,
    **dict.fromkeys(("CREATED", "DEPLOYING"), BLUE),
    **dict.fromkeys(("SCALED_TO_ZERO", "STOPPED"), GREY),
    "FAILED": RED,
}
"""States, and their colours: served, on the way, off, in trouble."""

TROUBLE = "UNHEALTHY|DEPLOY_FAILED|BUILD_FAILED|BUILD_STOPPED|FAILED"
