"""A workbench that requires a token, with one token of each role."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from playwright.sync_api import Browser

from pramana.store import open_store

from ..api.served import Client
from .conftest import Bench
from .workbench import workbench


@dataclass
class TokenBench:
    """A server that requires tokens, and its tokens by role."""

    bench: Bench
    tokens: dict[str, str]

    def client(self, role: str) -> Client:
        """Return a client with the token of a role."""
        return replace(self.bench.client, token=self.tokens[role])


@contextmanager
def serve_with_tokens(home: Path, browser: Browser, *options: str) -> Iterator[TokenBench]:
    """Start a server whose store has a token for each role, named after the role."""
    store = open_store(f"sqlite:///{home}/pramana.sqlite3")
    tokens = {role: store.tokens.create(role, role)[1] for role in ("viewer", "editor", "admin")}
    store.close()
    with workbench("--allow-host", "bench.example", *options, PRAMANA_HOME=str(home)) as client:
        bench = Bench(client, home, browser)
        yield TokenBench(bench, tokens)
        bench.close()
