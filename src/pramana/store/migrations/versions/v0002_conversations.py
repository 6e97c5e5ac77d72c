"""Conversations: the answers to each line, and the digests of a call's recording and log."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column for conversations."""
    op.add_column("results", sa.Column("conversation", sa.Text))
