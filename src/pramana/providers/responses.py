"""OpenAI's responses API: a request goes out, the streamed reply comes back.

Only translation. Every turn is an input item in its place, system turns too: `instructions` would move them to the
front. The format has neither `seed` nor `stop`: a request that has one is refused here as OpenAI would refuse it,
naming the parameter, so that the engine asks without it and says so.
"""

import time
from contextlib import aclosing
from typing import Any

from pramana.errors import Rejected
from pramana.model import Reply, Request
from pramana.providers.http import Account, Http
from pramana.providers.openai import MISFITS, headers_of, in_our_words, models_of, refused_midway, usage_of

_RENAMED = {"max_tokens": "max_output_tokens"}
_ABSENT = ("seed", "stop")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
_TEXT = ("response.output_text.delta", "response.refusal.delta")


class Responses:
    """An account at OpenAI, asked by the responses API."""

    def __init__(self, account: Account) -> None:
        self._http = Http("OpenAI", account)
        self._headers = headers_of(account)
        self._posting = {**self._headers, "Content-Type": "application/json"}

    async def ask(self, request: Request) -> Reply:
        """Put the conversation to the model and return its reply."""
        body = self._body(request)
        start = time.perf_counter()
        parts: list[str] = []
        raw: list[Any] = []
        first: float | None = None
        last = answer = None
        stream = self._http.stream("/responses", headers=self._posting, body=body, last=_ENDS)
        try:
            async with aclosing(stream) as events:
                async for last in events:
                    data = last.data
                    raw.append(data)
                    kind = data.get("type")
                    if kind in _TEXT:
                        if data["delta"]:
                            first = first or last.at
                            parts.append(data["delta"])
                    elif kind in _ENDS or last.whole:
                        answer = data if last.whole else data.get("response")
                        if kind == "error" or data.get("error") or answer.get("error"):
                            raise refused_midway(self._http, data if kind == "error" else answer)
            if last is None or answer is None:
                raise self._http.broken()
            text = "".join(parts) or _text(answer["output"])
            cause = (answer.get("incomplete_details") or {}).get("reason")
            used = usage_of(answer.get("usage"), "input_tokens", "output_tokens")
            served, status = answer.get("model"), answer.get("status")
        except Rejected as refused:
            raise in_our_words(refused, _RENAMED) from None
        except MISFITS:
            raise self._http.broken("does not fit the format of responses") from None
        return Reply(
            text,
            used,
            served_model=served,
            finish_reason=cause or status,
            first_token_s=None if first is None else first - start,
            total_s=last.at - start,
            raw=answer if last.whole else raw,
        )

    async def models(self) -> list[str]:
        """Return the names of the models on offer."""
        return await models_of(self._http, self._headers)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _body(self, request: Request) -> dict[str, Any]:
        named = {_RENAMED.get(name, name): value for name, value in request.parameters.items() if value is not None}
        for absent in _ABSENT:
            if absent in named:
                raise Rejected(f"OpenAI's responses API has no parameter {absent}; leave it out", parameter=absent)
        return {
            "stream": True,
            **named,
            "model": request.model,
            "input": [{"role": turn.role, "content": turn.text} for turn in request.turns],
        }


def _text(output: Any) -> str:
    return "".join(
        part.get("text") or part.get("refusal") or ""
        for item in output
        if item.get("type") == "message"
        for part in item.get("content") or ()
    )
