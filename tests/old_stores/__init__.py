"""Data folders written by earlier versions of the program, to test that they can still be used.

`make.sh` says what they contain and how they were made.
"""

import tarfile
from pathlib import Path

NOVEMBER = Path(__file__).parent / "2026-11.tar.xz"


def unpack(archive: Path, folder: Path) -> str:
    """Unpack a data folder into the given one; return the URL of its store."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return f"sqlite:///{folder / 'pramana.sqlite3'}"
