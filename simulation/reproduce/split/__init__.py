"""Papers that calibrate on records of their own: CARD, LDP, PPS."""
