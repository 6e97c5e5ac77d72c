"""The schema's history, as Alembic reads it: one file a step, never edited once released."""
