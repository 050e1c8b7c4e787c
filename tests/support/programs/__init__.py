"""Command lines, federations and deployments, as users start them."""
