"""The documents, held to the code."""
