"""The server process: gRPC service, uploads, authentication, limits, advance of campaigns."""
