"""Conformity scores in [0, 1], lower conforming better, and the sets a threshold makes of them."""
