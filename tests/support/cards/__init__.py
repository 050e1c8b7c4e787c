"""Cards that tests make, forge and verify."""
