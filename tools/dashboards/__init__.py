"""The Grafana dashboards as code: `python -m tools.dashboards` writes the JSON that is shipped."""
