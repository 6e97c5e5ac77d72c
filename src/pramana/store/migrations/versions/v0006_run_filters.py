"""Columns for the suite, selection and models of a run; before, filters searched the JSON of its plan."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from pramana.store.records import escape_text, unescape_text

revision = "0006"
down_revision = "0005"

_integer_type = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ordered_text_type = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the columns and the table, and fill them from the plans."""
    op.add_column("runs", sa.Column("suite", _ordered_text_type, nullable=False, server_default=sa.text("''")))
    op.add_column("runs", sa.Column("selection", sa.Text))
    op.create_index("ix_runs_suite", "runs", ["suite"])
    models = op.create_table(
        "run_models",
        sa.Column("run_no", _integer_type, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("role", "model")),
        sa.PrimaryKeyConstraint("run_no", "role", "model", name="pk_run_models"),
        sa.ForeignKeyConstraint(["run_no"], ["runs.run_no"], name="fk_run_models_runs"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_run_models_model_role_run_no", "run_models", ["model", "role", "run_no"])
    _fill_new_columns(op.get_bind(), models)


def _fill_new_columns(connection: sa.Connection, models: sa.Table) -> None:
    runs = sa.table("runs", *map(sa.column, ("run_no", "plan", "suite", "selection")))
    put = sa.update(runs).where(runs.c.run_no == sa.bindparam("run"))
    put = put.values(suite=sa.bindparam("its_suite"), selection=sa.bindparam("its_selection"))
    query, last = sa.select(runs.c.run_no, runs.c.plan).order_by(runs.c.run_no).limit(500), 0
    while found := connection.execute(query.where(runs.c.run_no > last)).all():
        last = found[-1].run_no
        plans = {run_no: _decode_plan(text) for run_no, text in found}
        named = [
            {"run_no": run_no, "role": role, "model": model}
            for run_no in plans
            for role, model in _list_models(plans[run_no])
        ]
        connection.execute(put, [{"run": run_no, **_make_filter_columns(plan)} for run_no, plan in plans.items()])
        if named:
            connection.execute(sa.insert(models), named)


def _decode_plan(text: str) -> dict[str, Any]:
    try:
        plan = json.loads(unescape_text(text))
    except ValueError:  # damaged: reading the run reports it
        plan = None
    return plan if isinstance(plan, dict) else {}


def _make_filter_columns(plan: dict[str, Any]) -> dict[str, str | None]:
    selection = plan.get("selection")
    as_json = json.dumps(selection, ensure_ascii=False, separators=(",", ":")) if selection else None
    return {"its_suite": escape_text(str(plan.get("suite", ""))), "its_selection": as_json and escape_text(as_json)}


def _list_models(plan: dict[str, Any]) -> set[tuple[str, str]]:
    targets = [("target", each) for each in plan.get("targets") or ()]
    others = [(role, plan.get(role)) for role in ("judge", "embedder", "stt")]
    return {(role, escape_text(str(each["typed"]))) for role, each in (*targets, *others) if isinstance(each, dict)}
