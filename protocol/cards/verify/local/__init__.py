"""Decides cards of local methods again."""
