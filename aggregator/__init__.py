"""The aggregator's side: turns randomised reports into a threshold with a certificate."""
