"""Keys, base URLs and commands: a target comes in, the account to reach it goes out.

A registered provider's key goes only to the address it was registered for. Nothing here reads the environment or opens
a store: both are passed in as functions.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote as percent

from pramana.errors import AuthenticationFailed, InvalidInput, quote_text
from pramana.model import Target
from pramana.providers.kinds import (
    KINDS_WITHOUT_ACCOUNT,
    VARIABLES_BY_KIND,
    VOICE_AGENT_KINDS_WITH_ACCOUNT,
    ProviderVariables,
    providers,
)
from pramana.providers.redaction import strip_url_secrets
from pramana.providers.voice.templates import BadTemplate, parse_template, value_to_text

CONNECT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Account:
    """The base URL, API key and proxy with which Pramana reaches one account at a provider."""

    base_url: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float | None = 120.0
    """Timeout for a whole request including its streamed response; None: the caller keeps the time."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; they override the provider's own."""
    variable: str | None = None
    """What messages ask the user to set: the environment variable of the key, or a phrase such as `the key of the
    provider x`; None: the vendor's usual variable."""
    proxy: str | None = field(default=None, repr=False)
    """URL of the proxy for every request; None: connect directly to the base URL."""
    is_trusted_address: bool = True
    """Whether `base_url` is the vendor's or set on this machine; False: it was supplied by someone else."""
    allow_private: bool = True
    """Whether a base URL supplied by someone else may be a private address."""
    part_server_key: str | None = field(default=None, repr=False)
    """The key for servers named in a part of an agent; never the account's own."""
    list_argument: str = ""
    """The argument with which `pramana models` lists this account's models: the provider's name or the URL as typed."""

    @property
    def is_guarded(self) -> bool:
        """Return whether only public Internet addresses may be connected to."""
        return not (self.is_trusted_address or self.allow_private)

    @property
    def connect_timeout_s(self) -> float:
        """Return the connection timeout."""
        return CONNECT_TIMEOUT_S if self.timeout_s is None else min(CONNECT_TIMEOUT_S, self.timeout_s)

    def __repr__(self) -> str:
        return f"Account({strip_url_secrets(self.base_url)!r}, {'with a key' if self.key else 'without a key'})"


