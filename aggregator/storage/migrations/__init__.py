"""Versions of the aggregator's tables, one file each, in order."""
