"""The configuration file: strict YAML in, a frozen `Config` out, or every problem at once."""

from exporter.config.problems import ConfigError, Problem
from exporter.config.rules import Config, Poll, Workspace, load

__all__ = ["Config", "ConfigError", "Poll", "Problem", "Workspace", "load"]
