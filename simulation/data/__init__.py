"""Records for simulations: files of the user's, the embedded data set, or made up."""
