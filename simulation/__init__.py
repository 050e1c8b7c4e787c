"""Whole campaigns on one machine: populations, the in-process driver, and `confide`."""
