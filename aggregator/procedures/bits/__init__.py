"""Campaigns of bits: search, certification, one round."""
