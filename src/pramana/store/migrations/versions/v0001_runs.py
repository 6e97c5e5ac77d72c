"""Runs, their cases, results, scorings and checks."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_integer_type = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the first tables."""
    op.create_table(
        "runs",
        sa.Column("run_no", _integer_type, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created", sa.Text, nullable=False),
        sa.Column("finished", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("plan_digest", sa.Text, nullable=False),
        sa.Column("expected", sa.BigInteger, nullable=False),
        sa.Column("stored", sa.BigInteger, nullable=False),
        sa.Column("lease_holder", sa.Text),
        sa.Column("lease_until", sa.Double),
        sa.Column("heartbeat", sa.Double),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run_no", name="pk_runs"),
        sa.UniqueConstraint("id", name="uq_runs_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "cases",
        sa.Column("case_no", _integer_type, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("case_no", name="pk_cases"),
        sa.UniqueConstraint("digest", name="uq_cases_digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "run_cases",
        sa.Column("run_no", _integer_type, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("case_no", _integer_type, nullable=False),
        sa.Column("source_file", sa.Text),
        sa.Column("source_line", sa.BigInteger),
        sa.PrimaryKeyConstraint("run_no", "position", name="pk_run_cases"),
        sa.UniqueConstraint("case_no", "run_no", name="uq_run_cases_case_no_run_no"),
        sa.ForeignKeyConstraint(["run_no"], ["runs.run_no"], name="fk_run_cases_runs"),
        sa.ForeignKeyConstraint(["case_no"], ["cases.case_no"], name="fk_run_cases_cases"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "results",
        sa.Column("seq", _integer_type, nullable=False),
        sa.Column("run_no", _integer_type, nullable=False),
        sa.Column("case_no", _integer_type, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("variant", sa.Text, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("case_id", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("output", sa.Text),
        sa.Column("input_tokens", sa.BigInteger),
        sa.Column("output_tokens", sa.BigInteger),
        sa.Column("cached_tokens", sa.BigInteger),
        sa.Column("served_model", sa.Text),
        sa.Column("fingerprint", sa.Text),
        sa.Column("finish_reason", sa.Text),
        sa.Column("first_token_s", sa.Double),
        sa.Column("total_s", sa.Double),
        sa.Column("raw", sa.LargeBinary),
        sa.Column("dropped", sa.Text),
        sa.Column("cost_usd", sa.Double),
        sa.Column("cached", sa.Boolean),
        sa.Column("failure_code", sa.Text),
        sa.Column("failure_message", sa.Text),
        sa.Column("result_hash", sa.Text),
        sa.Column("digest", sa.Text),
        sa.PrimaryKeyConstraint("seq", name="pk_results"),
        sa.ForeignKeyConstraint(
            ["case_no", "run_no"], ["run_cases.case_no", "run_cases.run_no"], name="fk_results_run_cases"
        ),
        sa.UniqueConstraint(
            "run_no", "case_no", "model", "variant", "repeat", name="uq_results_run_no_case_no_model_variant_repeat"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_results_run_no_seq_outcome", "results", ["run_no", "seq", "outcome"])
    op.create_table(
        "scorings",
        sa.Column("run_no", _integer_type, nullable=False),
        sa.Column("scoring", sa.Integer, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("created", sa.Text, nullable=False),
        sa.Column("finished", sa.Text),
        sa.PrimaryKeyConstraint("run_no", "scoring", name="pk_scorings"),
        sa.ForeignKeyConstraint(["run_no"], ["runs.run_no"], name="fk_scorings_runs"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "checks",
        sa.Column("seq", _integer_type, nullable=False),
        sa.Column("scoring", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("evidence", sa.Text),
        sa.PrimaryKeyConstraint("seq", "scoring", "position", name="pk_checks"),
        sa.ForeignKeyConstraint(["seq"], ["results.seq"], name="fk_checks_results"),
        sqlite_with_rowid=False,
    )
