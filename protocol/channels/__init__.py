"""Local randomisers: what leaves an owner's machine in place of a label or a bit."""
