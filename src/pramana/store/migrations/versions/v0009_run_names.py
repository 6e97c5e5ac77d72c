"""Names and notes of runs, set by their users. Earlier runs have neither."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("runs", sa.Column("name", sa.Text))
    op.add_column("runs", sa.Column("note", sa.Text))
