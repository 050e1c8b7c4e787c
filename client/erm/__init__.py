"""Linear regression with exact noise: on the solution, or on the sums that determine it."""
