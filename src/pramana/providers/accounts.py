"""Where keys, base URLs and commands come from: a target comes in, the account that it is reached by goes out.

A registered provider's key goes only where it was given for. Nothing here reads the environment or opens a store: both
are handed in as functions.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote as percent

from pramana.errors import AuthenticationFailed, InvalidInput, quote_text
from pramana.model import Target
from pramana.providers.kinds import CALLED_KINDS, VARIABLES, WITHOUT_ACCOUNT, Variables, providers
from pramana.providers.redaction import without_secrets
from pramana.providers.voice.templates import BadTemplate, parse_template, value_to_text

CONNECT_S = 30.0


@dataclass(frozen=True, slots=True)
class Account:
    """How one provider account is reached."""

    base_url: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float | None = 120.0
    """For one whole request, its streamed answer included; None: whoever asks keeps the time."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; they win over the provider's own."""
    variable: str | None = None
    """The environment variable the key is read from, for messages; None: the vendor's usual one."""
    proxy: str | None = field(default=None, repr=False)
    """The URL of the proxy that every request goes through; None: straight to the base URL."""
    ours: bool = True
    """Whether the base URL is the vendor's or this machine's own choice; False: somebody else named it."""
    allow_private: bool = True
    """Whether what somebody else named may be at a private address."""
    elsewhere: str | None = field(default=None, repr=False)
    """The key for servers that a part of an agent names by itself; never the account's own."""
    listed_as: str = ""
    """What `pramana models` takes to list the models here: the provider's name, or the URL that was typed."""

    @property
    def is_guarded(self) -> bool:
        """Whether only the public Internet may be connected to."""
        return not (self.ours or self.allow_private)

    @property
    def connect_timeout_s(self) -> float:
        """How long a connection may take to stand."""
        return CONNECT_S if self.timeout_s is None else min(CONNECT_S, self.timeout_s)

    def __repr__(self) -> str:
        return f"Account({without_secrets(self.base_url)!r}, {'with a key' if self.key else 'without a key'})"


