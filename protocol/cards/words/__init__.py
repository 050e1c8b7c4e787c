"""A card in plain words."""
