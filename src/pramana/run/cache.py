"""Replies by what was asked: one small file each, so that asking the same again costs nothing. Never for drift.

The name of a file is the hash of provider, arguments, model, turns and parameters: change any, and someone is asked. A
file that cannot be read is as good as none.
"""

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from pramana.jsonl import canonical
from pramana.model import Reply, Request, Target, Usage


class FileCache:
    """Implements `ReplyCache` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, target: Target, request: Request) -> Reply | None:
        """Return what was answered before, marked as cached and free; None when nobody was asked yet."""
        try:
            kept = json.loads(self._path(target, request).read_text(encoding="utf-8"))
            usage = Usage(**kept.pop("usage"))
            return replace(
                Reply(**{**kept, "usage": usage, "dropped": tuple(kept["dropped"])}), cached=True, cost_usd=0.0
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def put(self, target: Target, request: Request, reply: Reply) -> None:
        """Keep a reply; whoever reads at the same time sees the whole of it or nothing."""
        path = self._path(target, request)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(reply), file)
        Path(name).replace(path)

    def _path(self, target: Target, request: Request) -> Path:
        asked = {
            "provider": target.provider,
            "arguments": dict(target.arguments),
            "model": request.model,
            "turns": [[turn.role, turn.text] for turn in request.turns],
            "parameters": dict(request.parameters),
        }
        digest = hashlib.sha256(b"pramana reply 1" + canonical(asked)).hexdigest()
        return self.folder / digest[:2] / f"{digest[2:]}.json"
