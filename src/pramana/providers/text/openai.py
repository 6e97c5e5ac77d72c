"""OpenAI's chat completions, embeddings and responses: a request goes out, the streamed reply comes back.

The first two also serve every compatible server. Only translates. `max_tokens` goes to OpenAI as
`max_completion_tokens`, the only name its newer models accept, and to a compatible server as `max_tokens`, since many
know no other. A parameter of None is left out, so `stream_options=null` suits a server that does not know it;
`stream=false` requests an unstreamed response. Vectors are requested from OpenAI in base64, as its SDK does, at a
quarter of the bytes; from a compatible server as plain numbers, since several reject or garble base64. Either form is
accepted in the response.
"""

import dataclasses
import sys
from array import array
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from pramana.errors import ProviderError, Rejected
from pramana.model import Reply, Request, Target, Usage
from pramana.providers.accounts import Account
from pramana.providers.failures import AccountErrors
from pramana.providers.http import HttpTransport, VendorProvider
from pramana.providers.reading import ReplyReader, WholeResponseReader
from pramana.replies import parse_token_count

BASE_URL = "https://api.openai.com/v1"
_REPLY_FIELDS = frozenset(("content", "refusal", "role"))
"""Fields of a message that make up the reply; all others are side content."""


class OpenAI(VendorProvider):
    """An account at OpenAI, or with `compatible` at any server that speaks its chat completions."""

    def __init__(self, account: Account, *, compatible: bool = False) -> None:
        if compatible and account.variable is None:
            account = dataclasses.replace(account, variable="OPENAI_API_KEY")
        self._http = HttpTransport("the server" if compatible else "OpenAI", account)
        self._headers = make_headers(account)
        self._posting = {**self._headers, "Content-Type": "application/json"}
        self._renamed = {} if compatible else {"max_tokens": "max_completion_tokens"}
        self._reading = self._http.failures.translate_parse_errors(
            "does not fit the format of chat completions", self._renamed
        )
        self._encoding = "float" if compatible else "base64"

    @classmethod
    def open(cls, target: Target, account: Account | None) -> "OpenAI":
        """Return the provider for the target."""
        return cls(account or Account(BASE_URL), compatible=target.provider == "compatible")

    async def ask(self, request: Request) -> Reply:
        """Send the conversation to the model and return its reply."""
        completion = _CompletionReader(self._http.failures)
        with self._reading:
            await self._http.post(
                "/chat/completions", headers=self._posting, body=self._make_body(request), reader=completion
            )
            return completion.finish()

    async def embed(self, request: Request) -> Reply:
        """Send the text of every turn in one request; the reply has their vectors, in order, and no text."""
        answer, texts = WholeResponseReader(self._http.failures), [turn.text for turn in request.turns]
        body = {**request.parameters, "model": request.model, "input": texts, "encoding_format": self._encoding}
        with self._http.failures.translate_parse_errors("does not fit the format of embeddings"):
            await self._http.post("/embeddings", headers=self._posting, body=body, reader=answer)
            found = {each["index"]: _decode_vector(each["embedding"]) for each in answer.data["data"]}
            vectors = tuple(found[index] for index in range(len(texts)))
            counted = answer.data.get("usage")
            tokens = parse_token_count(counted.get("prompt_tokens")) if isinstance(counted, dict) else None
            usage = Usage() if tokens is None else Usage(tokens, 0)
            reply = answer.make_reply("", usage, served_model=answer.data.get("model"), finish_reason=None)
            # As text, the vectors would be several times as long.
            return structs.replace(reply, raw=None, vectors=vectors)

    async def models(self) -> list[str]:
        """Return the names of the available models."""
        return await fetch_model_names(self._http, self._headers)

    def _make_body(self, request: Request) -> dict[str, Any]:
        named = {self._renamed.get(name, name): value for name, value in request.parameters.items()}
        body: dict[str, Any] = {
            "stream": True,
            "stream_options": {"include_usage": True},
            **named,
            "model": request.model,
            "messages": [{"role": turn.role, "content": turn.text} for turn in request.turns],
        }
        if not body["stream"]:
            body["stream_options"] = None  # OpenAI rejects it for an unstreamed response
        return {name: value for name, value in body.items() if value is not None}


