"""The script that Alembic runs to migrate, on the connection passed to it, in the transaction that is already open.

It never connects by itself, so there is no `alembic.ini` and no second place for a database URL.
"""

from alembic import context

from pramana.store.schema import metadata


def migrate() -> None:
    """Run the requested migrations on the connection in the configuration's attributes."""
    context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()


if __name__ == "env_py":  # the name under which Alembic loads this file; other imports migrate nothing
    migrate()
