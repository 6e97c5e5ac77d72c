"""Logprobs of the first token of a reply: the parameters that request them, and what a raw response says.

One reader for the wire formats that have logprobs: chat completions and responses of OpenAI, compatible servers,
Google, and the embedded model. A provider that has none, or a response without them, gives an empty mapping; nothing
here fails on a response.
"""

import math
from collections.abc import Mapping
from typing import Any

from pramana.model import Reply

TOP_TOKENS = 5
"""How many likely tokens a request asks for: every provider allows as many."""
_CHAT_PARAMETERS = {"logprobs": True, "top_logprobs": TOP_TOKENS}
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "openai": _CHAT_PARAMETERS,
    "compatible": _CHAT_PARAMETERS,
    "local": _CHAT_PARAMETERS,
    "openai-responses": {"top_logprobs": TOP_TOKENS, "include": ["message.output_text.logprobs"]},
    "google": {"responseLogprobs": True, "logprobs": TOP_TOKENS},
}


def logprob_parameters(provider: str) -> Mapping[str, Any]:
    """Return the parameters that request the logprobs of tokens from a kind of provider; empty if it has none.

    >>> logprob_parameters("google"), logprob_parameters("anthropic")
    ({'responseLogprobs': True, 'logprobs': 5}, {})
    """
    return _PARAMETERS.get(provider, {})


def read_first_token_logprobs(reply: Reply) -> dict[str, float]:
    """Return the logprobs of the likeliest first tokens of a reply; empty if its response has none."""
    try:
        response = reply.response()
    except ValueError:
        return {}
    for event in response if isinstance(response, list) else (response,):
        if isinstance(event, dict) and (tokens := _read_event_logprobs(event)):
            return tokens
    return {}


def _read_event_logprobs(event: Mapping[str, Any]) -> dict[str, float]:
    """Return the logprobs of the first token that an event, or a whole response, mentions."""
    for choice in _keep_dicts(event.get("choices")):  # chat completions
        for token in _keep_dicts(_dict_or_empty(choice.get("logprobs")).get("content")):
            return _read_tokens(token.get("top_logprobs"), token, "token", "logprob")
    for candidate in _keep_dicts(event.get("candidates")):  # Google
        result = _dict_or_empty(candidate.get("logprobsResult"))
        for top, chosen in zip(
            _keep_dicts(result.get("topCandidates")), _keep_dicts(result.get("chosenCandidates")), strict=False
        ):
            return _read_tokens(top.get("candidates"), chosen, "token", "logProbability")
    for token in _keep_dicts(event.get("logprobs")):  # responses: an event of the stream
        return _read_tokens(token.get("top_logprobs"), token, "token", "logprob")
    for item in _keep_dicts(event.get("output")):  # responses: the whole
        for part in _keep_dicts(item.get("content")):
            for token in _keep_dicts(part.get("logprobs")):
                return _read_tokens(token.get("top_logprobs"), token, "token", "logprob")
    return {}


def _read_tokens(top: Any, chosen: Mapping[str, Any], text: str, logprob: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in (*_keep_dicts(top), chosen):
        token, value = each.get(text), _read_finite(each.get(logprob))
        if isinstance(token, str) and value is not None:
            found.setdefault(token, value)
    return found


def _read_finite(value: Any) -> float | None:
    """Return a number of a response; None if it is none, or too large for a float, as JSON integers may be."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _keep_dicts(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _dict_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
