"""Reports on disk: admitted, written once, and their ids."""
