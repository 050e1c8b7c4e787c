"""How answers reach an aggregator: gRPC, retries, and a launcher for Flower that runs no sent
code."""
