"""Alembic's entry: runs the migrations in the transaction that `upgrade` opened.

`upgrade` is in `confide.aggregator.storage.database`.
"""

from alembic import context

from confide.aggregator.storage.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
