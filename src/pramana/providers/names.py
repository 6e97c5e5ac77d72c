"""From what a user types to who is asked: a name comes in, a `Target` goes out, and of that an open provider.

A bare name finds its provider by its beginning; `provider:model` says it; a URL with `#model` is a server that speaks
OpenAI's chat completions. A target never holds a key: keys and base URLs are looked up when a provider is opened, by
the names in `VARIABLES`, or by the id under which somebody registered a provider. Nothing here reads the environment,
opens a store or asks anyone.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from pramana.errors import AuthenticationFailed, InvalidInput, did_you_mean, quote
from pramana.model import Provider, Target
from pramana.plugins import Registry
from pramana.providers.destination import AT_THE_MODEL, destination

if TYPE_CHECKING:
    from pramana.providers.http import Account

providers = Registry(
    "provider",
    "pramana.providers",
    {
        "openai": "pramana.providers.text.openai:OpenAI",
        "openai-responses": "pramana.providers.text.responses:Responses",
        "anthropic": "pramana.providers.text.anthropic:Anthropic",
        "google": "pramana.providers.text.google:Google",
        "compatible": "pramana.providers.text.openai:OpenAI",
        "local": "pramana.providers.text.local:Local",
        "fake": "pramana.providers.text.fake:Fake",
        "cascade": "pramana.providers.voice.cascade:Cascade",
        "local-voice": "pramana.providers.voice.cascade:Cascade",
        "fake-voice": "pramana.providers.voice.fake:FakeVoice",
        "openai-realtime": "pramana.providers.voice.realtime:Realtime",
        "gemini-live": "pramana.providers.voice.live:Live",
        "elevenlabs": "pramana.providers.voice.declared:Declared",
        "deepgram": "pramana.providers.voice.declared:Declared",
        "vapi": "pramana.providers.voice.declared:Declared",
        "twilio": "pramana.providers.voice.declared:Declared",
        "pipecat": "pramana.providers.voice.declared:Declared",
        "websocket": "pramana.providers.voice.declared:Declared",
        "python": "pramana.providers.text.function:Function",
        "command": "pramana.providers.text.command:Command",
    },
)
ALIASES: Mapping[str, str] = {
    "opus": "claude-opus-4-6",
    "sonnet": "claude-sonnet-4-6",
    "haiku": "claude-haiku-4-5",
}
ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""What a registered provider may be called: it is typed before a colon."""
BEGINNINGS: Mapping[str, re.Pattern[str]] = {
    "openai": re.compile(r"gpt-|chatgpt-|o[134](-|$)|ft:(gpt-|o[134]-)|text-embedding-"),
    "anthropic": re.compile(r"claude-"),
    "google": re.compile(r"gemini-|gemma-"),
}


@dataclass(frozen=True, slots=True)
class Variables:
    """Which environment variables tell how a provider is reached; of several, the first that is set."""

    keys: tuple[str, ...]
    base_urls: tuple[str, ...]
    base_url: str | None = None
    """The vendor's own; None: there is none to fall back on."""
    key_required: bool = True


