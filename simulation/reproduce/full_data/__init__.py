"""Papers that calibrate on the records that trained: DPCP, SCP."""
