"""What the exporter costs, measured beside its peers: `python -m benchmarks [--smoke] [--write]`."""
