"""The privacy cost of mechanisms: losses, profiles, budgets, and transfer of coverage."""
