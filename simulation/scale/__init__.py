"""Many phones and one aggregator, as a queueing model with measured costs."""
