"""The server process: gRPC service, uploads, authentication, limits, and the thread that advances
campaigns."""
