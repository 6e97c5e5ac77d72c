"""What may be registered as a provider through a server: an id, a kind and what is said of it come in, checked.

Providers that run code exist only in the local configuration of a machine. Nothing here stores anything, asks anyone or
sees a key.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pramana.errors import InvalidInput, Problem, did_you_mean, quote
from pramana.providers.accounts import Registered
from pramana.providers.destination import AT_THE_MODEL, said_by_callers
from pramana.providers.kinds import (
    ALIASES,
    BEGINNINGS,
    ID,
    RUNS_CODE,
    VARIABLES,
    WITHOUT_ACCOUNT,
    checked_url,
    providers,
)
from pramana.providers.names import resolve

KINDS = tuple(name for name in providers.builtin if name not in RUNS_CODE)
LONGEST = 2_000
"""Characters of an address or of a model's name."""


def checked(
    provider_id: str,
    kind: str,
    *,
    base_url: str | None = None,
    model: str | None = None,
    description: Mapping[str, Any] | None = None,
    has_key: bool = False,
) -> Registered:
    """Return a provider that may be registered; raises `InvalidInput` with what to say instead."""
    if kind not in KINDS:
        if kind in providers:
            raise _wrong(
                "kind",
                f"providers of the kind {quote(kind)} run code, so they exist only in the local configuration of a "
                "machine, never through a server",
            )
        known = f"there are {', '.join(KINDS)}"
        raise _wrong("kind", f"there is no kind {quote(kind)}{did_you_mean(kind, KINDS)}; {known}")
    _check_id(provider_id, kind)
    if kind in WITHOUT_ACCOUNT and (base_url or has_key):
        where = "baseUrl" if base_url else "apiKey"
        raise _wrong(where, f"{kind} asks nobody, so it takes neither an address nor a key; leave them out")
    if base_url is not None:
        base_url = _checked_address(base_url, kind)
    elif kind == "compatible":
        raise _wrong("baseUrl", "a compatible server needs its address: baseUrl, as in https://HOST/v1")
    if (description is not None) != (kind == "websocket"):
        which = "needs its description: arguments.description" if kind == "websocket" else "takes no description"
        raise _wrong("arguments.description", f"a provider of the kind {kind} {which}")
    if model is not None and (not model.strip() or len(model) > LONGEST):
        raise _wrong("arguments.model", f"a model's name has 1 to {LONGEST:,} characters")
    if has_key and kind in AT_THE_MODEL and model is None:
        raise _wrong(
            "arguments.model",
            f"the address of {kind} is its model, and a key goes only where it was meant to; say where: "
            "arguments.model",
        )
    if has_key and description is not None:
        _check_host(said_by_callers(description, base_url), model)
    if model is not None and kind != "websocket":
        try:
            resolve(f"{kind}:{model}", for_others=True)
        except InvalidInput as error:
            raise _wrong("arguments.model", str(error)) from None
    return Registered(provider_id, kind, base_url, model, description)


def _check_host(named: frozenset[str], model: str | None) -> None:
    """Refuse a key where whoever calls would say to which host it goes."""
    if others := sorted(named - {"model"}):
        raise _wrong(
            "arguments.description",
            f"{{{others[0]}}} decides the host of the agent's url, and a key goes only where it was meant to; write "
            "the host as it is, or {base_url} or {model}",
        )
    if named and model is None:
        raise _wrong(
            "arguments.model",
            "{model} decides the host of the agent's url, and a key goes only where it was meant to; say where: "
            "arguments.model",
        )


def _check_id(provider_id: str, kind: str) -> None:
    if not ID.fullmatch(provider_id):
        raise _wrong(
            "id",
            "an id is 1 to 64 small letters, digits, dots, hyphens and underscores, such as my-vllm; found "
            f"{quote(provider_id)}",
        )
    if provider_id == kind and kind not in (*WITHOUT_ACCOUNT, "websocket"):
        return
    taken = provider_id in providers or provider_id in ALIASES or provider_id in ("http", "https", "ft")
    if taken or any(beginning.match(provider_id) for beginning in BEGINNINGS.values()):
        raise _wrong(
            "id",
            f"{quote(provider_id)} already means something else where a model is typed; choose another id, such as "
            f"my-{provider_id[:61]}",
        )


def _checked_address(base_url: str, kind: str) -> str:
    calls = VARIABLES[kind].base_url == ""
    schemes = ("http", "https", "ws", "wss") if calls else ("http", "https")
    if len(base_url) > LONGEST or not base_url.isprintable() or " " in base_url or "#" in base_url:
        raise _wrong("baseUrl", "baseUrl is no address of a server; write https://HOST/PATH")
    try:
        found = checked_url(base_url, "write baseUrl as https://HOST/PATH", "send the key as apiKey")
    except InvalidInput as error:
        raise _wrong("baseUrl", str(error)) from None
    if urlsplit(found).scheme not in schemes:
        said = f"baseUrl begins with {quote(urlsplit(found).scheme)}; expected {' or '.join(schemes)}"
        raise _wrong("baseUrl", said)
    return found


def _wrong(field: str, message: str) -> InvalidInput:
    """Return what is wrong with one field, so that whoever filled it in is told there."""
    return InvalidInput(message, [Problem(message, field)])
