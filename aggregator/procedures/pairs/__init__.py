"""Campaigns of pairs of label and bit: a threshold for every label."""
