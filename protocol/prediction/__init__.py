"""From cards to prediction sets and intervals: arrays, models and files."""
