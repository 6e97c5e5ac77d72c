"""Migrations of the schema, run by Alembic: one file each, never edited once released."""
