"""Models that owners may fetch, by the SHA-256 of their files."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "models",
        sa.Column("digest", sa.LargeBinary(32), primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
