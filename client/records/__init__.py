"""The owner's records, the models that score them, and the scores kept for later rounds."""
