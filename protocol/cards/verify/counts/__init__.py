"""Verifies cards of counted scores: central and full-data."""
