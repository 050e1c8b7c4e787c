"""Data owners, honest and hostile, and what they hold."""
