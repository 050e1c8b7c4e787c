"""Owners that lie or try to learn: what they change, and what can be learned, next to claims."""
