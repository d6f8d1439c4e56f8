"""All knowledge of the Baseten management API; knows no Prometheus client and no scheduler."""
