"""A real exporter under everything at once for minutes, and every promise checked afterwards."""
