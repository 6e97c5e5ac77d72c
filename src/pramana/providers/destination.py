"""Where the key of a registered provider goes: what is registered and a model come in, addresses and origins go out.

Whoever starts a run names the model, and may not say by it where a key goes: that is given only where the destination
of the model that is asked is that of the one that was registered. Nothing here asks anyone or sees a key.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote as percent

from pramana.providers.voice.templates import BadTemplate, as_text, parts_of

AT_THE_MODEL = ("twilio", "pipecat")
"""Their model is the address that is called."""
Origin = tuple[str, str, int | None]
_HOST_IS_SAID = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]+[/?#]")
"""Whatever follows belongs to a path."""


def destination(
    kind: str, base_url: str | None, description: Mapping[str, Any] | None, model: str | None
) -> tuple[Any, ...] | None:
    """Return where the key of a provider goes when a model is asked; None where nobody can tell.

    Of a described agent it is the origins of what is asked before a call and of the call; of one whose address is its
    model that address; of any other the server's, None being the vendor's own.

    >>> destination("websocket", None, {"url": "wss://{model}/talk"}, "agent.example")
    (('wss', 'agent.example', 443), ('wss', 'agent.example', 443))
    """
    if kind in AT_THE_MODEL:
        return base_url, model
    if kind != "websocket" or description is None:
        return (base_url,)
    base = base_url or str(description.get("base_url") or "")
    url = str(description.get("url") or "{base_url}")  # without one, what is asked before says where the call is
    called, named = _up_to_the_path(url, base, model)
    if named - {"model"} or (named and model is None):
        return None
    origins = tuple(_origin(each) for each in (base or called, called))
    return None if None in origins else origins


def said_by_callers(description: Mapping[str, Any], base_url: str | None) -> frozenset[str]:
    """Return the names of what decides the host of a described agent besides its base URL: whoever calls says them.

    >>> said_by_callers({"url": "wss://{model}.example/{voice|none}"}, None)
    frozenset({'model'})
    """
    base = base_url or str(description.get("base_url") or "")
    return _up_to_the_path(str(description.get("url") or ""), base, None)[1]


def _up_to_the_path(url: str, base_url: str, model: str | None) -> tuple[str, frozenset[str]]:
    """Return an address as a call would write it, at least up to its path, and the names that stand before that."""
    made, named = "", set()
    values = {"base_url": base_url.partition("?")[0].rstrip("/"), "model": "x" if model is None else model}
    try:
        parts = parts_of(url)
    except BadTemplate:
        return "", frozenset({"?"})
    for part in parts:
        if isinstance(part, str):
            made += part
            continue
        if _HOST_IS_SAID.match(made):
            break
        if part.name != "base_url":
            named.add(part.name)
        value = as_text(values.get(part.name, "x"))
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
