"""A Flower federation on this machine: its harness, command and report."""
