"""The only reader of the environment and of the configuration file: the data folder, proxies, keys and commands.

Files are private to their owner: folders are created with mode 0700, files with 0600.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from pramana.errors import InvalidInput, Problem, quote_text, suggest_similar


def read_variable(name: str) -> str | None:
    """Return an environment variable; empty counts as not set."""
    return os.environ.get(name) or None  # noqa: TID251 - the only place that reads the environment


def data_folder() -> Path:
    """Return the data folder: `PRAMANA_HOME`, or the platform's default for user data."""
    if chosen := read_variable("PRAMANA_HOME"):
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            raise InvalidInput(f"PRAMANA_HOME is {chosen}, and that user does not exist") from None
    from platformdirs import user_data_path

    return user_data_path("pramana", appauthor=False)


_DATA_FOLDER_PATTERNS = ("pramana.sqlite3*", "blobs", "audio", "cache", "suites", "weights", "*.toml", "defect.txt")
"""What the data folder holds. A key file that others can read is refused rather than repaired: they may have read
it."""


def restrict_data_folder() -> None:
    """Remove other accounts' access to the data folder and its contents, which an earlier version left open."""
    folder = data_folder()
    try:
        found = folder.stat()
        shared = found.st_mode & stat.S_ISVTX or folder.resolve() in (Path.home(), Path(folder.anchor))
        if os.name != "posix" or not found.st_mode & 0o077 or shared or found.st_uid != os.getuid():
            return
        if not stat.S_ISDIR(found.st_mode):  # PRAMANA_HOME may name a file, or a device such as /dev/null
            return
        for each in _list_data_folder_contents(folder):
            with suppress(FileNotFoundError):
                each.chmod(each.stat().st_mode & 0o700)
        folder.chmod(0o700)  # last, because it marks the rest as done
    except (OSError, RuntimeError):
        return  # it is missing, or on a disk without file modes


def _list_data_folder_contents(folder: Path) -> Iterator[Path]:
    for name in _DATA_FOLDER_PATTERNS:
        for each in folder.glob(name):
            yield from (inner for inner in (each, *each.rglob("*")) if not inner.is_symlink())


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents, for their owner alone."""
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(0o700, exist_ok=True)


def open_private_file(path: Path) -> BinaryIO:
    """Open a new file for writing, private to its owner."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


