"""Cards written from certificates, and the search for a contract that can be kept."""
