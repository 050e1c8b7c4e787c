"""Rounds of campaigns in a server: held in memory, read from the store, advanced."""
