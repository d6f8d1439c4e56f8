"""When polls happen, and what their failures do."""
