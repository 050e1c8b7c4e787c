"""Local methods: how much they cover, how large their sets are, and how often they fail."""
