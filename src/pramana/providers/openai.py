"""OpenAI's chat completions, and every server that speaks them: a request goes out, the streamed reply comes back.

Only translation. `max_tokens` goes out as `max_completion_tokens` to OpenAI, whose newer models take no other, and as
`max_tokens` to a compatible server, since many know no other. A parameter of None is left out, so that
`stream_options=null` pleases a server that does not know it, and `stream=false` asks for the answer in one piece.
"""

import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from pramana.errors import ProviderError, Rejected
from pramana.model import Reply, Request, Usage
from pramana.providers.http import Account, Http

BASE_URL = "https://api.openai.com/v1"
MISFITS = (AttributeError, IndexError, KeyError, TypeError)
"""What reading an answer of another shape raises."""


class OpenAI:
    """An account at OpenAI, or with `compatible` at whoever speaks its chat completions."""

    def __init__(self, account: Account, *, compatible: bool = False) -> None:
        if compatible and account.variable is None:
            account = replace(account, variable="OPENAI_API_KEY")
        self._http = Http("the server" if compatible else "OpenAI", account)
        self._headers = headers_of(account)
        self._posting = {**self._headers, "Content-Type": "application/json"}
        self._renamed = {} if compatible else {"max_tokens": "max_completion_tokens"}

    async def ask(self, request: Request) -> Reply:
        """Put the conversation to the model and return its reply."""
        start = time.perf_counter()
        parts: list[str] = []
        raw: list[Any] = []
        first = served = fingerprint = finish = usage = last = None
        body = self._body(request)
        try:
            async with aclosing(self._http.stream("/chat/completions", headers=self._posting, body=body)) as events:
                async for last in events:
                    data = last.data
                    raw.append(data)
                    if data.get("error"):
                        raise refused_midway(self._http, data)
                    served = data.get("model") or served
                    fingerprint = data.get("system_fingerprint") or fingerprint
                    usage = data.get("usage") or usage
                    for choice in data.get("choices") or ():
                        if choice.get("index"):
                            continue  # of several answers, the first is the reply; `raw` has them all
                        said = choice.get("message" if last.whole else "delta") or {}
                        if text := (said.get("content") or "") + (said.get("refusal") or ""):
                            first = first or last.at
                            parts.append(text)
                        finish = choice.get("finish_reason") or finish
            text = "".join(parts)
            used = usage_of(usage, "prompt_tokens", "completion_tokens")
        except Rejected as refused:
            raise in_our_words(refused, self._renamed) from None
        except MISFITS:
            raise self._http.broken("does not fit the format of chat completions") from None
        if last is None or (finish is None and not (last.whole and data.get("choices"))):
            raise self._http.broken()
        return Reply(
            text,
            used,
            served_model=served,
            fingerprint=fingerprint,
            finish_reason=finish,
            first_token_s=None if last.whole or first is None else first - start,
            total_s=last.at - start,
            raw=data if last.whole else raw,
        )

    async def models(self) -> list[str]:
        """Return the names of the models on offer."""
        return await models_of(self._http, self._headers)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _body(self, request: Request) -> dict[str, Any]:
        named = {self._renamed.get(name, name): value for name, value in request.parameters.items()}
        body: dict[str, Any] = {
            "stream": True,
            "stream_options": {"include_usage": True},
            **named,
            "model": request.model,
            "messages": [{"role": turn.role, "content": turn.text} for turn in request.turns],
        }
        if not body["stream"]:
            body["stream_options"] = None  # OpenAI refuses it where nothing is streamed
        return {name: value for name, value in body.items() if value is not None}


def headers_of(account: Account) -> dict[str, str]:
    """Return what every request to OpenAI carries; a server that needs no key is sent none."""
    headers = {"Accept": "application/json"}
    return {**headers, "Authorization": f"Bearer {account.key}"} if account.key else headers


async def models_of(http: Http, headers: Mapping[str, str]) -> list[str]:
    """Return the names at `/models`."""
    answer = await http.get("/models", headers=headers)
    try:
        return sorted(str(each["id"]) for each in answer["data"])
    except MISFITS:
        raise http.broken("is no list of models") from None


def usage_of(counted: Mapping[str, Any] | None, asked: str, answered: str) -> Usage:
    """Return the tokens by the names the format has for those asked and answered; a count that is none is unknown."""
    if not counted:
        return Usage()
    details = counted.get(f"{asked}_details") or {}
    counts = (counted.get(asked), counted.get(answered), details.get("cached_tokens"))
    return Usage(*(each if type(each) is int else None for each in counts))


def in_our_words(refused: Rejected, renamed: Mapping[str, str]) -> Rejected:
    """Return the refusal with its parameter under the name the request had for it."""
    for ours, theirs in renamed.items():
        if refused.parameter == theirs:
            return Rejected(str(refused), status=refused.status, parameter=ours)
    return refused


def refused_midway(http: Http, body: Any) -> ProviderError:
    """Return the error for one that came after the status had said that all is well."""
    error = body["error"] if isinstance(body.get("error"), dict) else body
    code = error.get("code")
    words = f"{code} {error.get('type')}"
    if type(code) is int and 400 <= code < 600:
        status = code
    elif "rate_limit" in words or "quota" in words:
        status = 429
    elif "invalid" in words or "content_filter" in words:
        status = 400
    else:
        status = 500
    return http.refusal(status, body)
