"""Calibration, and evaluation, of records that are arrays in this process."""
