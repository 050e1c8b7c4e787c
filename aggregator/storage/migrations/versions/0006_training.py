"""Queries in a table of their own, tallies that are bytes, and the results of trainings."""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "round_data",
        sa.Column("campaign", sa.String(16), sa.ForeignKey("campaigns.id"), primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "trainings",
        sa.Column("campaign", sa.String(16), sa.ForeignKey("campaigns.id"), primary_key=True),
        sa.Column("about", sa.Text, nullable=False),
        sa.Column("weights", sa.LargeBinary, nullable=False),
    )
    op.execute("INSERT INTO round_data SELECT campaign, round, 'query', query FROM queries")
    db = op.get_bind()
    asked = sa.table("queries", *(sa.column(name) for name in ("campaign", "round", "query")))
    for row in db.execute(sa.select(asked)).all():
        mine = (asked.c.campaign == row.campaign) & (asked.c.round == row.round)
        digest = hashlib.sha256(bytes(row.query)).digest()
        db.execute(sa.update(asked).where(mine).values(query=digest))
    op.execute("ALTER TABLE queries RENAME COLUMN query TO digest")
