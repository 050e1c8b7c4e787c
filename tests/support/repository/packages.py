"""The packages of the project, and what each may import."""

PACKAGES = {
    "protocol": {"protocol"},
    "client": {"protocol", "client"},
    "aggregator": {"protocol", "aggregator"},
    "shuffler": {"protocol", "client", "aggregator", "shuffler"},
    "simulation": {"protocol", "client", "aggregator", "simulation"},
}
