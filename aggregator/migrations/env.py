"""Alembic's entry: runs the versions on the connection, and in the transaction, that `aggregator.database.upgrade` opened."""

from alembic import context

from aggregator.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
