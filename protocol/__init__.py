"""What both sides of a campaign agree on: scores, channels, exact sampling, queries and
certificates."""
