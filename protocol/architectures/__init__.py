"""The networks that a federation can train, by name."""
