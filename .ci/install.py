"""Install locked requirements by two pips at once: unpacking keeps one core busy for a minute; most machines have two.

Every package is pinned with its hashes and installed without its dependencies, so no pip needs to know of the other.
Arguments: the files of requirements; the options of pip stand in INSTALL_OPTIONS. Standard library only.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

AT_ONCE = 2


def main(files: list[str]) -> int:
    """Install all of them; return 0 if every pip ended well."""
    blocks = [block for file in files for block in packages(Path(file).read_text(encoding="utf-8"))]
    options = shlex.split(os.environ.get("INSTALL_OPTIONS", ""))
    with tempfile.TemporaryDirectory(prefix="pramana-install-") as folder:
        running = []
        for number in range(min(AT_ONCE, len(blocks))):
            part = Path(folder, f"{number}.txt")
            part.write_text("".join(blocks[number::AT_ONCE]), encoding="utf-8")
            command = [sys.executable, "-m", "pip", "install", *options, "--require-hashes", "-r", str(part)]
            running.append(subprocess.Popen(command))
        codes = [process.wait() for process in running]
    return next((code for code in codes if code), 0)


def packages(text: str) -> list[str]:
    """Return the requirements of a file, each with its hashes.

    >>> packages("# via\\na==1 \\\\\\n    --hash=x\\n    # via b\\nb==2 --hash=y\\n")
    ['a==1 \\\\\\n    --hash=x\\n', 'b==2 --hash=y\\n']
    """
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0].isspace():
            found[-1] += line
        else:
            found.append(line)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
