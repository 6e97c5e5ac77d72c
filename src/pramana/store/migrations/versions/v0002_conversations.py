"""Conversations: what was answered to each line, and where a call's recording and log are kept."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Give results room for them."""
    op.add_column("results", sa.Column("conversation", sa.Text))
