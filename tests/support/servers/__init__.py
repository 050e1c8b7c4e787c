"""Real servers, databases and browsers."""
