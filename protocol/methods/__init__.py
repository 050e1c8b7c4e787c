"""What a plan of each method says, asks and is told."""
