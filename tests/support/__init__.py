"""Modules that tests share."""
