"""Method labels: a randomised label, and something in clear beside it."""
