"""A provider that calls no model: a request comes in, a made-up reply goes out, the same one every time.

For tests, documentation and trying things out without a key. The reply depends only on the seed and the request; a
failure depends on them and on how often this very request has failed before, so that a retry can succeed. Nothing else
is random, and without a latency nothing waits.

| written | answers with |
| --- | --- |
| `fake` | words chosen by seed and request |
| `fake:echo` | the last user turn |
| `fake:fixed=TEXT` | TEXT, everything up to the end: commas are part of it |

Options come before the answer, separated by commas: `fake:latency=0.2,jitter=0.1,rate_limited=0.05,echo`.
`seed`, `tokens` (words per answer), `latency` and `jitter` (seconds; between none and all of the jitter is added), and
the share of requests, 0 to 1, that end in each error: `rate_limited`, `unavailable`, `broken_reply`,
`rejected`, `authentication_failed`, `out_of_credit`, `unknown_model`.
"""

import asyncio
import hashlib
import json
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pramana import clock
from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    InvalidInput,
    OutOfCredit,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    UnknownModel,
    quote_text,
    suggest_similar,
)
from pramana.model import Reply, Request, Target, Usage
from pramana.replies import encode_raw_response

ERROR_BY_CODE: Mapping[str, type[ProviderError]] = {
    each.code: each
    for each in (RateLimited, Unavailable, BrokenReply, Rejected, AuthenticationFailed, OutOfCredit, UnknownModel)
}
NUMBER_OPTION_MAXIMUMS: Mapping[str, float] = {
    "seed": 10**9,
    "tokens": 100_000,
    "latency": 3600,
    "jitter": 3600,
    **dict.fromkeys(ERROR_BY_CODE, 1),
}
"""Numeric options and their maximums."""
# fmt: off
REPLY_WORDS = (
    "amber", "autumn", "basin", "birch", "candle", "canyon", "cedar", "cinder", "clover", "coral", "dawn", "delta",
    "ember", "falcon", "fern", "field", "garnet", "glacier", "harbor", "hazel", "heron", "indigo", "island",
    "juniper", "lantern", "lichen", "maple", "meadow", "mist", "moss", "ochre", "orchard", "pebble", "pine",
    "prairie", "quartz", "raven", "reed", "ridge", "river", "saffron", "shore", "silver", "slate", "sparrow",
    "spruce", "summit", "thistle", "tide", "timber", "tundra", "umber", "valley", "violet", "willow", "winter",
)
# fmt: on
_SERVED_MODEL = "fake-1"


class FakeProvider:
    """The fake provider; its arguments are those of `parse_fake`."""

    def __init__(
        self,
        *,
        answer: str = "words",
        text: str = "",
        seed: int = 0,
        tokens: int = 12,
        latency: float = 0.0,
        jitter: float = 0.0,
        errors: Mapping[str, float] | None = None,
    ) -> None:
        self._answer, self._text, self._seed, self._tokens = answer, text, int(seed), int(tokens)
        self._latency, self._jitter, self._errors = latency, jitter, dict(errors or {})
        self._is_random = bool(self._jitter or self._errors)
        self._failed: dict[bytes, int] = {}
        """How often each request has failed since it last succeeded."""

    @classmethod
    def open(cls, target: Target, account: object = None) -> "FakeProvider":  # noqa: ARG003 - unused: this provider has no account
        """Return the provider for the target."""
        return cls(**target.arguments)

    async def ask(self, request: Request) -> Reply:
        """Return a made-up reply, or raise a fault on purpose."""
        start = clock.monotonic()
        if self._is_random or self._answer == "words":
            digest = _digest_request(self._seed, request)
        if self._is_random:
            chance = random.Random(digest + bytes([self._failed.get(digest, 0) % 256]))
            await asyncio.sleep(self._latency + self._jitter * chance.random())
            self._maybe_raise_fault(digest, chance)
        elif self._latency:
            await asyncio.sleep(self._latency)
        if self._answer == "words":
            chosen = random.Random(digest)
            text = " ".join(chosen.choice(REPLY_WORDS) for _ in range(self._tokens))
        elif self._answer == "echo":
            text = next((turn.text for turn in reversed(request.turns) if turn.role == "user"), "")
        else:
            text = self._text
        words = text.split()
        limit = request.parameters.get("max_tokens")
        finish = "stop"
        if isinstance(limit, int) and len(words) > limit:
            text, words, finish = " ".join(words[:limit]), words[:limit], "length"
        total = clock.monotonic() - start
        return Reply(
            text,
            Usage(sum(len(turn.text.split()) for turn in request.turns), len(words), 0),
            served_model=_SERVED_MODEL,
            fingerprint=f"seed-{self._seed}",
            finish_reason=finish,
            first_token_s=total if words else None,
            total_s=total,
            raw=encode_raw_response({"text": text, "finish_reason": finish}),
        )

    async def models(self) -> list[str]:
        """Return the kinds of answers."""
        return ["echo", "fixed", "words"]

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def _maybe_raise_fault(self, request_digest: bytes, rng: random.Random) -> None:
        if code := draw_fault(self._errors, rng):
            self._failed[request_digest] = self._failed.get(request_digest, 0) + 1
            raise ERROR_BY_CODE[code](f"error requested from the fake provider: {code}")
        self._failed.pop(request_digest, None)  # keeps memory flat: only requests that are failing now are stored


