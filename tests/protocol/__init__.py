"""Tests of what owners and aggregators share."""
