"""How answers reach an aggregator: gRPC, retries, and the pinned launcher for Flower."""
