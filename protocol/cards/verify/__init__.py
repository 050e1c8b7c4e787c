"""The independent verifier of cards. It shares no code with what writes them."""
