"""The store of whoever types a command."""

from contextlib import closing
from typing import TYPE_CHECKING

from pramana import settings

if TYPE_CHECKING:
    from pramana.store.store import Store


def local_store() -> "closing[Store]":
    """Return the store, to be entered as a context: it is closed however the command ends."""
    from pramana.store import open_store

    return closing(open_store(settings.database_url()))
