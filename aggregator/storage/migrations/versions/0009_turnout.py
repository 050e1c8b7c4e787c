"""How many owners and reports a round has."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_COUNTS = {
    "finished": "sum(CASE WHEN parts.finished THEN 1 ELSE 0 END)",
    "contributed": "sum(CASE WHEN parts.reports > 0 THEN 1 ELSE 0 END)",
    "reports": "sum(parts.reports)",
}


def upgrade() -> None:
    for name, counted in _COUNTS.items():
        op.add_column("queries", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
        op.execute(
            f"UPDATE queries SET {name} = (SELECT coalesce({counted}, 0) FROM parts WHERE "
            "parts.campaign = queries.campaign AND parts.round = queries.round)"
        )
