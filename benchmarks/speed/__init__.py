"""How fast the code is, next to other packages."""
