"""Models that the aggregator scores with and that nobody may fetch."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "secret_models",
        sa.Column("digest", sa.LargeBinary(32), primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
