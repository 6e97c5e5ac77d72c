"""Stage 4, store: results in, rows out, and back again. A result that is reported as stored is on disk.

`open_store` returns the one object for all access: SQLite in the data folder, or PostgreSQL by URL, with the same code.
Rows of results and checks are only ever added. Nothing here calls a model, scores a reply or computes statistics.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pramana import settings
from pramana.errors import StoreFailed

if TYPE_CHECKING:
    from pramana.store.store import Store


_SQLITE_PREFIX = "sqlite:///"


def open_store(url: str) -> "Store":
    """Open the store at a URL, `sqlite:////path/to/file` or `postgresql://…`; create or migrate it where needed.

    In a file's path, `%25`, `%3F` and `%23` encode a percent sign, a question mark and a number sign.
    """
    from sqlalchemy import make_url

    from pramana.store.engine import open_database
    from pramana.store.store import Store

    settings.restrict_data_folder()
    if not url.startswith(_SQLITE_PREFIX):
        return Store(open_database(url))
    # Parsed here because SQLAlchemy 2.0 does not decode percent escapes in a path, while 2.1 does.
    path = unquote(url.removeprefix(_SQLITE_PREFIX).partition("?")[0])
    try:
        return Store(open_database(make_url(url).set(database=path)))
    except StoreFailed as error:
        try:
            hint = _make_path_hint(Path(path)) or _make_content_hint(str(error), Path(path))
        except OSError as invalid:  # no file can have this name
            hint = f", whose name cannot be used: {invalid.strerror}{_NAME_FOLDER_HINT}"
        raise StoreFailed(f"{error}; the store is {path}{hint}") from error


def make_url_absolute(url: str) -> str:
    """Return a store's URL with an absolute path, so that it is the same store in every working directory.

    >>> make_url_absolute("postgresql://localhost/pramana"), make_url_absolute("sqlite:////data/pramana.sqlite3")
    ('postgresql://localhost/pramana', 'sqlite:////data/pramana.sqlite3')
    """
    path, mark, options = url.removeprefix(_SQLITE_PREFIX).partition("?")
    if not url.startswith(_SQLITE_PREFIX) or path in ("", ":memory:") or Path(unquote(path)).is_absolute():
        return url
    return f"{settings.sqlite_url(Path.cwd() / unquote(path))}{mark}{options}"


_NAME_FOLDER_HINT = "; name another folder in PRAMANA_HOME"


def _make_content_hint(message: str, path: Path) -> str:
    """Return a hint to append where the file is no store of Pramana, or a damaged one, else an empty string."""
    if path.is_dir():
        return f", which is a folder, not a file{_NAME_FOLDER_HINT}"
    if "malformed" in message:
        return (
            "; the file is damaged: put back a copy of it, or move it and the files beside it with the same name away "
            "to begin an empty store"
        )
    if "not a database" in message or "already exists" in message:
        return f"; the file is not a store of Pramana: move it away{_NAME_FOLDER_HINT.replace(';', ', or', 1)}"
    return ""


def _make_path_hint(path: Path) -> str:
    """Return a hint to append to an error message when a file or its folder is not writable, else an empty string."""
    there = path.exists()
    writable = os.access(path.parent, os.W_OK | os.X_OK) and (not there or os.access(path, os.R_OK | os.W_OK))
    if writable or not path.parent.exists():
        return ""
    which = "this file and its folder" if there else "this folder"
    return (
        f"; {which} must be writable even for reading, because SQLite writes a log next to the file: change the "
        "permissions, or copy the store to a writable folder and set PRAMANA_HOME to that folder"
    )
