"""Campaigns without storage: plans from settings, admission of answers, tallies, and the driver."""
