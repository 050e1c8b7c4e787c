"""A score, channel, mechanism and method from outside the product."""
