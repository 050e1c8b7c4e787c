"""How many batches a round has."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column(
        "queries", sa.Column("batches", sa.BigInteger, nullable=False, server_default="0")
    )
    op.execute(
        "UPDATE queries SET batches = (SELECT count(*) FROM batches WHERE batches.campaign = "
        "queries.campaign AND batches.round = queries.round)"
    )
