"""Chromium, however the machine calls it."""

import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The same engine; the first draws no window around its pages, which takes a third of the time that a page takes."""
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def path() -> str:
    """Return where it is."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found, "Chromium is needed: make system"
    return found


def dump_dom(url: str, profile: Path, *options: str) -> str:
    """Open a page without playwright; return what stands in it at the end."""
    command = [path(), *QUIET, f"--user-data-dir={profile}", *options, "--dump-dom", url]
    return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode()
