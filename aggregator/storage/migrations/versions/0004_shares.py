"""How many records an owner may contribute, and what it has sent to a campaign found at once."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("owners", sa.Column("records", sa.BigInteger))
    op.create_index("what_an_owner_has_sent", "parts", ["campaign", "owner"])