class _CompletionReader(ReplyReader):
    _served_model: Any = None
    _fingerprint: Any = None
    _finish_reason: Any = None
    _usage_counts: Any = None
    _choices = False
    _unnumbered = 0

    def handle_event(self, event: str | None, data: Any) -> None:  # noqa: ARG002 - unused: this format has no event names
        get = data.get
        if get("error"):
            raise make_midstream_error(self.failures, data)
        self._served_model = get("model") or self._served_model
        self._fingerprint = get("system_fingerprint") or self._fingerprint
        self._usage_counts = get("usage") or self._usage_counts
        for choice in get("choices") or ():
            self._choices = True
            said = choice.get("message" if self.is_whole else "delta") or {}
            if choice.get("index"):  # of several choices, the first is the reply; `raw` has them all
                self.add_side_content(said, str(choice["index"]))
                continue
            if text := (said.get("content") or "") + (said.get("refusal") or ""):
                self.add_text(text)
            if (not text or len(said) > 1) and (more := said.keys() - _REPLY_FIELDS):
                self.add_side_content({name: said[name] for name in more})
                self._add_tool_calls(said)
            self._finish_reason = choice.get("finish_reason") or self._finish_reason

    def _add_tool_calls(self, message: Any) -> None:
        """Record the tool calls of a message, or their pieces; calls in undocumented places are ignored."""
        calls = message.get("tool_calls")
        for number, each in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(each, dict) and isinstance(tool := each.get("function") or each.get("custom"), dict):
                place, name = number if self.is_whole else each.get("index"), tool.get("name")
                if type(place) is not int:  # the server sends no index: a name begins a call
                    self._unnumbered += bool(name)
                    place = f"unnumbered {self._unnumbered}"
                self.add_tool_call(place, each.get("id"), name, tool.get("arguments", tool.get("input")))
        if isinstance(old := message.get("function_call"), dict):  # the older format
            self.add_tool_call("function_call", None, old.get("name"), old.get("arguments"))

    def finish(self) -> Reply:
        if self._finish_reason is None and not (self.is_whole and self._choices):
            raise self.failures.make_broken_reply()
        return self.make_reply(
            self.text(),
            parse_usage(self._usage_counts, "prompt_tokens", "completion_tokens"),
            served_model=self._served_model,
            finish_reason=self._finish_reason,
            fingerprint=self._fingerprint,
        )


def make_headers(account: Account) -> dict[str, str]:
    """Return the headers of every request to OpenAI; a server that needs no key gets none."""
    headers = {"Accept": "application/json"}
    return {**headers, "Authorization": f"Bearer {account.key}"} if account.key else headers


async def fetch_model_names(http: HttpTransport, headers: Mapping[str, str]) -> list[str]:
    """Return the names at `/models`."""
    answer = await http.get("/models", headers=headers)
    with http.failures.translate_parse_errors("is not a list of models"):
        return sorted(str(each["id"]) for each in answer["data"])


def parse_usage(counts: Any, input_name: str, output_name: str) -> Usage:
    """Return the token usage, by the format's names for input and output; a malformed count is unknown."""
    if not isinstance(counts, dict):
        return Usage()
    details = counts.get(f"{input_name}_details")
    cached = parse_token_count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(parse_token_count(counts.get(input_name)), parse_token_count(counts.get(output_name)), cached)


def make_midstream_error(failures: AccountErrors, body: Any) -> ProviderError:
    """Return the error for one sent after a success status."""
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
    return failures.make_status_error(status, body)


