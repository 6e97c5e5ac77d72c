"""People's labels of replies, beside the verdicts of judges. Earlier runs have none."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0010"

_INTEGER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "labels",
        sa.Column("seq", _INTEGER, sa.ForeignKey("results.seq", name="fk_labels_results"), nullable=False),
        sa.Column("criterion", sa.Text, nullable=False),
        sa.Column("rater", sa.Text, nullable=False),
        sa.Column("run_no", _INTEGER, sa.ForeignKey("runs.run_no", name="fk_labels_runs"), nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("scoring", sa.Integer),
        sa.Column("labelled", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", "criterion", "rater", name="pk_labels"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_labels_run_no", "labels", ["run_no"])
