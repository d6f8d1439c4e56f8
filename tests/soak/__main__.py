"""`python -m tests.soak --minutes=5`: prints the figures; exit status 1 names the promise that broke."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.soak.findings import Plan
from tests.soak.run import soak
from tests.soak.verdict import judge


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is to be stopped, too
    plan = Plan(seconds=60 * options.minutes, targets=options.targets, seed=options.seed)
    with tempfile.TemporaryDirectory() as folder:
        report = judge(soak(plan, Path(folder), sys.stderr.write))
    sys.stdout.write(f"{report}\n")
    for promise in report.broken:
        sys.stdout.write(f"BROKEN: {promise.text}: {promise.found}\n")
    return 1 if report.broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="how long the chaos lasts (default: 5)")
    parser.add_argument("--targets", type=int, default=500, help="in both workspaces together (default: 500)")
    parser.add_argument(
        "--seed", type=int, default=1, help="decides which request gets which fault, and when"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
