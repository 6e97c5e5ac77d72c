"""Watches that anyone may read. Earlier watches are not public."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the column."""
    op.add_column("watches", sa.Column("public", sa.Boolean, nullable=False, server_default=sa.false()))