VARIABLES: Mapping[str, Variables] = {
    "openai": Variables(("OPENAI_API_KEY",), ("OPENAI_BASE_URL",), "https://api.openai.com/v1"),
    "openai-responses": Variables(("OPENAI_API_KEY",), ("OPENAI_BASE_URL",), "https://api.openai.com/v1"),
    "anthropic": Variables(
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), ("ANTHROPIC_BASE_URL",), "https://api.anthropic.com"
    ),
    "google": Variables(
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        ("GOOGLE_GEMINI_BASE_URL",),
        "https://generativelanguage.googleapis.com",
    ),
    "cascade": Variables(
        ("CASCADE_API_KEY", "OPENAI_API_KEY"),
        ("CASCADE_BASE_URL", "OPENAI_BASE_URL"),
        "https://api.openai.com/v1",
        key_required=False,
    ),
    "openai-realtime": Variables(("OPENAI_API_KEY",), ("OPENAI_BASE_URL",), "https://api.openai.com/v1"),
    "gemini-live": Variables(
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        ("GOOGLE_GEMINI_BASE_URL",),
        "https://generativelanguage.googleapis.com",
    ),
    # Where they are reached stands in their descriptions; a public agent of ElevenLabs needs no key.
    "elevenlabs": Variables(("ELEVENLABS_API_KEY",), ("ELEVENLABS_BASE_URL",), "", key_required=False),
    "deepgram": Variables(("DEEPGRAM_API_KEY",), ("DEEPGRAM_BASE_URL",), ""),
    "vapi": Variables(("VAPI_API_KEY",), ("VAPI_BASE_URL",), ""),
    "twilio": Variables(("TWILIO_AGENT_API_KEY",), ("TWILIO_AGENT_BASE_URL",), "", key_required=False),
    "pipecat": Variables(("PIPECAT_API_KEY",), ("PIPECAT_BASE_URL",), "", key_required=False),
    "websocket": Variables(("WEBSOCKET_API_KEY",), ("WEBSOCKET_BASE_URL",), "", key_required=False),
    # Its own variable: a key of OpenAI's must not travel to whichever server was named.
    "compatible": Variables(("COMPATIBLE_API_KEY",), ("COMPATIBLE_BASE_URL",), key_required=False),
}
CALLED = (
    "cascade", "openai-realtime", "gemini-live", "elevenlabs", "deepgram", "vapi", "twilio", "pipecat", "websocket",
)  # fmt: skip
"""Voice agents that need an account: which there are of them is not asked for."""
WITHOUT_ACCOUNT = ("local", "local-voice", "fake", "fake-voice", "python", "command")
RUNS_CODE = ("python", "command")


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
class Accounts:
    """Where keys, base URLs and commands come from."""

    lookup: Callable[[str], str | None] = field(repr=False)
    """Returns an environment variable. Never shown: what is looked into may hold every key there is."""
    timeout_s: float | None = 120.0
    commands: Mapping[str, CommandLine] = field(default_factory=dict)
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

    def account(self, target: Target) -> "Account | None":
        """Return how the target's provider is reached; None for one that needs no account."""
        name = target.provider
        if name in WITHOUT_ACCOUNT:
            return None
        if (account_id := target.arguments.get("account")) is not None:
            return self._registered(target, str(account_id))
        known = VARIABLES.get(name)
        if known is None:
            stem = re.sub(r"\W+", "_", name.upper())
            known = Variables((f"{stem}_API_KEY",), (f"{stem}_BASE_URL",), "", key_required=False)
        variable = next((each for each in known.keys if self.lookup(each)), None)
        if variable is None and known.key_required:
            raise AuthenticationFailed(f"{name} needs a key, and none is set; set {' or '.join(known.keys)}")
        typed = target.arguments.get("base_url") if name == "compatible" else None
        stated = next((url for each in known.base_urls if (url := self.lookup(each))), known.base_url)
        base_url = typed or stated
        if base_url is None:
            raise InvalidInput(
                f"{quote(target.typed)} does not say which server is meant; write http://HOST:PORT/v1#{target.model}, "
                f"or set {known.base_urls[0]}"
            )
        from pramana.providers.http import Account

        ours = not (name in (*AT_THE_MODEL, "websocket") or (typed and typed != (stated or "").rstrip("/")))
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
        )

    def _registered(self, target: Target, account_id: str) -> "Account":
        """Return how a registered provider is reached: with its own key, and only where that was meant to go."""
        found, described = self.registered(account_id), target.arguments.get("description")
        if found is None:
            raise InvalidInput(f"no provider {quote(account_id)} is registered any more; register it, or ask another")
        now, then = (
            (found.base_url, _address(found.description)),
            (target.arguments.get("base_url"), _address(described)),
        )
        if now != then or VARIABLES[found.kind] != VARIABLES.get(target.provider):
            raise InvalidInput(
                f"the provider {quote(account_id)} is now at another address than recorded, and its key goes to no "
                "other; start a new run with it"
            )
        from pramana.providers.http import Account

        known = VARIABLES[found.kind]
        meant = destination(found.kind, found.base_url, found.description, found.model)
        asked = destination(found.kind, found.base_url, found.description, target.model)
        key = found.unlock() if asked is not None and asked == meant else None
        if known.key_required and not key:
            raise AuthenticationFailed(f"{account_id} needs a key, and none is set; give the provider one: apiKey")
        base_url = found.base_url or known.base_url or ""
        return Account(
            base_url,
            key,
            self.timeout_s,
            variable=f"the key of the provider {account_id}",
            proxy=self.proxy_for(base_url),
            ours=not (found.base_url or found.kind in (*AT_THE_MODEL, "websocket")),
            allow_private=self.allow_private,
        )

    def configured(self) -> list[str]:
        """Return the providers that can be asked as things are: key or server are set, or not needed.

        Those of other packages come after the built-in ones; what they need besides is theirs to say.
        """
        found = [
            name
            for name, known in VARIABLES.items()
            if name not in CALLED
            if any(map(self.lookup, known.keys if known.key_required else known.base_urls))
        ]
        return [*found, "local", *(name for name in providers.names() if name not in providers.builtin)]


