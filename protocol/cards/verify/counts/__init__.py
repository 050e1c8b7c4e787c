"""Decides cards of counted scores again: central and full-data."""
