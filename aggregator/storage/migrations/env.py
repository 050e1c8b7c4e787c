"""Alembic's entry: runs the versions on the connection, and in the transaction, that
`confide.aggregator.storage.database.upgrade` opened."""

from alembic import context

from confide.aggregator.storage.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
