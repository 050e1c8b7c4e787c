"""The independent verifier of cards, which shares no code with the modules that write them."""
