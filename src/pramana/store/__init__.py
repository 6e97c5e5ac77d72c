"""Stage 4, store: results in, rows out, and back again; a counted result is on disk.

`open_store` gives the one object everything goes through: SQLite in the data folder, or PostgreSQL by URL, by the same
code. Rows of results and checks are only ever added. Nothing here asks a model, judges a reply or draws a number.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pramana import settings
from pramana.errors import StoreFailed

if TYPE_CHECKING:
    from pramana.store.store import Store


_SQLITE = "sqlite:///"


def open_store(url: str) -> "Store":
    """Open the store at a URL, `sqlite:////path/to/file` or `postgresql://…`; make and migrate it where needed.

    In the path of a file `%25`, `%3F` and `%23` stand for a percent sign, a question mark and a number sign.
    """
    from sqlalchemy import make_url

    from pramana.store.engine import open_database
    from pramana.store.store import Store

    settings.restrict_data_folder()
    if not url.startswith(_SQLITE):
        return Store(open_database(url))
    # Taken apart here: SQLAlchemy 2.0 does not undo the escapes of a path, 2.1 does.
    path = unquote(url.removeprefix(_SQLITE).partition("?")[0])
    try:
        return Store(open_database(make_url(url).set(database=path)))
    except StoreFailed as error:
        raise StoreFailed(f"{error}; the store is {path}{_path_hint(Path(path))}") from error


def absolute_url(url: str) -> str:
    """Return a store's URL so that it names the same store in every working directory.

    >>> absolute_url("postgresql://localhost/pramana"), absolute_url("sqlite:////data/pramana.sqlite3")
    ('postgresql://localhost/pramana', 'sqlite:////data/pramana.sqlite3')
    """
    path, mark, options = url.removeprefix(_SQLITE).partition("?")
    if not url.startswith(_SQLITE) or path in ("", ":memory:") or Path(unquote(path)).is_absolute():
        return url
    return f"{settings.sqlite_url(Path.cwd() / unquote(path))}{mark}{options}"


def _path_hint(path: Path) -> str:
    """Return a hint that ends a message, where a file or its folder is in the way."""
    there = path.exists()
    writable = os.access(path.parent, os.W_OK | os.X_OK) and (not there or os.access(path, os.R_OK | os.W_OK))
    if writable or not path.parent.exists():
        return ""
    which = "this file and its folder" if there else "this folder"
    return (
        f"; {which} must be writable, to read too, since SQLite keeps a log beside the file: change that, or copy the "
        "store to where you may write and name the folder in PRAMANA_HOME"
    )
