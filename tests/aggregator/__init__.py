"""Tests of the aggregator's side."""
