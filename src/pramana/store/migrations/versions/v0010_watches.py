"""Watches: models observed over days, with their periods, days, runs and alerts."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_integer_type = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _make_text_columns(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=nullable) for name in names]


def _make_count_column(name: str, type_: sa.types.TypeEngine[int]) -> sa.Column[int]:
    return sa.Column(name, type_, nullable=False, server_default=sa.text("0"))


def _make_watch_column() -> sa.Column[int]:
    return sa.Column("watch_no", _integer_type, nullable=False)


def _make_watch_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["watch_no"], ["watches.watch_no"], name=f"fk_{table}_watches")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "watches",
        _make_watch_column(),
        *_make_text_columns("id"),
        *_make_text_columns("name", "note", nullable=True),
        *_make_text_columns("owner"),
        *_make_text_columns("creator", nullable=True),
        *_make_text_columns("created"),
        *_make_text_columns("stopped", nullable=True),
        *_make_text_columns("model", "request"),
        sa.Column("budget_usd", sa.Double),
        *_make_text_columns("at", nullable=True),
        sa.Column("baseline_days", sa.Integer, nullable=False),
        *_make_text_columns("instruments"),
        *_make_text_columns("delivery", "delivery_secret", nullable=True),
        sa.PrimaryKeyConstraint("watch_no", name="pk_watches"),
        sa.UniqueConstraint("id", name="uq_watches_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "watch_periods",
        _make_watch_column(),
        sa.Column("period", sa.Integer, nullable=False),
        *_make_text_columns("begins", "reason"),
        *_make_text_columns("note", "basis", nullable=True),
        *_make_text_columns("created"),
        sa.PrimaryKeyConstraint("watch_no", "period", name="pk_watch_periods"),
        _make_watch_key("watch_periods"),
    )
    op.create_table(
        "watch_days",
        _make_watch_column(),
        *_make_text_columns("day"),
        sa.Column("period", sa.Integer, nullable=False),
        *_make_text_columns("status"),
        *_make_text_columns("reason", nullable=True),
        sa.Column("tie_break", sa.Double, nullable=False),
        _make_count_column("planned", sa.BigInteger()),
        _make_count_column("answered", sa.BigInteger()),
        *_make_text_columns("features", "decision", nullable=True),
        *_make_text_columns("created"),
        *_make_text_columns("ended", nullable=True),
        sa.PrimaryKeyConstraint("watch_no", "day", name="pk_watch_days"),
        _make_watch_key("watch_days"),
    )
    op.create_table(
        "watch_runs",
        _make_watch_column(),
        *_make_text_columns("run_id", "day", "purpose"),
        sa.PrimaryKeyConstraint("watch_no", "run_id", name="pk_watch_runs"),
        _make_watch_key("watch_runs"),
    )
    op.create_index("ix_watch_runs_run_id", "watch_runs", ["run_id"])
    op.create_table(
        "watch_alerts",
        sa.Column("alert_no", _integer_type, nullable=False),
        *_make_text_columns("id"),
        _make_watch_column(),
        sa.Column("period", sa.Integer, nullable=False),
        *_make_text_columns("level", "day", "body", "created"),
        *_make_text_columns("delivered", nullable=True),
        _make_count_column("attempts", sa.Integer()),
        sa.Column("next_attempt", sa.Double),
        *_make_text_columns("error", nullable=True),
        sa.PrimaryKeyConstraint("alert_no", name="pk_watch_alerts"),
        sa.UniqueConstraint("id", name="uq_watch_alerts_id"),
        sa.UniqueConstraint("watch_no", "period", "level", name="uq_watch_alerts_watch_no_period_level"),
        _make_watch_key("watch_alerts"),
        sqlite_autoincrement=True,
    )
