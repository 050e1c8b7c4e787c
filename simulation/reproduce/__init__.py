"""Figures and tables of the papers, computed again beside the papers' own numbers."""
