"""Run the simulator on its own: `python -m exporter.simulator --targets=100`."""

import argparse
import signal
import sys
import time
from threading import Event

from exporter.simulator import Simulator, World


def main() -> None:
    """Serve until SIGTERM or SIGINT; the first line of output is the URL."""
    options = _options()
    host, _, port = options.listen.rpartition(":")
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with Simulator(
        _world(options),
        key=options.key,
        latency=options.latency,
        limit=options.limit or None,
        host=host,
        port=int(port),
    ) as simulator:
        sys.stdout.write(f"{simulator.url}\n")
        sys.stdout.flush()
        stop.wait()


def _world(options: argparse.Namespace) -> World:
    if options.organization:
        return World.organization(options.organization, seed=options.seed)
    if options.targets:
        return World.sized(options.targets, options.seed)
    return World.demo(options.seed, start=time.time())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m exporter.simulator", description="An embedded Baseten API."
    )
    parser.add_argument("--targets", type=int, default=0, help="number of deployments; 0: the demo world")
    parser.add_argument("--organization", type=int, default=0, help="number of models, of three deployments")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--key", default="simulator-key", help="the API key that is accepted")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before every answer")
    parser.add_argument("--limit", type=int, default=100, help="requests/second and endpoint; 0: no limit")
    return parser.parse_args()


if __name__ == "__main__":
    main()
