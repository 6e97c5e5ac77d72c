"""Community results, their chart, and what this installation has submitted elsewhere."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_integer_type = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_COUNT_COLUMNS = ("submissions", "duplicates", "prompts", "outputs", "steady", "changed", "scored", "passed")


def _make_text_column(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _make_bytes_column(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=False)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "submission_series",
        sa.Column("series_no", _integer_type, nullable=False),
        sa.Column("verified", sa.Boolean, nullable=False),
        *(_make_text_column(name) for name in ("model", "suite_hash", "prompt")),
        sa.PrimaryKeyConstraint("series_no", name="pk_submission_series"),
        sa.UniqueConstraint(
            *("model", "suite_hash", "prompt", "verified"),
            name="uq_submission_series_model_suite_hash_prompt_verified",
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "submissions",
        sa.Column("submission_no", _integer_type, nullable=False),
        _make_bytes_column("digest"),
        _make_text_column("day"),
        sa.Column("series_no", _integer_type, nullable=False),
        _make_text_column("received"),
        _make_text_column("stated", nullable=True),
        _make_text_column("contributor"),
        _make_text_column("batch", nullable=True),
        sa.Column("copies", sa.BigInteger, nullable=False),
        _make_text_column("suite_version", nullable=True),
        sa.Column("temperature", sa.Double),
        sa.Column("seed", sa.BigInteger),
        _make_text_column("output"),
        *(_make_bytes_column(name) for name in ("output_hash", "salt", "commitment")),
        sa.Column("score", sa.Double),
        sa.Column("passed", sa.Boolean),
        *(_make_text_column(name, nullable=True) for name in ("fingerprint", "runner_version", "result_hash")),
        sa.Column("latency_ms", sa.Double),
        *(_make_text_column(name, nullable=True) for name in ("verdict", "metadata")),
        sa.PrimaryKeyConstraint("submission_no", name="pk_submissions"),
        sa.ForeignKeyConstraint(
            ["series_no"], ["submission_series.series_no"], name="fk_submissions_submission_series"
        ),
        sa.UniqueConstraint("digest", "day", name="uq_submissions_digest_day"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_submissions_series_no_day_output_hash", "submissions", ["series_no", "day", "output_hash"])
    op.create_table(
        "submission_cells",
        _make_text_column("day"),
        sa.Column("series_no", _integer_type, nullable=False),
        sa.Column("outputs", sa.BigInteger, nullable=False),
        _make_bytes_column("all_outputs"),
        sa.Column("changed", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("day", "series_no", name="pk_submission_cells"),
        sa.ForeignKeyConstraint(
            ["series_no"], ["submission_series.series_no"], name="fk_submission_cells_submission_series"
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "submission_days",
        sa.Column("verified", sa.Boolean, nullable=False),
        *(_make_text_column(name) for name in ("model", "day")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _COUNT_COLUMNS),
        sa.PrimaryKeyConstraint("verified", "model", "day", name="pk_submission_days"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deliveries",
        *(_make_text_column(name) for name in ("subject", "url", "delivered")),
        sa.PrimaryKeyConstraint("subject", "url", name="pk_deliveries"),
    )
