"""The serving side: reads the store, never calls the API."""
