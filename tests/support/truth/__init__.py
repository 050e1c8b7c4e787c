"""Known truth: laws, curves and populations whose coverage is known."""
