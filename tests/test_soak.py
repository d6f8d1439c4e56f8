"""The soak, short: `make soak` runs it for minutes and with all targets."""

import sys
from pathlib import Path

import pytest

from tests.soak.findings import Plan
from tests.soak.run import soak
from tests.soak.verdict import judge

SHORT = Plan(seconds=25, targets=120, interval=3, timeout=1, listing=4, concurrency=8)


@pytest.mark.xdist_group("soak")
def test_every_promise_holds_under_faults_rotations_reloads_and_churn(tmp_path: Path) -> None:
    report = judge(soak(SHORT, tmp_path))
    sys.stdout.write(str(report))
    assert report.broken == []
