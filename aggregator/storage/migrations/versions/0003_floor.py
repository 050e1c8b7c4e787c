"""The least number of owners moves from the settings into the signed plan."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # A campaign that was made with a floor keeps it in its settings, which says that another
    # version must finish it.
    op.execute("""UPDATE campaigns SET settings = replace(settings, '"minimum_owners": 1, ', '')""")
