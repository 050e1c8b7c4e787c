"""How many bytes of an owner are stored."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("parts", sa.Column("bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "UPDATE parts SET bytes = (SELECT coalesce(sum(length(batches.answer)), 0) FROM batches"
        " WHERE batches.campaign = parts.campaign AND batches.round = parts.round"
        " AND batches.owner = parts.owner)"
    )
