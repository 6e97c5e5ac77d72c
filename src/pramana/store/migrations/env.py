"""What Alembic runs to migrate: the connection it was handed, inside the transaction that is already open.

Never connects by itself, so there is no `alembic.ini` and no second place where a database URL could stand.
"""

from alembic import context

from pramana.store.schema import metadata


def migrate() -> None:
    """Run the steps asked for on the connection in the configuration's attributes."""
    context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()


if __name__ == "env_py":  # the name Alembic loads this file by; whoever else imports it migrates nothing
    migrate()
