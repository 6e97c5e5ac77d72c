"""Replies by what was asked: one small file each, so that asking the same again costs nothing. Never for drift.

The name of a file is the hash of provider, arguments, address, model, turns, parameters and which repeat it is: change
any, and someone is asked. A file that cannot be read is as good as none, and so is one that cannot be written.
"""

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from msgspec.structs import asdict, replace

from pramana.jsonl import canonical
from pramana.model import Reply, Request, Target, Usage, counted, misfit
from pramana.settings import make_private

_UNUSABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What a file of any content at any place may raise."""


class FileCache:
    """Implements `ReplyCache` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, target: Target, where: str, request: Request) -> Reply | None:
        """Return what was answered before, marked as cached and free; None when nobody was asked yet."""
        try:
            kept = json.loads(self._path(target, where, request).read_text(encoding="utf-8"))
            usage, raw = Usage(**kept.pop("usage")), kept.pop("raw")
            several = {"dropped": tuple(kept["dropped"]), "vectors": (), "answers": ()}
            known = Reply(**{**kept, **several, "usage": counted(usage)})
            raw = None if raw is None else raw.encode("utf-8", "surrogatepass")
            known = replace(known, raw=raw, cached=True, cost_usd=0.0)
        except _UNUSABLE:
            return None
        return None if misfit(known) else known

    def put(self, target: Target, where: str, request: Request, reply: Reply) -> None:
        """Keep a reply if that can be; whoever reads at the same time sees the whole of it or nothing."""
        with suppress(*_UNUSABLE):
            path = self._path(target, where, request)
            raw = None if reply.raw is None else reply.raw.decode("utf-8", "surrogatepass")
            content = json.dumps({**asdict(reply), "usage": asdict(reply.usage), "raw": raw, "call": None})
            make_private(path.parent)
            handle, name = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(content)
                Path(name).replace(path)
            except OSError:
                Path(name).unlink()  # of a disk that is full, not even this may stay

    def _path(self, target: Target, where: str, request: Request) -> Path:
        asked = {
            "provider": target.provider,
            "arguments": dict(target.arguments),
            "where": where,
            "model": request.model,
            "turns": [[turn.role, turn.text] for turn in request.turns],
            "parameters": dict(request.parameters),
            "sample": request.sample,
        }
        digest = hashlib.sha256(b"pramana reply 2" + canonical(asked)).hexdigest()
        return self.folder / digest[:2] / f"{digest[2:]}.json"
