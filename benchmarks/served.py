"""A server for benchmarks: `pramana serve` as a separate process with its own data folder."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def run_server(*options: str, **environment: str) -> Iterator[str]:
    """Yield the URL of a server with an empty store; stop it when the context ends."""
    with tempfile.TemporaryDirectory(prefix="pramana-bench-") as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PRAMANA_")}  # noqa: TID251
        process = subprocess.Popen(
            [sys.executable, "-m", "pramana", "serve", "--port", "0", *options],
            env={**kept, "PRAMANA_HOME": folder, **environment},
            cwd=Path(folder),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None  # noqa: S101 - stdout is a pipe
        try:
            said = process.stdout.readline()
            found = re.search(r"http://\S+:\d+", said)
            if not found:
                raise SystemExit(f"the server did not start: {said}")
            yield found[0]
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()
