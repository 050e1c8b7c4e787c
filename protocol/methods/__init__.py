"""The calibration and training methods: their terms in a plan, their queries and their tallies."""
