"""Simulated owners: what both sides of a simulation draw alike."""
