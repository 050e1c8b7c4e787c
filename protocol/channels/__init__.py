"""Local randomisers: their reports leave an owner's machine in place of a label or a bit."""
