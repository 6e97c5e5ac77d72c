"""The tables of a server: scenarios, suites, providers, tokens, preferences, changes; creator and limits of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_integer_type = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _make_text_column(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def upgrade() -> None:
    """Create the tables of a server, and add columns to runs."""
    for name in ("limits", "cancelled", "creator"):
        op.add_column("runs", sa.Column(name, sa.Text))
    op.create_table(
        "scenarios",
        sa.Column("scenario_no", _integer_type, nullable=False),
        *(_make_text_column(name) for name in ("id", "name", "type", "difficulty", "language", "tags", "body")),
        *(_make_text_column(name) for name in ("created", "updated")),
        sa.PrimaryKeyConstraint("scenario_no", name="pk_scenarios"),
        sa.UniqueConstraint("id", name="uq_scenarios_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "deleted_scenarios",
        *(_make_text_column(name) for name in ("id", "body", "created", "updated", "deleted")),
        sa.PrimaryKeyConstraint("id", name="pk_deleted_scenarios"),
    )
    op.create_table(
        "suite_tiers",
        *(_make_text_column(name) for name in ("version", "tier", "hash")),
        sa.Column("test_count", sa.BigInteger, nullable=False),
        sa.Column("estimated_tokens", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        _make_text_column("created"),
        sa.PrimaryKeyConstraint("version", "tier", name="pk_suite_tiers"),
    )
    op.create_index("ix_suite_tiers_hash", "suite_tiers", ["hash"])
    op.create_table(
        "providers",
        *(_make_text_column(name) for name in ("id", "kind", "arguments")),
        _make_text_column("secret", nullable=True),
        *(_make_text_column(name) for name in ("created", "updated")),
        sa.PrimaryKeyConstraint("id", name="pk_providers"),
    )
    op.create_table(
        "tokens",
        *(_make_text_column(name) for name in ("id", "name", "role", "hash", "created")),
        *(_make_text_column(name, nullable=True) for name in ("used", "revoked")),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
    )
    op.create_table(
        "preferences",
        *(_make_text_column(name) for name in ("name", "value", "updated")),
        sa.PrimaryKeyConstraint("name", name="pk_preferences"),
    )
    op.create_table(
        "changes",
        sa.Column("change_no", _integer_type, nullable=False),
        *(_make_text_column(name) for name in ("at", "kind", "subject", "action")),
        sa.PrimaryKeyConstraint("change_no", name="pk_changes"),
        sqlite_autoincrement=True,
    )
