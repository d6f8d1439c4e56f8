"""The bridge from the Baseten management API to Prometheus."""

__version__ = "0.1.0"
