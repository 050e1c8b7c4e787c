"""Tests of the reproduction of figures and tables."""
