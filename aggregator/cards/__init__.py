"""Writes cards from certificates, and searches for configurations that keep a contract."""
