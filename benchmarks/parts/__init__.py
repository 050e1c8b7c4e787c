"""Thresholds for owners, classes and groups, next to one for all."""
