"""Campaigns of labels: ladders, betting tests, classes, the published sweep."""
