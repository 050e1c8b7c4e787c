"""What mechanisms cost: privacy losses, profiles, budgets, and the bounds that carry coverage
over."""
