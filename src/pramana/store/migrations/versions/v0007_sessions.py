"""Expiry of tokens, and browser sessions. Earlier tokens never expire."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column and the table."""
    op.add_column("tokens", sa.Column("expires", sa.Text))
    op.create_table(
        "sessions",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("hash", "token_id", "expires")),
        sa.PrimaryKeyConstraint("hash", name="pk_sessions"),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name="fk_sessions_tokens"),
    )
