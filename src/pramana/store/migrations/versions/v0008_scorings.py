"""Which scoring of a run is current, and which one a rescoring extends: the newest, in all existing runs."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("scorings", sa.Column("base", sa.Integer))
    op.add_column("scorings", sa.Column("chosen", sa.Integer))
