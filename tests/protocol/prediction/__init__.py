"""From cards to predictions."""
