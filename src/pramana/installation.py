"""The `pip` command that installs an extra: the recorded origin of the distribution goes in, a command comes out.

The bare name is never suggested where pip recorded another origin: a package index may have an unrelated package by
that name.
"""

import json
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from shlex import quote
from typing import Any
from urllib.parse import unquote, urlsplit

PACKAGE_NAME = "pramana"


def make_install_command(extra: str) -> str:
    """Return the command that installs an extra, from the origin of this distribution.

    >>> make_install_command("mcp").startswith("pip install ")
    True
    """
    return make_command_for_origin(extra, _read_recorded_origin())


def make_command_for_origin(extra: str, origin: dict[str, Any] | None) -> str:
    """Return the command for pip's record of a direct installation (`direct_url.json`); None means from an index.

    >>> make_command_for_origin("mcp", {"url": "file:///home/ada/pramana", "dir_info": {"editable": True}})
    "pip install -e '/home/ada/pramana[mcp]'"
    >>> origin = {"url": "https://git.example/pramana.git", "vcs_info": {"vcs": "git", "commit_id": "4f1c"}}
    >>> make_command_for_origin("mcp", origin)
    "pip install 'pramana[mcp] @ git+https://git.example/pramana.git@4f1c'"
    >>> make_command_for_origin("mcp", None)
    "pip install 'pramana[mcp]'"
    """
    if not origin or not isinstance(url := origin.get("url"), str):
        return f"pip install {quote(f'{PACKAGE_NAME}[{extra}]')}"
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    if vcs or urlsplit(url).scheme != "file":
        return f"pip install {quote(f'{PACKAGE_NAME}[{extra}] @ {url}')}"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}{quote(f'{_url_to_path(url)}[{extra}]')}"


def _url_to_path(url: str) -> str:
    """Return the path of a `file:` URL; on Windows it begins with a drive letter."""
    path = unquote(urlsplit(url).path)
    return path[1:] if path[2:3] == ":" else path


@cache
def _read_recorded_origin() -> dict[str, Any] | None:
    try:
        text = distribution(PACKAGE_NAME).read_text("direct_url.json")
        found = json.loads(text) if text else None
    except (PackageNotFoundError, OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
