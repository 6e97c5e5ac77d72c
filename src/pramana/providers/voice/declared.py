"""Any voice agent behind a WebSocket that a description covers: a target comes in, an open call goes out.

The description is plain data in the target, or ships with Pramana under the provider's name; `load/agent.py` parses it
from YAML. A request before the call, if there is one, uses the HTTP seam, the call itself the WebSocket seam. A key
goes only to the host it belongs to, never to another host that a response names.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from yarl import URL

from pramana.errors import AuthenticationFailed, InvalidInput, Rejected, escape_control_characters, quote_text
from pramana.model import Target
from pramana.providers.accounts import Account
from pramana.providers.failures import MAX_MESSAGE_LENGTH
from pramana.providers.http import HttpTransport, VendorProvider
from pramana.providers.reading import WholeResponseReader
from pramana.providers.voice.declared_wire import DeclaredWire
from pramana.providers.voice.description import Description, DialRequest, find_description_problems
from pramana.providers.voice.socket import SocketChannel, connect
from pramana.providers.voice.templates import (
    MissingValue,
    fill_template,
    fill_url,
    find_at_path,
    find_placeholder_names,
    parse_path,
)
from pramana.providers.voice.vocabulary import CallSetup, VoiceCapabilities

SHIPPED_DESCRIPTIONS_FILE = Path(__file__).parents[2] / "agents" / "shipped.json"
"""The ready-made files of `agents/` as plain data, so that a call needs no YAML parser."""


class DeclaredProvider(VendorProvider):
    """An agent and its account. Implements `VoiceProvider`."""

    capabilities = VoiceCapabilities()

    def __init__(self, given: Description, account: Account) -> None:
        self._description = given
        self._http = HttpTransport(given.name, account)

    @classmethod
    def open(cls, target: Target, account: Account | None) -> "DeclaredProvider":
        """Return the provider for a target with a `description` argument, or a description that ships with Pramana."""
        plain = target.arguments.get("description")
        given = load_shipped_description(target.provider) if plain is None else parse_description(plain)
        account = account or Account("")
        base_url = account.base_url or given.base_url or _make_agent_url(given, target.model, account.key)
        return cls(given, replace(account, base_url=re.sub("^ws", "http", base_url)))

    async def dial(self, setup: CallSetup) -> SocketChannel:
        """Open a call and return it once it is ready."""
        given, account = self._description, self._http.account
        used = find_template_names(given)
        if setup.system_prompt and "system_prompt" not in used:
            raise Rejected(
                f"{given.name} has its own system prompt and accepts no other; remove yours", parameter="system_prompt"
            )
        values = {
            "model": setup.model,
            "base_url": account.base_url.partition("?")[0].rstrip("/"),
            "key": account.key,
            "system_prompt": setup.system_prompt or None,
            "language": setup.language,
            "voice": setup.parameters.get("voice"),
            "parameters": setup.parameters,
            "call_id": uuid4().hex,
        }
        answer = None
        if given.dial and (given.dial.when == "always" or account.key):
            answer = await self._send_dial_request(given.dial, values)
            named = find_at_path(answer, parse_path(given.dial.socket))
            if not isinstance(named, str):
                raise self._http.failures.make_broken_reply(f"has no call address at {given.dial.socket}")
            url = self._parse_address(named)
        else:
            url = self._parse_address(fill_url(given.url, values))
        http, headers = self._http, self._fill_headers(given.headers, values)
        if answer is not None and url.origin() != URL(re.sub("^http", "ws", account.base_url)).origin():
            # An address from a response is untrusted: neither the key nor the account's own headers go there.
            http = HttpTransport(
                given.name,
                replace(
                    account,
                    base_url=re.sub("^ws", "http", str(url.with_query(None))),
                    headers={},
                    is_trusted_address=False,
                ),
            )
            http.failures.secrets = self._http.failures.secrets
            open_to_all = {
                name: value for name, value in given.headers.items() if "key" not in find_placeholder_names(value)
            }
            headers = self._fill_headers(open_to_all, values)
        wire = DeclaredWire(given, values, answer)
        return await connect(http, str(url), headers, wire)

    async def models(self) -> list[str]:
        """Return nothing: a description does not list agents."""
        return []

    async def _send_dial_request(self, dial_request: DialRequest, values: Mapping[str, Any]) -> Any:
        path, headers = fill_url(dial_request.path, values), self._fill_headers(dial_request.headers, values)
        if dial_request.method == "GET":
            return await self._http.get(path, headers=headers)
        body, answer = fill_template(dial_request.body or {}, values), WholeResponseReader(self._http.failures)
        headers = {**headers, "Content-Type": "application/json"}
        await self._http.post(path, headers=headers, body=body, reader=answer)
        return answer.data

    def _fill_headers(self, headers: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, str]:
        made = {}
        for name, value in headers.items():
            try:
                text = str(fill_template(value, values))
            except MissingValue:
                continue
            if not (text.isascii() and text.isprintable() and text == text.strip()):
                wrong = (
                    f"the header {name} for {self._description.name} contains a line break, a trailing space or "
                    "another "
                    "invalid character"
                )
                if "key" in find_placeholder_names(value):
                    raise AuthenticationFailed(f"{wrong}; set {self._http.failures.variable} again")
                raise Rejected(wrong)
            made[name] = text
        return made

    def _parse_address(self, text: str) -> URL:
        try:
            url = URL(re.sub("^http", "ws", text))
            if url.scheme in ("ws", "wss") and url.host:
                url.host.encode("idna")
                return url
        except ValueError:
            pass
        shown = quote_text(self._http.failures.secrets.redact_message(text.partition("?")[0]))
        raise Rejected(f"{self._description.name} has the address {shown}; expected one such as wss://host/path")


def parse_description(data: Any) -> Description:
    """Return the description in plain data; raise `InvalidInput` with every problem found."""
    try:
        given = msgspec.convert(data, Description)
        found = list(find_description_problems(given))
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidInput(
            f"the agent's description does not fit: {escape_control_characters(str(error))[:MAX_MESSAGE_LENGTH]}"
        ) from None
    if found:
        place, what = found[0]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise InvalidInput(f"the agent's description does not fit: {place}{': ' if place else ''}{what}{more}")
    return given


@cache
def _read_shipped_descriptions() -> dict[str, Any]:
    data: dict[str, Any] = msgspec.json.decode(SHIPPED_DESCRIPTIONS_FILE.read_bytes())
    return data


def load_shipped_description(name: str) -> Description:
    """Return a description that ships with Pramana."""
    if name not in _read_shipped_descriptions():
        raise InvalidInput(f"no description of {quote_text(name)} was passed, and Pramana has no built-in one")
    return parse_description(_read_shipped_descriptions()[name])


def find_template_names(description: Description) -> frozenset[str]:
    """Return the names of all values that a description uses."""
    rates = [str(description.uplink.rate), str(description.downlink.rate), description.greets]
    before = description.dial
    asked = [before.path, before.headers, before.body or {}] if before else []
    sent = [step.send for step in description.handshake] + [rule.reply for rule in description.downlink.rules]
    return find_placeholder_names(
        [
            description.url,
            description.headers,
            rates,
            asked,
            sent,
            description.uplink.send,
            description.interrupt,
            description.bye,
        ]
    )


def _make_agent_url(description: Description, model: str, key: str | None) -> str:
    """Return the address of an agent that is called by its model, or by an address in the description."""
    known = {"model": model, "key": key or "", "language": "en", "call_id": "0"}
    try:
        url = fill_url(description.url, known).partition("#")[0]
    except MissingValue as missing:
        raise InvalidInput(f"{description.name} needs a {missing.args[0]}, and none is set") from None
    return url.partition("?")[0] if description.dial else url
