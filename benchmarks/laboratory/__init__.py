"""What `confide advise`, `confide attack` and `confide scale` say, next to measurements."""
