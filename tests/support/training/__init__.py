"""Trainings: owners, plans and both sides of a chain."""
