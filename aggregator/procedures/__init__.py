"""The calibration procedures: pure algorithms that ask queries and are told tallies."""
