"""What every command line shares."""
