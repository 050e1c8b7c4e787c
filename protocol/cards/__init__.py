"""Contract cards: their format, and how they are shown to people."""
