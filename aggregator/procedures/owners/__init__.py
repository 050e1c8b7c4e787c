"""Certificates for owners: for every one, for each, and for their planned mixture."""
