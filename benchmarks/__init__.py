"""Scripts behind the numbers of the documents; README.md lists them."""
