"""Methods whose owners count scores: central and full-data."""
