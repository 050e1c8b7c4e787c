"""The command line of the data owner."""
