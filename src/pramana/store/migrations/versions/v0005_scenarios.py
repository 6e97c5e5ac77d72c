"""Stored scenarios use the field names of the model; before, their JSON had the names of the API."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_NEW_NAMES = {
    "expectedOutcome": "expected_outcome",
    "promptAudioUrl": "prompt_audio_url",
    "audioUrl": "audio_url",
    "bargeIn": "barge_in",
}


def upgrade() -> None:
    """Rename the fields of all scenarios, including deleted ones that can be restored."""
    connection = op.get_bind()
    for table in ("scenarios", "deleted_scenarios"):
        rows = sa.table(table, sa.column("id"), sa.column("body"))
        body = sa.update(rows).where(rows.c.id == sa.bindparam("which")).values(body=sa.bindparam("renamed"))
        last = ""
        order = rows.c.id.collate("C") if connection.dialect.name == "postgresql" else rows.c.id
        while found := connection.execute(sa.select(rows).where(order > last).order_by(order).limit(500)).all():
            connection.execute(body, [{"which": each.id, "renamed": _rename_fields(each.body)} for each in found])
            last = found[-1].id


def _rename_fields(body: str) -> str:
    scenario = _rename_keys(json.loads(body))
    if scenario.get("turns"):
        scenario["turns"] = [_rename_keys(turn) for turn in scenario["turns"]]
    return json.dumps(scenario, ensure_ascii=False, separators=(",", ":"))


def _rename_keys(values: dict[str, Any]) -> dict[str, Any]:
    return {_NEW_NAMES.get(name, name): value for name, value in values.items()}
