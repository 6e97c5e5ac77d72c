"""Verdicts of judges that were asked again, with the same prompt or in another order. Earlier runs have none."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_INTEGER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "rejudgements",
        sa.Column("seq", _INTEGER, sa.ForeignKey("results.seq", name="fk_rejudgements_results"), nullable=False),
        sa.Column("criterion", sa.Text, nullable=False),
        sa.Column("judge", sa.Text, nullable=False),
        sa.Column("earlier_version", sa.Text, nullable=False),
        sa.Column("prompt_order", sa.Text, nullable=False),
        sa.Column("run_no", _INTEGER, sa.ForeignKey("runs.run_no", name="fk_rejudgements_runs"), nullable=False),
        sa.Column("earlier_outcome", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("evidence", sa.Text),
        sa.Column("created", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", "criterion", "judge", "earlier_version", "prompt_order", name="pk_rejudgements"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_rejudgements_run_no", "rejudgements", ["run_no"])
