"""Evaluations that train and calibrate on the same records."""
