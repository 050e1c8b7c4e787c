"""Which records of an owner answer a query, and with which results of a model."""
