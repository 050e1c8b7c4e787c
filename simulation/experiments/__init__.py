"""Experiments as data: a file says what is compared, and results are a table with a row a trial."""