def resolve(
    typed: str,
    *,
    commands: Mapping[str, CommandLine] | None = None,
    registered: Lookup | None = None,
    for_others: bool = False,
) -> Target:
    """Return who is meant by what a user typed; raises `InvalidInput` with what to type instead.

    A provider that is registered stands before what this machine is set up with. What runs code of this machine, or
    reads its files, only its own user can name.

    >>> resolve("gpt-5")
    Target(typed='gpt-5', provider='openai', model='gpt-5', arguments={})
    >>> resolve("opus").model
    'claude-opus-4-6'
    """
    typed = typed.strip()
    if for_others:
        _refuse_ours(typed)
    name, _, model = typed.partition(":")
    if registered and name not in providers.builtin and (found := _look_up(registered, name)):
        return _through(found, typed, model)
    target = _of_kind(typed, commands or {})
    if registered and "base_url" not in target.arguments:
        for kind in (target.provider, *_same_vendor(target.provider)):
            if found := _look_up(registered, kind):
                return replace(target, arguments={**target.arguments, **_reached(found)})
    return target


def _same_vendor(kind: str) -> list[str]:
    """Return the other kinds that are reached by the same key at the same address."""
    known = VARIABLES.get(kind)
    return [other for other, theirs in VARIABLES.items() if other != kind and theirs == known]


def _look_up(registered: Lookup, name: str) -> Registered | None:
    return registered(name) if ID.fullmatch(name) else None


def _through(found: Registered, typed: str, model: str) -> Target:
    """Return the target that is reached by a registered provider."""
    model = model or found.model or ""
    if found.kind == "websocket":
        if not model and "{model" in str(found.description):
            raise InvalidInput(f"{quote(typed)} names no model, and the agent is asked for one; write {found.id}:MODEL")
        target = Target(typed, found.kind, model or found.id, {"description": found.description})
    elif not model and found.kind not in WITHOUT_ACCOUNT:
        raise InvalidInput(f"{quote(typed)} names no model; write {found.id}:MODEL")
    else:
        target = replace(_of_kind(f"{found.kind}:{model}" if model else found.kind, {}), typed=typed)
    return replace(target, arguments={**target.arguments, **_reached(found)})


def _reached(found: Registered) -> dict[str, Any]:
    """Return what a target records of the provider it is reached by: enough to find its key again, and no key."""
    if found.kind in WITHOUT_ACCOUNT:
        return {}
    return {"account": found.id, **({"base_url": found.base_url} if found.base_url else {})}


