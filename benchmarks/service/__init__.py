"""The aggregator's server: how fast it is, and what it survives."""
