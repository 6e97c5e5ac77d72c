"""Logprobs of the first token, as each wire format sends them; anything else is no logprobs, and never an error."""

import json
from typing import Any

import pytest

from pramana.model import Reply
from pramana.providers.kinds import VARIABLES_BY_KIND
from pramana.providers.logprobs import logprob_parameters, read_first_token_logprobs

CHAT_TOKEN = {
    "token": "7",
    "logprob": -0.5,
    "bytes": [55],
    "top_logprobs": [{"token": "7", "logprob": -0.5}, {"token": "3", "logprob": -1.5}],
}
LATER_TOKEN = {"token": ".", "logprob": -0.1, "top_logprobs": []}
BY_FORMAT: dict[str, Any] = {
    "chat, streamed": [
        {"choices": [{"index": 0, "delta": {"role": "assistant"}, "logprobs": None}]},
        {"choices": [{"index": 0, "delta": {"content": "7"}, "logprobs": {"content": [CHAT_TOKEN], "refusal": None}}]},
        {"choices": [{"index": 0, "delta": {"content": "."}, "logprobs": {"content": [LATER_TOKEN]}}]},
    ],
    "chat, whole": {"choices": [{"message": {"content": "7."}, "logprobs": {"content": [CHAT_TOKEN, LATER_TOKEN]}}]},
    "responses, streamed": [
        {"type": "response.created", "response": {"output": []}},
        {"type": "response.output_text.delta", "delta": "7", "logprobs": [CHAT_TOKEN]},
    ],
    "responses, whole": {"output": [{"type": "reasoning"}, {"content": [{"text": "7", "logprobs": [CHAT_TOKEN]}]}]},
    "google": [
        {
            "candidates": [
                {
                    "content": {"parts": [{"text": "7"}]},
                    "logprobsResult": {
                        "chosenCandidates": [{"token": "7", "tokenId": 5, "logProbability": -0.5}],
                        "topCandidates": [
                            {
                                "candidates": [
                                    {"token": "7", "logProbability": -0.5},
                                    {"token": "3", "logProbability": -1.5},
                                ]
                            }
                        ],
                    },
                }
            ]
        }
    ],
}


def make_reply(raw: Any) -> Reply:
    return Reply("7", raw=raw if isinstance(raw, bytes | None) else json.dumps(raw).encode())


@pytest.mark.parametrize("name", BY_FORMAT)
def test_the_logprobs_of_the_first_token_are_read(name: str) -> None:
    assert read_first_token_logprobs(make_reply(BY_FORMAT[name])) == {"7": -0.5, "3": -1.5}


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"",
        b"not JSON",
        [],
        {},
        5,
        [None, 5, "x"],
        {"choices": "no"},
        {"choices": [{"logprobs": {"content": "no"}}]},
        {"choices": [{"logprobs": {"content": [{"token": 5, "logprob": "x", "top_logprobs": 7}]}}]},
        {"choices": [{"logprobs": {"content": [{"token": "a", "logprob": None}]}}]},
        b'{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": -Infinity}]}}]}',
        {"candidates": [{"logprobsResult": {"topCandidates": [], "chosenCandidates": [{}]}}]},
    ],
)
def test_a_response_without_usable_logprobs_has_none(raw: Any) -> None:
    assert read_first_token_logprobs(make_reply(raw)) == {}


def test_an_integer_beyond_all_floats_is_no_logprob() -> None:
    huge = {"token": "7", "logprob": -(10**400), "top_logprobs": [{"token": "3", "logprob": -1.5}]}
    raw = json.dumps({"choices": [{"message": {"content": "7"}, "logprobs": {"content": [huge]}}]}).encode()
    assert read_first_token_logprobs(make_reply(raw)) == {"3": -1.5}


def test_logprobs_are_requested_only_from_providers_that_have_them() -> None:
    kinds = [*VARIABLES_BY_KIND, "compatible", "local"]
    asked = {kind for kind in kinds if logprob_parameters(kind)}
    assert asked == {"openai", "openai-responses", "google", "compatible", "local"}
