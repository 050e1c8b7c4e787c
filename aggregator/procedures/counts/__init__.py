"""Thresholds from counts of records, exact or noised by owners, whole or by parts."""
