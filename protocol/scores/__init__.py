"""Conformity scores in [0, 1], lower conforming better, and the prediction sets of a threshold."""
