"""Whole federations, run by the commands that operators and owners type."""
