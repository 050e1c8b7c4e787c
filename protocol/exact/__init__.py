"""Arithmetic and sampling in which no floating-point number decides a probability."""