KINDS_WHOSE_MODEL_IS_ADDRESS = ("twilio", "pipecat")
"""Kinds whose model is the address to call."""
Origin = tuple[str, str, int | None]
_HAS_HOST_RE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]+[/?#]")
"""Everything after a match belongs to the path."""


def find_key_destination(
    kind: str, base_url: str | None, description: Mapping[str, Any] | None, model: str | None
) -> tuple[Any, ...] | None:
    """Return where a provider's key is sent for a model; None if that cannot be determined.

    For a described agent: the origins of the request before a call and of the call. For a kind whose model is an
    address: that address. For any other kind: the server's, where None is the vendor's own.

    >>> find_key_destination("websocket", None, {"url": "wss://{model}/talk"}, "agent.example")
    (('wss', 'agent.example', 443), ('wss', 'agent.example', 443))
    """
    if kind in KINDS_WHOSE_MODEL_IS_ADDRESS:
        return base_url, model
    if kind != "websocket" or description is None:
        return (base_url,)
    base = base_url or str(description.get("base_url") or "")
    url = str(description.get("url") or "{base_url}")  # without one, the request before the call returns it
    called, named = _resolve_up_to_path(url, base, model)
    if named - {"model"} or (named and model is None):
        return None
    origins = tuple(_parse_origin(each) for each in (base or called, called))
    return None if None in origins else origins


def find_host_deciding_names(description: Mapping[str, Any], base_url: str | None) -> frozenset[str]:
    """Return the names, besides the base URL, that decide a described agent's host: the caller controls them.

    >>> find_host_deciding_names({"url": "wss://{model}.example/{voice|none}"}, None)
    frozenset({'model'})
    """
    base = base_url or str(description.get("base_url") or "")
    return _resolve_up_to_path(str(description.get("url") or ""), base, None)[1]


def _resolve_up_to_path(url: str, base_url: str, model: str | None) -> tuple[str, frozenset[str]]:
    """Return an address as a call would build it, at least up to its path, and the names used before the path."""
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


def _parse_origin(address: str) -> Origin | None:
    """Return scheme, host and port, as parsed for the connection."""
    from yarl import URL

    try:
        url = URL(str(URL(re.sub("^http", "ws", address))))
        found = (url.scheme, url.host, url.port) if url.host else None
    except ValueError:
        return None
    return found


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command from the local configuration."""

    argv: tuple[str, ...]
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class RegisteredProvider:
    """A provider that a user registered: its kind, under a name, with an address and key.

    Registered under the name of its kind, it handles every model of that kind.
    """

    id: str
    kind: str
    base_url: str | None = None
    """None: the vendor's own."""
    model: str | None = None
    """The default model, used where the id is given without a model."""
    description: Mapping[str, Any] | None = None
    """The description of a WebSocket agent."""
    read_key: Callable[[], str | None] = field(default=lambda: None, repr=False, compare=False)
    """Returns the key; called only when an account is opened."""


FindRegistered = Callable[[str], RegisteredProvider | None]
"""Returns the provider registered under an id."""


@dataclass(frozen=True, slots=True)
class PassedFunctions:
    """Callables that a Python caller passed as models and scorers, and the event loop for its coroutines."""

    models_by_path: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Models by the name they are stored under: `package.module:function`."""
    scorers: Mapping[str, Any] = field(default_factory=dict)
    """Scorers by the same kind of name; each is a `Scorer`."""
    loop: asyncio.AbstractEventLoop | None = None
    """None: one event loop per function."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """Looks up keys, base URLs and commands."""

    read_variable: Callable[[str], str | None] = field(repr=False)
    """Returns an environment variable. Never shown: its source may hold every key."""
    timeout_s: float | None = 120.0
    commands: Mapping[str, CommandLine] = field(default_factory=dict)
    functions: PassedFunctions = field(default_factory=PassedFunctions)
    may_run_code: bool = True
    """Whether providers that run code on this machine may be opened; False on a server."""
    proxy_for: Callable[[str], str | None] = field(default=lambda _: None, repr=False)
    """Returns the proxy for a URL; None: no proxy. Never shown: proxy URLs may hold passwords."""
    find_registered_provider: FindRegistered = field(default=lambda _: None, repr=False)
    allow_private_addresses: bool = True
    """Whether addresses supplied by anyone but this machine's user may be private."""
    is_for_other_users: bool = False
    """Whether models are chosen by others than this machine's user. Then a key from the environment goes only to its
    vendor or to the base URL in the environment, never to a typed address."""

    def find_account(self, target: Target) -> Account | None:
        """Return the account of the target's provider; None if it needs none."""
        name = target.provider
        if name in KINDS_WITHOUT_ACCOUNT:
            return None
        if (account_id := target.arguments.get("account")) is not None:
            return self._make_account_of_registered(target, str(account_id))
        known = VARIABLES_BY_KIND.get(name)
        if known is None:
            stem = re.sub(r"\W+", "_", name.upper())
            known = ProviderVariables((f"{stem}_API_KEY",), (f"{stem}_BASE_URL",), "", key_required=False)
        variable = next((each for each in known.key_variables if self.read_variable(each)), None)
        if variable is None and known.key_required:
            raise AuthenticationFailed(f"{name} needs an API key; set {' or '.join(known.key_variables)}")
        typed = target.arguments.get("base_url") if name == "compatible" else None
        stated = next(
            (url for each in known.base_url_variables if (url := self.read_variable(each))), known.default_base_url
        )
        base_url = typed or stated
        if base_url is None:
            raise InvalidInput(
                f"{quote_text(target.typed)} does not name a server; write http://HOST:PORT/v1#{target.model}, "
                f"or set {known.base_url_variables[0]}"
            )
        ours = not (
            name in (*KINDS_WHOSE_MODEL_IS_ADDRESS, "websocket") or (typed and typed != (stated or "").rstrip("/"))
        )
        key = self.read_variable(variable) if variable and (ours or not self.is_for_other_users) else None
        return Account(
            base_url,
            key,
            self.timeout_s,
            variable=variable or known.key_variables[0],
            proxy=self.proxy_for(base_url),
            is_trusted_address=ours,
            allow_private=self.allow_private_addresses,
            part_server_key=None if self.is_for_other_users else self.read_variable("COMPATIBLE_API_KEY"),
            list_argument=typed or name,
        )

    def _make_account_of_registered(self, target: Target, account_id: str) -> Account:
        """Return the account of a registered provider: with its own key, sent only where it was meant to go."""
        found, described = self.find_registered_provider(account_id), target.arguments.get("description")
        if found is None:
            raise InvalidInput(
                f"the provider {quote_text(account_id)} is no longer registered; register the provider again, or use "
                "another one"
            )
        now, then = (
            (found.base_url, _make_address_identity(found.description)),
            (target.arguments.get("base_url"), _make_address_identity(described)),
        )
        if now != then or VARIABLES_BY_KIND[found.kind] != VARIABLES_BY_KIND.get(target.provider):
            raise InvalidInput(
                f"the address of the provider {quote_text(account_id)} has changed since the run started, and its key "
                "is not sent to a new address; start a new run"
            )
        known = VARIABLES_BY_KIND[found.kind]
        meant = find_key_destination(found.kind, found.base_url, found.description, found.model)
        asked = find_key_destination(found.kind, found.base_url, found.description, target.model)
        key = found.read_key() if asked is not None and asked == meant else None
        if known.key_required and not key:
            raise AuthenticationFailed(f"{account_id} needs an API key; set the provider's apiKey")
        base_url = found.base_url or known.default_base_url or ""
        return Account(
            base_url,
            key,
            self.timeout_s,
            variable=f"the key of the provider {account_id}",
            proxy=self.proxy_for(base_url),
            is_trusted_address=not (found.base_url or found.kind in (*KINDS_WHOSE_MODEL_IS_ADDRESS, "websocket")),
            allow_private=self.allow_private_addresses,
            list_argument=account_id,
        )

    def list_configured(self) -> list[str]:
        """Return the providers that are ready to use: key or server are set, or not needed.

        Providers of other packages follow the built-in ones; whether they need more is not checked here.
        """
        found = [
            name
            for name, known in VARIABLES_BY_KIND.items()
            if name not in VOICE_AGENT_KINDS_WITH_ACCOUNT
            if any(map(self.read_variable, known.key_variables if known.key_required else known.base_url_variables))
        ]
        return [*found, "local", *(name for name in providers.names() if name not in providers.builtin)]


def _make_address_identity(description: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """Return where a described agent is called, which is also where its key goes."""
    return (description.get("base_url"), description.get("url")) if description else ()
