"""Anthropic's messages API: a request goes out, the streamed reply comes back.

Only translates. System turns before the first other turn go out as `system`, later ones in place. The format has no
seed and, since its version of 2026-10-21, no temperature and no top_p: they are left out, and the reply lists them as
dropped. `max_tokens` is required: 1,024 unless the request sets it. `stream=false` requests an unstreamed response.
"""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any
from urllib.parse import quote as quoted

from pramana.model import Reply, Request, Usage
from pramana.providers.accounts import Account
from pramana.providers.http import VendorProvider
from pramana.providers.reading import ReplyReader, format_tool_arguments
from pramana.replies import parse_token_count

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2026-10-21"
DEFAULT_MAX_TOKENS = 1024
UNSUPPORTED_PARAMETERS = ("temperature", "top_p", "seed")
"""Neutral parameters that the format does not have."""
_VENDOR_PARAMETER_NAMES = {"stop": "stop_sequences"}
_FINAL_EVENTS = ("message_stop", "error")
_STATUS_BY_ERROR_TYPE: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class Anthropic(VendorProvider):
    """An account at Anthropic."""

    vendor, base_url = "Anthropic", BASE_URL

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._headers = {"Accept": "application/json", "anthropic-version": API_VERSION}
        if account.key:
            self._headers["Authorization"] = f"Bearer {account.key}"
        self._posting = {**self._headers, "Content-Type": "application/json"}

    async def ask(self, request: Request) -> Reply:
        """Send the conversation to the model and return its reply."""
        message = _MessageReader(self._http.failures)
        with self._http.failures.translate_parse_errors("does not fit the format of messages", _VENDOR_PARAMETER_NAMES):
            await self._http.post(
                "/v1/messages",
                headers=self._posting,
                body=_make_request_body(request),
                reader=message,
                final_events=_FINAL_EVENTS,
            )
            return message.finish(request)

    async def models(self) -> list[str]:
        """Return the names of the available models."""
        names: list[str] = []

        def take(page: Any) -> str | None:
            names.extend(str(each["id"]) for each in page["data"])
            return f"&after_id={quoted(page['last_id'], safe='')}" if page["has_more"] and page["data"] else None

        await self._http.fetch_pages("/v1/models?limit=1000", headers=self._headers, read_page=take)
        return sorted(names)


class _MessageReader(ReplyReader):
    _usage_counts: Mapping[str, Any] = {}
    _served_model: Any = None
    _finish_reason: Any = None
    _complete = False

    def handle_event(self, event: str | None, data: Any) -> None:  # noqa: ARG002 - unused: the data contains the type too
        kind = data["type"]
        if kind == "content_block_delta":
            delta = data["delta"]
            if text := delta.get("text"):  # thoughts, signatures and tools have no text
                self.add_text(text)
            else:
                self.add_side_content(delta, str(data.get("index")))
                if delta.get("type") == "input_json_delta" and self.has_tool_call_at(data.get("index")):
                    self.add_tool_call(data["index"], None, None, delta.get("partial_json"))
        elif kind == "content_block_start":
            self._begin_tool_call(data.get("index"), data.get("content_block"))
        elif kind in ("message_start", "message"):
            message = data if self.is_whole else data["message"]
            self._served_model, self._finish_reason = message["model"], message["stop_reason"]
            self._update_usage(message["usage"])
            for place, each in enumerate(message["content"]):
                if each["type"] == "text" and each["text"]:
                    self.add_text(each["text"])
                self._begin_tool_call(place, each)
            self._complete = self.is_whole
        elif kind == "message_delta":
            self._finish_reason = data["delta"].get("stop_reason") or self._finish_reason
            self._update_usage(data["usage"])
        elif kind == "error":
            raise self.failures.make_status_error(_STATUS_BY_ERROR_TYPE.get(data["error"]["type"], 500), data)
        elif kind == "message_stop":
            self._complete = True

    def _begin_tool_call(self, content_index: Any, block: Any) -> None:
        """Begin a tool call; Anthropic's own tools (`server_tool_use`) run on its servers and do not count."""
        if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(content_index, int):
            self.add_tool_call(
                content_index, block.get("id"), block.get("name"), None, format_tool_arguments(block.get("input") or {})
            )

    def _update_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            # Cumulative; a count left out keeps its value from `message_start`.
            self._usage_counts = {
                **self._usage_counts,
                **{name: given for name, given in usage.items() if given is not None},
            }

    def finish(self, request: Request) -> Reply:
        if not self._complete or self._served_model is None:
            raise self.failures.make_broken_reply()
        return self.make_reply(
            self.text(),
            _parse_usage(self._usage_counts),
            served_model=self._served_model,
            finish_reason=self._finish_reason,
            dropped_parameters=tuple(
                name for name in UNSUPPORTED_PARAMETERS if request.parameters.get(name) is not None
            ),
        )


def _make_request_body(request: Request) -> dict[str, Any]:
    parameters = {name: value for name, value in request.parameters.items() if name not in UNSUPPORTED_PARAMETERS}
    if isinstance(stop := parameters.pop("stop", None), str):
        stop = [stop]
    leading = [turn.text for turn in takewhile(lambda turn: turn.role == "system", request.turns)]
    several = [{"type": "text", "text": text} for text in leading]
    body = {
        "max_tokens": DEFAULT_MAX_TOKENS,
        "stream": True,
        "stop_sequences": stop,
        "system": several if len(leading) > 1 else "".join(leading) or None,
        **{name: value for name, value in parameters.items() if value is not None},
        "model": request.model,
        "messages": [{"role": turn.role, "content": turn.text} for turn in request.turns[len(leading) :]],
    }
    return {name: value for name, value in body.items() if value is not None}


def _parse_usage(counts: Mapping[str, Any]) -> Usage:
    # Anthropic counts tokens read from and written to its cache beside the input; ours count all input as one number.
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    asked, answered, read, written = (parse_token_count(counts.get(name)) for name in names)
    return Usage(None if asked is None else parse_token_count(asked + (read or 0) + (written or 0)), answered, read)
