"""Contracts of central calibration: judged, searched and tried before any record is asked."""