ADDRESSED_BY_MODEL = ("twilio", "pipecat")
"""Their model is the address that is called."""
Origin = tuple[str, str, int | None]
_HAS_HOST_RE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]+[/?#]")
"""Whatever follows belongs to a path."""


def find_key_destination(
    kind: str, base_url: str | None, description: Mapping[str, Any] | None, model: str | None
) -> tuple[Any, ...] | None:
    """Return where the key of a provider goes when a model is asked; None where nobody can tell.

    Of a described agent it is the origins of what is asked before a call and of the call; of one whose address is its
    model that address; of any other the server's, None being the vendor's own.

    >>> find_key_destination("websocket", None, {"url": "wss://{model}/talk"}, "agent.example")
    (('wss', 'agent.example', 443), ('wss', 'agent.example', 443))
    """
    if kind in ADDRESSED_BY_MODEL:
        return base_url, model
    if kind != "websocket" or description is None:
        return (base_url,)
    base = base_url or str(description.get("base_url") or "")
    url = str(description.get("url") or "{base_url}")  # without one, what is asked before says where the call is
    called, named = _resolve_host_part(url, base, model)
    if named - {"model"} or (named and model is None):
        return None
    origins = tuple(_origin(each) for each in (base or called, called))
    return None if None in origins else origins


def find_caller_controlled_names(description: Mapping[str, Any], base_url: str | None) -> frozenset[str]:
    """Return the names of what decides the host of a described agent besides its base URL: whoever calls says them.

    >>> find_caller_controlled_names({"url": "wss://{model}.example/{voice|none}"}, None)
    frozenset({'model'})
    """
    base = base_url or str(description.get("base_url") or "")
    return _resolve_host_part(str(description.get("url") or ""), base, None)[1]


def _resolve_host_part(url: str, base_url: str, model: str | None) -> tuple[str, frozenset[str]]:
    """Return an address as a call would write it, at least up to its path, and the names that stand before that."""
    made, named = "", set()
    values = {"base_url": base_url.partition("?")[0].rstrip("/"), "model": "x" if model is None else model}
    try:
        parts = parse_template(url)
    except BadTemplate:
        return "", frozenset({"?"})
    for part in parts:
        if isinstance(part, str):
            made += part
            continue
        if _HAS_HOST_RE.match(made):
            break
        if part.name != "base_url":
            named.add(part.name)
        value = value_to_text(values.get(part.name, "x"))
        made += percent(value, safe="") if made else value
    return made, frozenset(named)


def _origin(address: str) -> Origin | None:
    """Return scheme, host and port, as whoever connects reads them."""
    from yarl import URL

    try:
        url = URL(str(URL(re.sub("^http", "ws", address))))
        found = (url.scheme, url.host, url.port) if url.host else None
    except ValueError:
        return None
    return found


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command of the local configuration."""

    argv: tuple[str, ...]
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Registered:
    """A provider that somebody registered: one of a kind, under a name, at an address and with a key of its own.

    Under the name of its kind it is the one that every model of that kind is asked at.
    """

    id: str
    kind: str
    base_url: str | None = None
    """None: the vendor's own."""
    model: str | None = None
    """The one that is meant where the id stands alone."""
    description: Mapping[str, Any] | None = None
    """Of a WebSocket agent."""
    unlock: Callable[[], str | None] = field(default=lambda: None, repr=False, compare=False)
    """Returns the key; called when an account is opened, and by nobody else."""


Lookup = Callable[[str], Registered | None]
"""Returns the provider that is registered under an id."""


@dataclass(frozen=True, slots=True)
class PassedFunctions:
    """Callables that a Python caller passed as models and scorers, and where its coroutines run."""

    by_path: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """By the name that each is stored by: `package.module:function`."""
    scorers: Mapping[str, Any] = field(default_factory=dict)
    """Likewise; each is a `Scorer`."""
    loop: asyncio.AbstractEventLoop | None = None
    """None: an event loop for each function."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where keys, base URLs and commands come from."""

    lookup: Callable[[str], str | None] = field(repr=False)
    """Returns an environment variable. Never shown: what is looked into may hold every key there is."""
    timeout_s: float | None = 120.0
    commands: Mapping[str, CommandLine] = field(default_factory=dict)
    functions: PassedFunctions = field(default_factory=PassedFunctions)
    code: bool = True
    """Whether providers that run code of this machine may be opened; a server says no."""
    proxy_for: Callable[[str], str | None] = field(default=lambda _: None, repr=False)
    """Returns the proxy that leads to a URL; None: none does. Never shown: proxies have passwords too."""
    registered: Lookup = field(default=lambda _: None, repr=False)
    allow_private: bool = True
    """Whether addresses that were named by others than this machine's user may be private ones."""
    for_others: bool = False
    """Whether others than this machine's user say who is asked: a key of the environment then goes to its vendor, or
    to where the environment says, and never to an address that was typed."""

    def find_account(self, target: Target) -> Account | None:
        """Return how the target's provider is reached; None for one that needs no account."""
        name = target.provider
        if name in WITHOUT_ACCOUNT:
            return None
        if (account_id := target.arguments.get("account")) is not None:
            return self._account_of_registered(target, str(account_id))
        known = VARIABLES.get(name)
        if known is None:
            stem = re.sub(r"\W+", "_", name.upper())
            known = Variables((f"{stem}_API_KEY",), (f"{stem}_BASE_URL",), "", key_required=False)
        variable = next((each for each in known.keys if self.lookup(each)), None)
        if variable is None and known.key_required:
            raise AuthenticationFailed(f"{name} needs an API key; set {' or '.join(known.keys)}")
        typed = target.arguments.get("base_url") if name == "compatible" else None
        stated = next((url for each in known.base_urls if (url := self.lookup(each))), known.base_url)
        base_url = typed or stated
        if base_url is None:
            raise InvalidInput(
                f"{quote_text(target.typed)} does not name a server; write http://HOST:PORT/v1#{target.model}, "
                f"or set {known.base_urls[0]}"
            )
        ours = not (name in (*ADDRESSED_BY_MODEL, "websocket") or (typed and typed != (stated or "").rstrip("/")))
        key = self.lookup(variable) if variable and (ours or not self.for_others) else None
        return Account(
            base_url,
            key,
            self.timeout_s,
            variable=variable or known.keys[0],
            proxy=self.proxy_for(base_url),
            ours=ours,
            allow_private=self.allow_private,
            elsewhere=None if self.for_others else self.lookup("COMPATIBLE_API_KEY"),
            listed_as=typed or name,
        )

    def _account_of_registered(self, target: Target, account_id: str) -> Account:
        """Return how a registered provider is reached: with its own key, and only where that was meant to go."""
        found, described = self.registered(account_id), target.arguments.get("description")
        if found is None:
            raise InvalidInput(
                f"no provider {quote_text(account_id)} is registered any longer; register it again, or use another"
            )
        now, then = (
            (found.base_url, _description_address(found.description)),
            (target.arguments.get("base_url"), _description_address(described)),
        )
        if now != then or VARIABLES[found.kind] != VARIABLES.get(target.provider):
            raise InvalidInput(
                f"the provider {quote_text(account_id)} has another address than when the run started, and its key is "
                "sent "
                "to no other; start a new run with it"
            )
        known = VARIABLES[found.kind]
        meant = find_key_destination(found.kind, found.base_url, found.description, found.model)
        asked = find_key_destination(found.kind, found.base_url, found.description, target.model)
        key = found.unlock() if asked is not None and asked == meant else None
        if known.key_required and not key:
            raise AuthenticationFailed(f"{account_id} needs an API key; set the provider's apiKey")
        base_url = found.base_url or known.base_url or ""
        return Account(
            base_url,
            key,
            self.timeout_s,
            variable=f"the key of the provider {account_id}",
            proxy=self.proxy_for(base_url),
            ours=not (found.base_url or found.kind in (*ADDRESSED_BY_MODEL, "websocket")),
            allow_private=self.allow_private,
            listed_as=account_id,
        )

    def list_configured(self) -> list[str]:
        """Return the providers that can be asked as things are: key or server are set, or not needed.

        Those of other packages come after the built-in ones; what they need besides is theirs to say.
        """
        found = [
            name
            for name, known in VARIABLES.items()
            if name not in CALLED_KINDS
            if any(map(self.lookup, known.keys if known.key_required else known.base_urls))
        ]
        return [*found, "local", *(name for name in providers.names() if name not in providers.builtin)]


def _description_address(description: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """Return where a described agent is called, and so where its key goes."""
    return (description.get("base_url"), description.get("url")) if description else ()
