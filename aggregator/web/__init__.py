"""The read-only page of the aggregator: campaigns as they run, cards, gauges."""
