"""Google's generateContent: a request goes out, the streamed reply comes back.

Only translates. System turns go out as `systemInstruction` wherever they are: the format has no other place. Parameters
go into `generationConfig`, except those that the format has beside it. A prompt that Google blocks returns an empty
text and the reason. A response that Google splits over several requests is fetched to its end.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote as quoted

from msgspec.structs import astuple

from pramana.errors import AuthenticationFailed, Rejected
from pramana.model import Reply, Request, Usage
from pramana.providers.accounts import Account
from pramana.providers.failures import AccountErrors
from pramana.providers.http import HttpTransport, VendorProvider
from pramana.providers.reading import ReplyReader, format_tool_arguments
from pramana.providers.text.openai import make_midstream_error
from pramana.replies import parse_token_count

BASE_URL = "https://generativelanguage.googleapis.com"
TOP_LEVEL_PARAMETERS = ("safetySettings", "tools", "toolConfig", "cachedContent", "serviceTier", "store", "labels")
"""Parameters beside `generationConfig`."""
MAX_REQUESTS_PER_REPLY = 100
_VENDOR_PARAMETER_NAMES = {"top_p": "topP", "max_tokens": "maxOutputTokens", "stop": "stopSequences"}
_VENDOR_ROLES = {"user": "user", "assistant": "model"}
_BAD_KEY_MESSAGES = ("API key not valid", "API key expired", "API_KEY_INVALID")


class Google(VendorProvider):
    """An account at Google's Gemini API."""

    vendor, base_url = "Google", BASE_URL

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._headers = {"Content-Type": "application/json"}
        if account.key:
            self._headers["x-goog-api-key"] = account.key

    async def ask(self, request: Request) -> Reply:
        """Send the conversation to the model and return its reply."""
        whole = request.parameters.get("stream") is False
        model = request.model if "/" in request.model else f"models/{request.model}"
        how = "generateContent" if whole else "streamGenerateContent?alt=sse"
        path, body = f"/v1/{quoted(model)}:{how}", _make_request_body(request)
        content = _ContentReader(self._http.failures)
        failures = self._http.failures
        with (
            failures.translate_parse_errors("does not fit the format of generateContent", _VENDOR_PARAMETER_NAMES),
            _translate_bad_key_error(failures),
        ):
            for _ in range(MAX_REQUESTS_PER_REPLY):
                await self._http.post(path, headers=self._headers, body=body, reader=content)
                if (token := content.next_continuation_token()) is None:
                    break
                body = {**body, "continuationToken": token}
            return content.finish()

    async def models(self) -> list[str]:
        """Return the names of the models that answer a prompt."""
        return await list_models_with_method(self._http, self._headers, "generateContent")


async def list_models_with_method(http: HttpTransport, headers: Mapping[str, str], method: str) -> list[str]:
    """Return the names, from every page, of the models with a method; one that lists none has generateContent."""
    names: list[str] = []

    def handle_page(page: Any) -> str | None:
        names.extend(
            each["name"].removeprefix("models/")
            for each in page.get("models") or ()
            if method in each.get("supportedGenerationMethods", ("generateContent",))
        )
        after = page.get("nextPageToken")
        return f"&pageToken={quoted(after, safe='')}" if after else None

    with _translate_bad_key_error(http.failures):
        await http.fetch_pages("/v1/models?pageSize=1000", headers=headers, read_page=handle_page)
    return sorted(names)


@contextmanager
def _translate_bad_key_error(failures: AccountErrors) -> Iterator[None]:
    """Raise a rejected key as `AuthenticationFailed`: Google sends status 400 where others send 401."""
    try:
        yield
    except Rejected as refused:
        if any(each in str(refused) for each in _BAD_KEY_MESSAGES):
            raise AuthenticationFailed(f"{refused}; set {failures.variable}", status=refused.status) from None
        raise


class _ContentReader(ReplyReader):
    """Reads a response that may span several requests."""

    _served_model: Any = None
    _finish_reason: Any = None
    _continuation_token: str | None = None
    _sent_continuation_token: str | None = None
    _usage_counts: Any = None
    _calls_seen = 0
    _used = Usage()

    def handle_event(self, event: str | None, data: Any) -> None:  # noqa: ARG002 - unused: this format has no event names
        if data.get("error"):
            raise make_midstream_error(self.failures, data)
        self._served_model = data.get("modelVersion") or self._served_model
        self._usage_counts = data.get("usageMetadata") or self._usage_counts
        if reason := (data.get("promptFeedback") or {}).get("blockReason"):
            self._finish_reason = f"blocked: {reason}"
        candidates = data.get("candidates") or ()
        if len(candidates) > 1:
            self.add_side_content(candidates[1:])
        for candidate in candidates[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                if (text := part.get("text")) and not part.get("thought"):
                    self.add_text(text)
                else:
                    self.add_side_content(part)
                    if isinstance(call := part.get("functionCall"), dict):
                        self._calls_seen += 1
                        arguments = format_tool_arguments(call.get("args") or {})
                        self.add_tool_call(self._calls_seen, call.get("id"), call.get("name"), arguments)
            self._finish_reason = candidate.get("finishReason") or self._finish_reason
            self._continuation_token = candidate.get("continuationToken") or self._continuation_token

    def next_continuation_token(self) -> str | None:
        """Return the token that continues the response; None when it is complete."""
        used = _parse_usage(self._usage_counts)
        self._used = _add_usage(self._used, used) if self._sent_continuation_token else used
        if self._finish_reason != "CONTINUATION" or self._continuation_token in (None, self._sent_continuation_token):
            return None
        self._sent_continuation_token, self._finish_reason, self._usage_counts = self._continuation_token, None, None
        return self._continuation_token

    def finish(self) -> Reply:
        if self._finish_reason is None:
            raise self.failures.make_broken_reply()
        return self.make_reply(
            self.text(), self._used, served_model=self._served_model, finish_reason=self._finish_reason
        )


def _make_request_body(request: Request) -> dict[str, Any]:
    parameters = {
        _VENDOR_PARAMETER_NAMES.get(name, name): value
        for name, value in request.parameters.items()
        if value is not None
    }
    parameters.pop("stream", None)  # it is part of the path
    if isinstance(stop := parameters.get("stopSequences"), str):
        parameters["stopSequences"] = [stop]
    beside = {name: parameters.pop(name) for name in TOP_LEVEL_PARAMETERS if name in parameters}
    system = [{"text": turn.text} for turn in request.turns if turn.role == "system"]
    body = {
        "contents": [
            {"parts": [{"text": turn.text}], "role": _VENDOR_ROLES[turn.role]}
            for turn in request.turns
            if turn.role != "system"
        ],
        "systemInstruction": {"parts": system, "role": "user"} if system else None,
        **beside,
        "generationConfig": parameters or None,
    }
    return {name: value for name, value in body.items() if value is not None}


def _parse_usage(counts: Any) -> Usage:
    if not isinstance(counts, dict) or (asked := parse_token_count(counts.get("promptTokenCount"))) is None:
        return Usage()
    # The format omits counts of zero; thoughts are billed as output.
    names = ("candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount")
    said, thought, cached = (parse_token_count(counts.get(name, 0)) for name in names)
    return Usage(asked, None if said is None or thought is None else parse_token_count(said + thought), cached)


def _add_usage(one: Usage, other: Usage) -> Usage:
    pairs = zip(astuple(one), astuple(other), strict=True)
    return Usage(*(None if None in pair else parse_token_count(sum(pair)) for pair in pairs))
