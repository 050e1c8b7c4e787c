"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    rows = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "owners",
        sa.Column("id", rows, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("token", sa.LargeBinary(32), unique=True),
    )
    op.create_table(
        "campaigns",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("signed_plan", sa.LargeBinary, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("created", sa.Double, nullable=False),
        *(
            sa.Column(name, sa.Double)
            for name in ("opened", "closed", "calibrated", "published", "purged")
        ),
        sa.Column("leader", sa.String(64)),
        sa.Column("leased_until", sa.Double, nullable=False),
    )
    op.create_table(
        "queries",
        sa.Column("campaign", sa.String(16), sa.ForeignKey("campaigns.id"), primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("query", sa.LargeBinary, nullable=False),
        sa.Column("opened", sa.Double, nullable=False),
        sa.Column("deadline", sa.Double, nullable=False),
        sa.Column("closed", sa.Double),
        sa.Column("because", sa.String(16)),
        sa.Column("tally", sa.Text),
    )
    op.create_table(
        "batches",
        sa.Column("id", rows, primary_key=True),
        sa.Column("campaign", sa.String(16), sa.ForeignKey("campaigns.id"), nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("owner", rows, sa.ForeignKey("owners.id"), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("reports", sa.Integer, nullable=False),
        sa.Column("answer", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("campaign", "round", "owner", "digest", name="a_batch_is_stored_once"),
    )
    op.create_table(
        "parts",
        sa.Column("campaign", sa.String(16), sa.ForeignKey("campaigns.id"), primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", rows, sa.ForeignKey("owners.id"), primary_key=True),
        sa.Column("batches", sa.BigInteger, nullable=False),
        sa.Column("reports", sa.BigInteger, nullable=False),
        sa.Column("seeded", sa.Boolean, nullable=False),
        sa.Column("finished", sa.Boolean, nullable=False),
        sa.Column("code", sa.String(40)),
    )
    op.create_table(
        "rejections",
        sa.Column("campaign", sa.String(16), primary_key=True),
        sa.Column("owner", sa.String(200), primary_key=True),
        sa.Column("code", sa.String(40), primary_key=True),
        sa.Column("times", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "releases",
        sa.Column("campaign", sa.String(16), sa.ForeignKey("campaigns.id"), primary_key=True),
        sa.Column("release", sa.Text, nullable=False),
    )
    op.create_table(
        "cards",
        sa.Column("campaign", sa.String(16), sa.ForeignKey("campaigns.id"), primary_key=True),
        sa.Column("view", sa.String(16), primary_key=True),
        sa.Column("card", sa.Text, nullable=False),
    )
