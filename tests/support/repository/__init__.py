"""The repository itself: its packages, imports and pages."""