def draw_fault(probabilities: Mapping[str, float], rng: random.Random) -> str | None:
    """Draw one of the faults, each with its share as the probability; None for no fault."""
    drawn = rng.random()
    for fault, share in probabilities.items():
        if drawn < share:
            return fault
        drawn -= share
    return None


def parse_fake(options_text: str) -> dict[str, Any]:
    """Return the arguments of `FakeProvider` for the text after `fake:`.

    >>> parse_fake("seed=7,rate_limited=0.5,echo")
    {'seed': 7, 'errors': {'rate_limited': 0.5}, 'answer': 'echo'}
    >>> parse_fake("fixed=yes, surely")
    {'answer': 'fixed', 'text': 'yes, surely'}
    """
    return parse_fake_options(
        options_text,
        "fake",
        ("echo", "words"),
        NUMBER_OPTION_MAXIMUMS,
        {"errors": ERROR_BY_CODE},
        "provider",
        "fake:latency=0.1,echo",
    )


_INTEGER_OPTIONS = ("seed", "tokens")


def parse_fake_options(
    options_text: str,
    provider: str,
    answer_kinds: Sequence[str],
    maximums: Mapping[str, float],
    faults_by_argument: Mapping[str, Collection[str]],
    provider_noun: str,
    example: str,
) -> dict[str, Any]:
    """Parse the options of a fake: numbers up to their maximums, then the kind of answer; `fixed=` takes the rest.

    `faults_by_argument` lists the faults under the argument that holds them.
    """
    found: dict[str, Any] = {}
    ((together, faults),) = faults_by_argument.items()
    rest = options_text
    while rest:
        if rest.startswith("fixed="):
            found |= {"answer": "fixed", "text": rest.removeprefix("fixed=")}
            break
        option, _, rest = rest.partition(",")
        name, equals, value = option.strip().partition("=")
        if name in answer_kinds and not equals:
            found["answer"] = name
        elif name in maximums and equals:
            number = _parse_number(provider, name, value, maximums[name])
            (found.setdefault(together, {}) if name in faults else found)[name] = number
        else:
            hint = suggest_similar(name, (*answer_kinds, "fixed", *maximums))
            raise InvalidInput(
                f"{provider}: {quote_text(option)} is not an option of the fake {provider_noun}{hint}; "
                f"write {provider}, {provider}:{answer_kinds[0]}, {provider}:fixed=TEXT, or options first: {example}"
            )
    if (share := sum(found.get(together, {}).values())) > 1:
        raise InvalidInput(f"{provider}: the shares of {together} add up to {share:g}, which is more than 1")
    return found


def _parse_number(provider: str, name: str, value: str, maximum: float) -> float:
    whole = name in _INTEGER_OPTIONS
    try:
        number = int(value) if whole else float(value)
    except ValueError:
        number = -1
    if 0 <= number <= maximum:
        return number
    kind = "a whole number" if whole else "a number"
    raise InvalidInput(f"{provider}: {name} is {quote_text(value)}; expected {kind} between 0 and {maximum:,}")


def _digest_request(seed: int, request: Request) -> bytes:
    asked = [seed, request.model, [[turn.role, turn.text] for turn in request.turns], dict(request.parameters)]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).digest()
