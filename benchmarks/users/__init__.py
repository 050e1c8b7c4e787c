"""What a user, or a data owner, costs: in process, and over Flower."""
