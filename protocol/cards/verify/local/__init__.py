"""Verifies cards of local methods."""
