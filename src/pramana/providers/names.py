"""From what a user types to a provider: a name comes in, a `Target` goes out, and from that an open provider.

A bare name is matched to its provider by prefix; `provider:model` is explicit; a URL with `#model` is a server that
speaks OpenAI's chat completions. A target never holds a key: keys and base URLs are looked up when a provider is opened
(`accounts.py`). Nothing here reads the environment, opens a store or sends a request.
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from pramana import settings
from pramana.errors import Hint, InvalidInput, Problem, escape_control_characters, quote_text, suggest_similar
from pramana.model import Provider, Target
from pramana.providers.accounts import (
    KINDS_WHOSE_MODEL_IS_ADDRESS,
    Accounts,
    CommandLine,
    FindRegistered,
    RegisteredProvider,
    find_host_deciding_names,
)
from pramana.providers.kinds import (
    CODE_RUNNING_KINDS,
    KINDS_WITHOUT_ACCOUNT,
    MODEL_ALIASES,
    MODEL_PREFIXES,
    PROVIDER_ID_RE,
    VARIABLES_BY_KIND,
    check_url,
    providers,
)


def resolve_target(
    typed_model: str,
    *,
    commands: Mapping[str, CommandLine] | None = None,
    find_registered_provider: FindRegistered | None = None,
    is_for_other_users: bool = False,
) -> Target:
    """Return the target for what a user typed; raise `InvalidInput` with what to type instead.

    A registered provider takes precedence over this machine's configuration. Only the machine's own user can name what
    runs code on it or reads its files.

    >>> resolve_target("gpt-5")
    Target(typed='gpt-5', provider='openai', model='gpt-5', arguments={})
    >>> resolve_target("opus").model
    'claude-opus-4-6'
    """
    typed_model = typed_model.strip()
    if is_for_other_users:
        _refuse_local_code_or_file(typed_model)
    name, _, model = typed_model.partition(":")
    if (
        find_registered_provider
        and name not in providers.builtin
        and (found := _find_registered_by_id(find_registered_provider, name))
    ):
        return _target_of_registered(found, typed_model, model)
    target = _target_by_name_alone(typed_model, commands or {})
    if find_registered_provider and "base_url" not in target.arguments:
        known = VARIABLES_BY_KIND.get(target.provider)
        same_vendor = [
            other for other, theirs in VARIABLES_BY_KIND.items() if other != target.provider and theirs == known
        ]
        for kind in (target.provider, *same_vendor):  # they share its key and address
            if found := _find_registered_by_id(find_registered_provider, kind):
                return replace(target, arguments={**target.arguments, **_make_registered_arguments(found)})
    return target


def _find_registered_by_id(find_registered_provider: FindRegistered, name: str) -> RegisteredProvider | None:
    return find_registered_provider(name) if PROVIDER_ID_RE.fullmatch(name) else None


def _target_of_registered(registered: RegisteredProvider, typed_model: str, model: str) -> Target:
    """Return the target of a registered provider."""
    model = model or registered.model or ""
    if registered.kind == "websocket":
        if not model and "{model" in str(registered.description):
            raise InvalidInput(
                f"{quote_text(typed_model)} lacks a model, which this agent needs; write {registered.id}:MODEL"
            )
        target = Target(typed_model, registered.kind, model or registered.id, {"description": registered.description})
    elif not model and registered.kind not in KINDS_WITHOUT_ACCOUNT:
        raise InvalidInput(f"{quote_text(typed_model)} lacks a model; write {registered.id}:MODEL")
    else:
        target = replace(
            _target_by_name_alone(f"{registered.kind}:{model}" if model else registered.kind, {}), typed=typed_model
        )
    return replace(target, arguments={**target.arguments, **_make_registered_arguments(registered)})


def _make_registered_arguments(registered: RegisteredProvider) -> dict[str, Any]:
    """Return what a target records about its registered provider: enough to find its key again, but never the key."""
    if registered.kind in KINDS_WITHOUT_ACCOUNT:
        return {}
    return {"account": registered.id, **({"base_url": registered.base_url} if registered.base_url else {})}


def _refuse_local_code_or_file(typed_model: str) -> None:
    name = typed_model.partition(":")[0]
    if name in CODE_RUNNING_KINDS or (name in providers and name not in providers.builtin):
        raise InvalidInput(f"{quote_text(typed_model)} runs code on this machine, which only the command line allows")
    if name == "websocket":
        raise InvalidInput(
            f"{quote_text(typed_model)} reads a file on this machine, which only the command line allows; register the "
            "agent "
            "as "
            "a provider of the kind websocket"
        )


def _target_by_name_alone(typed_model: str, commands: Mapping[str, CommandLine]) -> Target:
    """Return the target as far as the name alone determines it."""
    if re.match(r"https?://", typed_model):
        return _target_at_url(typed_model)
    if typed_model in MODEL_ALIASES:
        return Target(typed_model, "anthropic", MODEL_ALIASES[typed_model])
    name, colon, model = typed_model.partition(":")
    if not (colon and name in providers.builtin):
        for vendor, beginning in MODEL_PREFIXES.items():
            if beginning.match(typed_model):
                return Target(typed_model, vendor, typed_model)
    match name:
        case "fake":
            from pramana.providers.text.fake import parse_fake

            arguments = parse_fake(model)
            return Target(typed_model, name, arguments.get("answer", "words"), arguments)
        case "fake-voice":
            from pramana.providers.voice.fake import parse_fake_voice as parse_voice

            arguments = parse_voice(model)
            return Target(typed_model, name, arguments.get("answer", "words"), arguments)
        case "cascade":
            from pramana.providers.voice.cascade import parse_cascade as parse_parts

            arguments = parse_parts(model)
            return Target(typed_model, name, arguments["chat"], arguments)
        case "local" | "local-voice":
            return Target(typed_model, name, model or "local")
        case "python" if colon:
            module, _, function = model.partition(":")
            if not module or not function:
                raise InvalidInput(f"{quote_text(typed_model)} lacks a function; write python:package.module:function")
        case "command" if colon:
            return _target_of_command(typed_model, model, commands)
        case "anthropic":
            model = MODEL_ALIASES.get(model, model)
        case "twilio" | "pipecat" if re.search(r"[?@]", model):
            raise InvalidInput(
                f"the address of {name} contains a user, a password or a query, and addresses are stored; remove them"
            )
    if not colon or name not in providers:
        raise _make_unknown_model_error(typed_model)
    if not model:
        raise InvalidInput(
            f"{quote_text(typed_model)} lacks a model; write {name}:MODEL", hint=Hint("list_models", name)
        )
    return Target(typed_model, name, model)


def resolve_embedder(
    typed_model: str, *, find_registered_provider: FindRegistered | None = None, is_for_other_users: bool = False
) -> Target:
    """Return the target if it can embed; raise `InvalidInput` with what to type instead."""
    target = resolve_target(
        typed_model, find_registered_provider=find_registered_provider, is_for_other_users=is_for_other_users
    )
    if not hasattr(providers.load(target.provider), "embed"):
        raise InvalidInput(
            f"{quote_text(typed_model)} is not an embedding model: {target.provider} is not supported for embeddings; "
            "choose "
            "one from OpenAI (openai:text-embedding-3-small) or of a compatible server (http://HOST:PORT/v1#MODEL)"
        )
    return target


def is_voice_agent(target: Target) -> bool:
    """Return whether a target is a voice agent, which is called and cannot take a text prompt."""
    return hasattr(providers.load(target.provider), "dial")


def open_provider(target: Target, accounts: Accounts) -> Provider:
    """Return the provider of a target, ready for requests; the caller closes it.

    Every registered kind is opened in the same way: `open(target, account)`.
    """
    name = target.provider
    if not accounts.may_run_code and (name in CODE_RUNNING_KINDS or name not in providers.builtin):
        raise InvalidInput(f"{quote_text(target.typed)} runs code on this machine, which only the command line allows")
    if name == "command":
        # A stored target must not make this machine run a command that its configuration does not name.
        configured = _target_of_command(target.typed, target.model, accounts.commands)
        if list(target.arguments.get("argv", ())) != configured.arguments["argv"]:
            raise InvalidInput(
                f"the command {quote_text(target.model)} has changed since the run started; start a new run with it"
            )
    if name == "python" and (function := accounts.functions.models_by_path.get(target.model)):
        from pramana.providers.text.function import FunctionProvider

        return FunctionProvider(target.model, function, accounts.functions.loop)
    opener = getattr(providers.load(name), "open", None)
    if opener is None:
        raise InvalidInput(
            f"the provider {quote_text(name)} lacks the function open(target, account) and cannot be used"
        )
    provider: Provider = opener(target, accounts.find_account(target))
    return provider


def _target_at_url(typed_url: str) -> Target:
    address, _, model = typed_url.partition("#")
    base_url = check_url(address, "write http://HOST:PORT/v1#MODEL", "set COMPATIBLE_API_KEY")
    if not model:
        raise InvalidInput(f"{quote_text(typed_url)} lacks a model; write {base_url}#MODEL")
    return Target(typed_url, "compatible", model, {"base_url": base_url})


def _target_of_command(typed_model: str, name: str, commands: Mapping[str, CommandLine]) -> Target:
    if (found := commands.get(name)) is None:
        table = f"[commands.{name if re.fullmatch('[A-Za-z0-9_-]+', name) else json.dumps(name)}]"
        known = f"; configured: {', '.join(sorted(commands))}" if commands else ""
        raise InvalidInput(
            f"{quote_text(typed_model)}: no command {quote_text(name)} in {settings.data_folder() / 'config.toml'}"
            f"{suggest_similar(name, commands)}{known}. To add it, write there:\n"
            f'{escape_control_characters(table)}\nargv = ["/path/to/program", "argument"]'
        )
    return Target(typed_model, "command", name, {"argv": list(found.argv), "timeout_s": found.timeout_s})


def _make_unknown_model_error(typed_model: str) -> InvalidInput:
    from pramana.providers.prices import list_published_models

    name, colon, model = typed_model.partition(":")
    known = providers.names() if colon else [*MODEL_ALIASES, *providers.names()]
    near = suggest_similar(name, known, MIN_SUGGESTION_SIMILARITY) or (
        "" if colon else suggest_similar(typed_model, list_published_models(), MIN_SUGGESTION_SIMILARITY)
    )
    found = f"unknown provider {quote_text(name)}" if colon else f"unknown model {quote_text(typed_model)}"
    called = (model if colon else typed_model) or "MODEL"
    return InvalidInput(
        f"{found}{near}; name a model with its provider, as in openai:{called}, or with its server: "
        f"http://HOST:PORT/v1#{called} (providers: {', '.join(providers.names())})",
        hint=Hint("name_model"),
    )


MIN_SUGGESTION_SIMILARITY = 0.7
"""Similarity from which a word is suggested: "nope" and "openai" are at 0.6."""
REGISTRABLE_KINDS = tuple(name for name in providers.builtin if name not in CODE_RUNNING_KINDS)
MAX_ADDRESS_OR_MODEL_LENGTH = 2_000
"""Maximum length of an address or a model's name, in characters."""


