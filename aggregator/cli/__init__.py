"""The command lines of the operator, who runs campaigns."""
