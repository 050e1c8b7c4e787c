"""From settings to plans."""