def check_provider_registration(
    provider_id: str,
    kind: str,
    *,
    base_url: str | None = None,
    model: str | None = None,
    description: Mapping[str, Any] | None = None,
    has_key: bool = False,
) -> RegisteredProvider:
    """Return a provider that may be registered; raise `InvalidInput` with what to correct."""
    if kind not in REGISTRABLE_KINDS:
        if kind in providers:
            raise _make_field_error(
                "kind",
                f"providers of the kind {quote_text(kind)} run code, so they exist only in the local configuration of "
                "a "
                "machine, never through a server",
            )
        known = f"known kinds: {', '.join(REGISTRABLE_KINDS)}"
        raise _make_field_error(
            "kind", f"unknown kind {quote_text(kind)}{suggest_similar(kind, REGISTRABLE_KINDS)}; {known}"
        )
    _check_id(provider_id, kind)
    if kind in KINDS_WITHOUT_ACCOUNT and (base_url or has_key):
        where = "baseUrl" if base_url else "apiKey"
        raise _make_field_error(
            where, f"providers of the kind {kind} call no server and take neither an address nor a key; remove both"
        )
    if base_url is not None:
        base_url = _check_base_url(base_url, kind)
    elif kind == "compatible":
        raise _make_field_error("baseUrl", "a compatible server needs a baseUrl, such as https://HOST/v1")
    if (description is not None) != (kind == "websocket"):
        which = "needs its description: arguments.description" if kind == "websocket" else "takes no description"
        raise _make_field_error("arguments.description", f"a provider of the kind {kind} {which}")
    if model is not None and (not model.strip() or len(model) > MAX_ADDRESS_OR_MODEL_LENGTH):
        raise _make_field_error(
            "arguments.model", f"a model's name has 1 to {MAX_ADDRESS_OR_MODEL_LENGTH:,} characters"
        )
    if has_key and kind in KINDS_WHOSE_MODEL_IS_ADDRESS and model is None:
        raise _make_field_error(
            "arguments.model",
            f"for the kind {kind}, the model is the address, and a key is only sent to one fixed address; set "
            "arguments.model",
        )
    if has_key and description is not None:
        _refuse_caller_chosen_host(find_host_deciding_names(description, base_url), model)
    if model is not None and kind != "websocket":
        try:
            resolve_target(f"{kind}:{model}", is_for_other_users=True)
        except InvalidInput as error:
            raise _make_field_error("arguments.model", str(error)) from None
    return RegisteredProvider(provider_id, kind, base_url, model, description)


