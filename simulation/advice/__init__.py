"""Which method to take, and what it costs: expected set sizes from the laws of the procedures."""
