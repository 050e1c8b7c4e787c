"""Calibration on the records that trained the model."""