def _refuse_caller_chosen_host(host_deciding_names: frozenset[str], model: str | None) -> None:
    """Refuse a key if the caller of a model would choose the host it is sent to."""
    if others := sorted(host_deciding_names - {"model"}):
        raise _make_field_error(
            "arguments.description",
            f"{{{others[0]}}} would choose the host in the agent's url, and a key is only sent to one fixed host; "
            f"write the host itself, {{base_url}} or {{model}}",
        )
    if host_deciding_names and model is None:
        raise _make_field_error(
            "arguments.model",
            "{model} would choose the host in the agent's url, and a key is only sent to one fixed host; set "
            "arguments.model",
        )


def _check_id(provider_id: str, kind: str) -> None:
    if not PROVIDER_ID_RE.fullmatch(provider_id):
        raise _make_field_error(
            "id",
            "an id is 1 to 64 lowercase letters, digits, dots, hyphens and underscores, such as my-vllm; found "
            f"{quote_text(provider_id)}",
        )
    if provider_id == kind and kind not in (*KINDS_WITHOUT_ACCOUNT, "websocket"):
        return
    taken = provider_id in providers or provider_id in MODEL_ALIASES or provider_id in ("http", "https", "ft")
    if taken or any(beginning.match(provider_id) for beginning in MODEL_PREFIXES.values()):
        raise _make_field_error(
            "id",
            f"{quote_text(provider_id)} is reserved as a name of providers or models; choose another id, such as "
            f"my-{provider_id[:61]}",
        )


def _check_base_url(base_url: str, kind: str) -> str:
    calls = VARIABLES_BY_KIND[kind].default_base_url == ""
    schemes = ("http", "https", "ws", "wss") if calls else ("http", "https")
    if len(base_url) > MAX_ADDRESS_OR_MODEL_LENGTH or not base_url.isprintable() or " " in base_url or "#" in base_url:
        raise _make_field_error("baseUrl", "baseUrl is not a server URL; write https://HOST/PATH")
    try:
        found = check_url(base_url, "write baseUrl as https://HOST/PATH", "send the key as apiKey")
    except InvalidInput as error:
        raise _make_field_error("baseUrl", str(error)) from None
    if urlsplit(found).scheme not in schemes:
        said = f"baseUrl begins with {quote_text(urlsplit(found).scheme)}; expected {' or '.join(schemes)}"
        raise _make_field_error("baseUrl", said)
    return found


def _make_field_error(field: str, message: str) -> InvalidInput:
    """Return the error for one field, so that a form can show it there."""
    return InvalidInput(message, [Problem(message, field)])