def _decode_vector(encoded: str | Sequence[float]) -> Sequence[float]:
    if not isinstance(encoded, str):
        return array("d", encoded)
    vector = array("f", b64decode(encoded, validate=True))
    if sys.byteorder == "big":  # the wire format is little-endian
        vector.byteswap()
    return vector


# ── The responses API ──

_RESPONSES_PARAMETER_NAMES = {"max_tokens": "max_output_tokens"}
_UNSUPPORTED_RESPONSES_PARAMETERS = ("seed", "stop")
_FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed", "error")
_TEXT_DELTA_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_TOOL_CALL_TYPES = ("function_call", "custom_tool_call")
"""Output items that call the client's tools; OpenAI's own tools run on its servers."""


class OpenAIResponses(VendorProvider):
    """An account at OpenAI, used through the responses API.

    Every turn is an input item in place, system turns too: `instructions` would move them to the front. The format has
    neither `seed` nor `stop`: a request with one is rejected here as OpenAI would reject it, naming the parameter, so
    that the engine retries without it and reports it.
    """

    vendor, base_url = "OpenAI", BASE_URL

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._headers = make_headers(account)
        self._posting = {**self._headers, "Content-Type": "application/json"}

    async def ask(self, request: Request) -> Reply:
        """Send the conversation to the model and return its reply."""
        response = _ResponseReader(self._http.failures)
        with self._http.failures.translate_parse_errors(
            "does not fit the format of responses", _RESPONSES_PARAMETER_NAMES
        ):
            await self._http.post(
                "/responses",
                headers=self._posting,
                body=self._make_body(request),
                reader=response,
                final_events=_FINAL_EVENTS,
            )
            return response.finish()

    async def models(self) -> list[str]:
        """Return the names of the available models."""
        return await fetch_model_names(self._http, self._headers)

    def _make_body(self, request: Request) -> dict[str, Any]:
        named = {
            _RESPONSES_PARAMETER_NAMES.get(name, name): value
            for name, value in request.parameters.items()
            if value is not None
        }
        for absent in _UNSUPPORTED_RESPONSES_PARAMETERS:
            if absent in named:
                raise Rejected(f"OpenAI's responses API has no parameter {absent}; leave it out", parameter=absent)
        return {
            "stream": True,
            **named,
            "model": request.model,
            "input": [{"role": turn.role, "content": turn.text} for turn in request.turns],
        }


class _ResponseReader(ReplyReader):
    _response: Any = None

    def handle_event(self, event: str | None, data: Any) -> None:  # noqa: ARG002 - unused: the data contains the type too
        kind = data.get("type")
        if kind in _TEXT_DELTA_EVENTS:
            if data["delta"]:
                self.add_text(data["delta"])
        elif kind in _FINAL_EVENTS or self.is_whole:
            self._response = answer = data if self.is_whole else data.get("response")
            if kind == "error" or data.get("error") or answer.get("error"):
                raise make_midstream_error(self.failures, data if kind == "error" else answer)
        elif "delta" in data:
            self.add_side_content(data["delta"], str(kind))

    def finish(self) -> Reply:
        answer = self._response
        if answer is None:
            raise self.failures.make_broken_reply()
        cause = (answer.get("incomplete_details") or {}).get("reason")
        text = self.text() or _join_output_text(answer["output"])
        output = answer.get("output")
        for place, item in enumerate(output if isinstance(output, list) else ()):
            if item.get("type") in _TOOL_CALL_TYPES:
                self.add_tool_call(
                    place, item.get("call_id"), item.get("name"), item.get("arguments", item.get("input"))
                )
        return self.make_reply(
            text,
            parse_usage(answer.get("usage"), "input_tokens", "output_tokens"),
            served_model=answer.get("model"),
            finish_reason=cause or answer.get("status"),
        )


def _join_output_text(output: Any) -> str:
    return "".join(
        part.get("text") or part.get("refusal") or ""
        for item in output
        if item.get("type") == "message"
        for part in item.get("content") or ()
    )
