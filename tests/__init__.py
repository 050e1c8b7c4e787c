"""Tests with real objects and known truth."""
