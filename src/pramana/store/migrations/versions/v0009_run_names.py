"""Runs have a name and a note, which their users give them. Runs that were made before have neither."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("runs", sa.Column("name", sa.Text))
    op.add_column("runs", sa.Column("note", sa.Text))