def write_private_file(path: Path, text: str) -> None:
    """Write a file that is private to its owner, replacing any previous one; create its missing parents."""
    make_private_folder(path.parent)
    path.unlink(missing_ok=True)
    with open_private_file(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def published_suites_folder() -> Path:
    """Return the folder that `pramana suite publish` writes to; it need not exist."""
    return data_folder() / "suites"


def database_url() -> str:
    """Return the database URL: `PRAMANA_DATABASE_URL`, or a SQLite file in the data folder."""
    return read_variable("PRAMANA_DATABASE_URL") or sqlite_url(data_folder() / "pramana.sqlite3")


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file.

    Characters that are special in a URL are escaped.
    """
    escaped = str(path)
    for character in "%?#":  # the percent sign first, because it starts the escapes
        escaped = escaped.replace(character, f"%{ord(character):02X}")
    return f"sqlite:///{escaped}"


def read_encryption_keys() -> tuple[str, ...]:
    """Return the keys that encrypt stored secrets: `PRAMANA_SECRET_KEY`, comma-separated, newest first."""
    stated = (read_variable("PRAMANA_SECRET_KEY") or "").split(",")
    return tuple(each.strip() for each in stated if each.strip())


def encryption_key_file_path() -> Path:
    """Return the key file, used when no variable names keys; created on first use."""
    return data_folder() / "secret.key"


def prices_file_path() -> Path:
    """Return the path of the user's own prices; the file need not exist."""
    return data_folder() / "prices.toml"


def find_proxy(url: str) -> str | None:
    """Return the proxy for a URL: HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, in either case; None if none applies.

    NO_PROXY lists what needs no proxy: hosts, their domains, networks (`10.0.0.0/8`), or `*`. This machine itself never
    needs one. The system's settings apply where the environment sets nothing.
    """
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    try:
        parts = urlsplit(url)
    except ValueError:
        return None  # the request reports what is wrong with it
    host, place = parts.hostname or "", parts.netloc.rpartition("@")[2]
    stated = getproxies()
    proxy = stated.get(parts.scheme) or stated.get("all")
    if not proxy or not host or _is_reached_directly(host, stated.get("no", "")) or proxy_bypass(place):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    scheme = proxy.partition("://")[0].lower()
    if scheme not in ("http", "https"):
        raise InvalidInput(
            f"{host} has a proxy of the type {scheme}, which is not supported; set "
            f"{parts.scheme.upper()}_PROXY to an http:// one, or name the host in NO_PROXY"
        )
    return proxy


def _is_reached_directly(host: str, no_proxy: str) -> bool:
    """Return whether a host needs no proxy where `proxy_bypass` does not know: this machine, and excepted networks."""
    from ipaddress import ip_address, ip_network

    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    for each in no_proxy.split(","):
        try:
            if address in ip_network(each.strip(), strict=False):
                return True
        except ValueError:
            continue  # a host name
    return address.is_loopback


def are_private_addresses_allowed() -> bool:
    """Return whether recordings may be fetched from private and local addresses: `PRAMANA_ALLOW_PRIVATE_ADDRESSES`."""
    stated = read_variable("PRAMANA_ALLOW_PRIVATE_ADDRESSES")
    if stated not in (None, "0", "1"):  # a typo must not switch off a guard
        raise InvalidInput(f"PRAMANA_ALLOW_PRIVATE_ADDRESSES is {quote_text(str(stated))}; expected 1 or 0")
    return stated == "1"


def public_url() -> str | None:
    """Return the URL at which users reach this server, for links in alerts: `PRAMANA_PUBLIC_URL`; None if not set."""
    from urllib.parse import urlsplit

    stated = read_variable("PRAMANA_PUBLIC_URL")
    if stated is None:
        return None
    try:
        parts = urlsplit(stated)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
    except ValueError:
        is_valid = False
    if not is_valid or not stated.isprintable():
        raise InvalidInput(f"PRAMANA_PUBLIC_URL is {quote_text(stated)}; expected https://host or https://host/path")
    return stated.rstrip("/")


def is_ci() -> bool:
    """Return whether this is a continuous integration machine, whose cores are shared."""
    return read_variable("CI") is not None


def is_debugging() -> bool:
    """Return whether tracebacks are shown: `PRAMANA_DEBUG`."""
    return read_variable("PRAMANA_DEBUG") not in (None, "0")


def read_agent_command_settings() -> Mapping[str, Mapping[str, Any]]:
    """Return the commands of `config.toml` in the data folder, the tables `[commands.NAME]`.

    Each has `argv` and, optionally, `timeout_s`. Only this local file can define a command: nothing that arrives from
    elsewhere makes a machine run one. The whole file is checked, whichever command is wanted; every problem names its
    key.
    """
    import tomllib

    path = data_folder() / "config.toml"
    try:
        stated = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or a number or a nesting beyond the limits
        raise InvalidInput.from_problems([Problem(f"not valid TOML: {error}", file=str(path))]) from None
    found = stated.get("commands", {})
    problems = [
        (name, f'unknown key "{name}"{suggest_similar(name, ["commands"])}; expected [commands.NAME]')
        for name in stated
        if name != "commands"
    ]
    if not isinstance(found, dict):
        problems.append(("commands", f"{_COMMAND_SYNTAX}, in a table [commands.NAME]"))
        found = {}
    for name, command in found.items():
        problems += [(f"commands.{name}{key}", message) for key, message in _find_command_problems(command)]
    if problems:
        raise InvalidInput.from_problems([Problem(message, key, file=str(path)) for key, message in problems])
    return dict(found)


_COMMAND_SYNTAX = 'write a command as argv = ["program", "argument"], optionally with timeout_s = 60'
_MAX_TIMEOUT_S = 24 * 3600


def _find_command_problems(command: Any) -> list[tuple[str, str]]:
    """Return the problems of one command: the key below it, and a sentence."""
    if not isinstance(command, dict):
        return [("", _COMMAND_SYNTAX)]
    problems = []
    argv, timeout_s = command.get("argv"), command.get("timeout_s", 1)
    if not (isinstance(argv, list) and argv and all(isinstance(each, str) and "\0" not in each for each in argv)):
        problems.append((".argv" if "argv" in command else "", _COMMAND_SYNTAX))
    if type(timeout_s) not in (int, float) or not 0 < timeout_s <= _MAX_TIMEOUT_S:
        problems.append((".timeout_s", f"is {quote_text(str(timeout_s))}; expected seconds, above 0 and at most a day"))
    known = ("argv", "timeout_s")
    problems += [
        (f".{name}", f'unknown key "{name}"{suggest_similar(name, known)}; {_COMMAND_SYNTAX}')
        for name in command
        if name not in known
    ]
    return problems
