"""Tests of a data owner's side."""
