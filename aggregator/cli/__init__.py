"""The command lines of whoever runs campaigns."""
