"""An embedded Baseten API, for the demo, the tests and the benchmarks."""

from exporter.simulator.api import Request, Response
from exporter.simulator.faults import FAULTS, Fault
from exporter.simulator.organization import TargetId
from exporter.simulator.server import Simulator
from exporter.simulator.wire import Wire
from exporter.simulator.world import World

__all__ = ["FAULTS", "Fault", "Request", "Response", "Simulator", "TargetId", "Wire", "World"]