def _address(description: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """Return where a described agent is called, and so where its key goes."""
    return (description.get("base_url"), description.get("url")) if description else ()


def _refuse_ours(typed: str) -> None:
    name = typed.partition(":")[0]
    if name in RUNS_CODE or (name in providers and name not in providers.builtin):
        raise InvalidInput(f"{quote(typed)} runs code on this machine, which only its own command line may")
    if name == "websocket":
        raise InvalidInput(
            f"{quote(typed)} reads a file of this machine, which only its own command line may; register the agent as "
            "a provider of the kind websocket"
        )


def _of_kind(typed: str, commands: Mapping[str, CommandLine]) -> Target:
    """Return who is meant, as far as the name alone tells."""
    if re.match(r"https?://", typed):
        return _at_url(typed)
    if typed in ALIASES:
        return Target(typed, "anthropic", ALIASES[typed])
    name, colon, model = typed.partition(":")
    if not (colon and name in providers.builtin):
        for vendor, beginning in BEGINNINGS.items():
            if beginning.match(typed):
                return Target(typed, vendor, typed)
    match name:
        case "fake":
            from pramana.providers.text.fake import parse

            arguments = parse(model)
            return Target(typed, name, arguments.get("answer", "words"), arguments)
        case "fake-voice":
            from pramana.providers.voice.fake import parse as parse_voice

            arguments = parse_voice(model)
            return Target(typed, name, arguments.get("answer", "words"), arguments)
        case "cascade":
            from pramana.providers.voice.cascade import parse as parse_parts

            arguments = parse_parts(model)
            return Target(typed, name, arguments["chat"], arguments)
        case "local" | "local-voice":
            return Target(typed, name, model or "local")
        case "python" if colon:
            module, _, function = model.partition(":")
            if not module or not function:
                raise InvalidInput(f"{quote(typed)} names no function; write python:package.module:function")
        case "command" if colon:
            return _command(typed, model, commands)
        case "anthropic":
            model = ALIASES.get(model, model)
        case "twilio" | "pipecat" if re.search(r"[?@]", model):
            raise InvalidInput(
                f"the address of {name} holds a user, a password or a query, and addresses are stored; leave them out"
            )
    if not colon or name not in providers:
        raise _unknown(typed)
    if not model:
        raise InvalidInput(f"{quote(typed)} names no model; write {name}:MODEL, and see what there is: pramana models")
    return Target(typed, name, model)


def resolve_embedder(typed: str, *, registered: Lookup | None = None, for_others: bool = False) -> Target:
    """Return who is meant, once it is sure that they embed; raises `InvalidInput` with what to type instead."""
    target = resolve(typed, registered=registered, for_others=for_others)
    if not hasattr(providers.load(target.provider), "embed"):
        raise InvalidInput(
            f"{quote(typed)} cannot embed: {target.provider} is not asked for embeddings here; name one of OpenAI "
            "(openai:text-embedding-3-small) or of a compatible server (http://HOST:PORT/v1#MODEL)"
        )
    return target


def is_called(target: Target) -> bool:
    """Tell whether a target is a voice agent: it is called, and cannot be written to."""
    return hasattr(providers.load(target.provider), "dial")


def open_provider(target: Target, accounts: Accounts) -> Provider:
    """Return the provider of a target, ready to be asked; whoever opens closes.

    Every provider is opened alike: what is registered has `open(target, account)`.
    """
    name = target.provider
    if not accounts.code and (name in RUNS_CODE or name not in providers.builtin):
        raise InvalidInput(f"{quote(target.typed)} runs code on this machine, which only its own command line may")
    if name == "command":
        # A stored target must not make this machine run what its configuration does not name.
        configured = _command(target.typed, target.model, accounts.commands)
        if list(target.arguments.get("argv", ())) != configured.arguments["argv"]:
            raise InvalidInput(
                f"the command {quote(target.model)} is now another than recorded; start a new run with it"
            )
    opener = getattr(providers.load(name), "open", None)
    if opener is None:
        raise InvalidInput(f"the provider {quote(name)} has no open(target, account), so it cannot be opened")
    provider: Provider = opener(target, accounts.account(target))
    return provider


def _at_url(typed: str) -> Target:
    address, _, model = typed.partition("#")
    base_url = checked_url(address, "write http://HOST:PORT/v1#MODEL", "set COMPATIBLE_API_KEY")
    if not model:
        raise InvalidInput(f"{quote(typed)} names no model; write {base_url}#MODEL")
    return Target(typed, "compatible", model, {"base_url": base_url})


def checked_url(address: str, write: str, instead: str) -> str:
    """Return the address of a server that may be stored; raises `InvalidInput` for one that may hold a secret."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if not parts.hostname:
        raise InvalidInput(f"the address of the server is no URL; {write}")
    if parts.username or parts.password or parts.query:
        raise InvalidInput(
            f"the address of {parts.hostname} holds a user, a password or a query, and addresses are stored; "
            f"leave them out and {instead}"
        )
    return address.rstrip("/")


def _command(typed: str, name: str, commands: Mapping[str, CommandLine]) -> Target:
    if (found := commands.get(name)) is None:
        hint = did_you_mean(name, commands)
        known = f"; there are {', '.join(sorted(commands))}" if commands else "; there is none"
        raise InvalidInput(f"{quote(typed)}: no command of this name stands in the local configuration{hint}{known}")
    return Target(typed, "command", name, {"argv": list(found.argv), "timeout_s": found.timeout_s})


def _unknown(typed: str) -> InvalidInput:
    from pramana.providers.prices import published_models

    name, colon, model = typed.partition(":")
    hint = did_you_mean(name, providers.names()) if colon else did_you_mean(typed, [*ALIASES, *providers.names()])
    hint = hint or ("" if colon else did_you_mean(typed, published_models()))
    found = f"no provider is called {quote(name)}" if colon else f"no provider is known for {quote(typed)}"
    return InvalidInput(
        f"{found}{hint}; name one explicitly, as in openai:{model or typed or 'MODEL'} (there are "
        f"{', '.join(providers.names())}), or give a server: http://HOST:PORT/v1#{typed or 'MODEL'}"
    )
