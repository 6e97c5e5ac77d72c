"""Stage 4, store: results in, rows out, and back again; a counted result is on disk.

`open_store` gives the one object everything goes through: SQLite in the data folder, or PostgreSQL by URL, by the same
code. Rows of results and checks are only ever added. Nothing here asks a model, judges a reply or draws a number.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pramana.store.runs import Store


def open_store(url: str) -> "Store":
    """Open the store at a URL, `sqlite:////path/to/file` or `postgresql://…`; make and migrate it where needed."""
    from pramana.store.engine import open_database
    from pramana.store.runs import Store

    return Store(open_database(url))


__all__ = ["open_store"]
