"""Google's generateContent: a request goes out, the streamed reply comes back.

Only translation. System turns go out as `systemInstruction`, wherever they stand: the format has no other place.
Parameters go into `generationConfig`, but for those the format has beside it. A prompt that Google blocks is answered
with an empty text and the reason. An answer that Google hands out in several hops is asked for to its end.
"""

import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote as quoted

from pramana.errors import AuthenticationFailed, ProviderError, Rejected
from pramana.model import Reply, Request, Target, Usage
from pramana.providers.http import Account, Http
from pramana.providers.openai import MISFITS, in_our_words, refused_midway

BASE_URL = "https://generativelanguage.googleapis.com"
BESIDE = ("safetySettings", "tools", "toolConfig", "cachedContent", "serviceTier", "store", "labels")
"""Parameters that stand beside `generationConfig`."""
MAX_HOPS = 100
_RENAMED = {"top_p": "topP", "max_tokens": "maxOutputTokens", "stop": "stopSequences"}
_ROLES = {"user": "user", "assistant": "model"}
_BAD_KEY = ("API key not valid", "API key expired", "API_KEY_INVALID")


class Google:
    """An account at Google's Gemini API."""

    def __init__(self, account: Account) -> None:
        self._http = Http("Google", account)
        self._headers = {"Content-Type": "application/json"}
        if account.key:
            self._headers["x-goog-api-key"] = account.key

    @classmethod
    def open(cls, target: Target, account: Account | None) -> "Google":  # noqa: ARG003 - every factory is called alike
        """Return the provider for the target."""
        return cls(account or Account(BASE_URL))

    async def ask(self, request: Request) -> Reply:
        """Put the conversation to the model and return its reply."""
        start = time.perf_counter()
        parts: list[str] = []
        raw: list[Any] = []
        used = Usage()
        token: str | None = None
        first = served = finish = last = None
        whole = request.parameters.get("stream") is False
        model = request.model if "/" in request.model else f"models/{request.model}"
        how = "generateContent" if whole else "streamGenerateContent?alt=sse"
        path, body = f"/v1/{quoted(model)}:{how}", _body(request)
        try:
            for _ in range(MAX_HOPS):
                finish, counted, asked_with = None, None, token
                async with aclosing(self._http.stream(path, headers=self._headers, body=body)) as events:
                    async for last in events:
                        data = last.data
                        raw.append(data)
                        if data.get("error"):
                            raise refused_midway(self._http, data)
                        served = data.get("modelVersion") or served
                        counted = data.get("usageMetadata") or counted
                        if reason := (data.get("promptFeedback") or {}).get("blockReason"):
                            finish = f"blocked: {reason}"
                        for candidate in (data.get("candidates") or ())[:1]:
                            for part in (candidate.get("content") or {}).get("parts") or ():
                                if (text := part.get("text")) and not part.get("thought"):
                                    first = first or last.at
                                    parts.append(text)
                            finish = candidate.get("finishReason") or finish
                            token = candidate.get("continuationToken") or token
                used = _sum(used, _usage(counted)) if asked_with else _usage(counted)
                if finish != "CONTINUATION" or token in (None, asked_with):
                    break
                body = {**body, "continuationToken": token}
            text = "".join(parts)
        except Rejected as refused:
            raise self._in_our_words(refused) from None
        except MISFITS:
            raise self._http.broken("does not fit the format of generateContent") from None
        if last is None or finish is None:
            raise self._http.broken()
        return Reply(
            text,
            used,
            served_model=served,
            finish_reason=finish,
            first_token_s=None if last.whole or first is None else first - start,
            total_s=last.at - start,
            raw=data if last.whole and len(raw) == 1 else raw,
        )

    async def models(self) -> list[str]:
        """Return the names of the models that answer a prompt."""
        names: list[str] = []
        more = ""
        while True:
            try:
                page = await self._http.get(f"/v1/models?pageSize=1000{more}", headers=self._headers)
            except Rejected as refused:
                raise self._in_our_words(refused) from None
            try:
                names += [
                    each["name"].removeprefix("models/")
                    for each in page.get("models") or ()
                    if "generateContent" in each.get("supportedGenerationMethods", ("generateContent",))
                ]
                if not (after := page.get("nextPageToken")):
                    return sorted(names)
                more = f"&pageToken={quoted(after, safe='')}"
            except MISFITS:
                raise self._http.broken("is no list of models") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _in_our_words(self, refused: Rejected) -> ProviderError:
        said = str(refused)
        if any(each in said for each in _BAD_KEY):  # with status 400, where others say 401
            return AuthenticationFailed(f"{said}; set {self._http.variable}", status=refused.status)
        return in_our_words(refused, _RENAMED)


def _body(request: Request) -> dict[str, Any]:
    parameters = {_RENAMED.get(name, name): value for name, value in request.parameters.items() if value is not None}
    parameters.pop("stream", None)  # the path says it
    if isinstance(stop := parameters.get("stopSequences"), str):
        parameters["stopSequences"] = [stop]
    beside = {name: parameters.pop(name) for name in BESIDE if name in parameters}
    system = [{"text": turn.text} for turn in request.turns if turn.role == "system"]
    body = {
        "contents": [
            {"parts": [{"text": turn.text}], "role": _ROLES[turn.role]}
            for turn in request.turns
            if turn.role != "system"
        ],
        "systemInstruction": {"parts": system, "role": "user"} if system else None,
        **beside,
        "generationConfig": parameters or None,
    }
    return {name: value for name, value in body.items() if value is not None}


def _usage(counted: Mapping[str, Any] | None) -> Usage:
    if not counted or type(asked := counted.get("promptTokenCount")) is not int:
        return Usage()
    # The format leaves a count of zero out; thoughts are paid for as output.
    names = ("candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount")
    said, thought, cached = (each if type(each := counted.get(name, 0)) is int else None for name in names)
    return Usage(asked, None if said is None or thought is None else said + thought, cached)


def _sum(one: Usage, other: Usage) -> Usage:
    def both(first: int | None, second: int | None) -> int | None:
        return None if first is None or second is None else first + second

    return Usage(
        both(one.input_tokens, other.input_tokens),
        both(one.output_tokens, other.output_tokens),
        both(one.cached_tokens, other.cached_tokens),
    )
