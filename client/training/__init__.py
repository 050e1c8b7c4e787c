"""Private training on the owner's machine."""
