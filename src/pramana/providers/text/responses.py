"""OpenAI's responses API: a request goes out, the streamed reply comes back.

Only translation. Every turn is an input item in its place, system turns too: `instructions` would move them to the
front. The format has neither `seed` nor `stop`: a request that has one is refused here as OpenAI would refuse it,
naming the parameter, so that the engine asks without it and says so.
"""

from typing import Any

from pramana.errors import Rejected
from pramana.model import Reply, Request
from pramana.providers.account import Account
from pramana.providers.failures import Failures
from pramana.providers.reading import Reading
from pramana.providers.text.openai import (
    BASE_URL,
    headers_of,
    models_of,
    refused_midway,
    usage_of,
)
from pramana.providers.vendor import Vendor

_RENAMED = {"max_tokens": "max_output_tokens"}
_ABSENT = ("seed", "stop")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
_TEXT = ("response.output_text.delta", "response.refusal.delta")


class Responses(Vendor):
    """An account at OpenAI, asked by the responses API."""

    vendor, base_url = "OpenAI", BASE_URL

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._headers = headers_of(account)
        self._posting = {**self._headers, "Content-Type": "application/json"}

    async def ask(self, request: Request) -> Reply:
        """Put the conversation to the model and return its reply."""
        response = _Response(self._http.failures)
        with self._http.failures.reading("does not fit the format of responses", _RENAMED):
            await self._http.post(
                "/responses", headers=self._posting, body=self._body(request), reading=response, last=_ENDS
            )
            return response.done()

    async def models(self) -> list[str]:
        """Return the names of the models on offer."""
        return await models_of(self._http, self._headers)

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


class _Response(Reading):
    __slots__ = ("_answer",)

    def __init__(self, failures: Failures) -> None:
        super().__init__(failures)
        self._answer: Any = None

    def take(self, event: str | None, data: Any) -> None:  # noqa: ARG002 - the data says its type as well
        kind = data.get("type")
        if kind in _TEXT:
            if data["delta"]:
                self.say(data["delta"])
        elif kind in _ENDS or self.whole:
            self._answer = answer = data if self.whole else data.get("response")
            if kind == "error" or data.get("error") or answer.get("error"):
                raise refused_midway(self.failures, data if kind == "error" else answer)
        elif "delta" in data:
            self.aside(data["delta"], str(kind))

    def done(self) -> Reply:
        answer = self._answer
        if answer is None:
            raise self.failures.broken()
        cause = (answer.get("incomplete_details") or {}).get("reason")
        return self.reply(
            self.text() or _text(answer["output"]),
            usage_of(answer.get("usage"), "input_tokens", "output_tokens"),
            served_model=answer.get("model"),
            finish_reason=cause or answer.get("status"),
        )


def _text(output: Any) -> str:
    return "".join(
        part.get("text") or part.get("refusal") or ""
        for item in output
        if item.get("type") == "message"
        for part in item.get("content") or ()
    )
