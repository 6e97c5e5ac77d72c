"""Every fault of the loopback servers in every wire format: an error of the right kind, or a reply."""

from collections.abc import Callable
from typing import Any, get_args

import pytest

from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    OutOfCredit,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    UnknownModel,
)
from pramana.model import Reply
from pramana.providers.text.openai import OpenAI, OpenAIResponses

from ...loopback.server import Fault, FaultKind
from . import test_anthropic, test_google, test_openai

pytestmark = pytest.mark.usefixtures("virtual_time")

WIRES: dict[str, Callable[..., Reply]] = {
    "OpenAI chat": lambda **given: test_openai.ask_server(make=OpenAI, **given),
    "OpenAI responses": lambda **given: test_openai.ask_server(make=OpenAIResponses, **given),
    "Anthropic": test_anthropic.ask_server,
    "Google": test_google.ask_server,
}
ERRORS: dict[FaultKind, type[ProviderError]] = {
    "unauthorized": AuthenticationFailed,
    "parameter": Rejected,
    "unknown_model": UnknownModel,
    "rate_limited": RateLimited,
    "error": Unavailable,
    "overloaded": Unavailable,
    "hang": Unavailable,
    "cut": BrokenReply,
    "short": BrokenReply,
    "bad_json": BrokenReply,
    "blocked": Rejected,
    "unpaid": OutOfCredit,
    "error_midway": Unavailable,
}
TEXTS: dict[FaultKind, str | None] = {
    "long_line": "a" * (1 << 20),
    "filtered": None,
    "refusal": "I cannot help with that.",
    "empty": "",
    "plain": None,
}
"""What is read; None where it differs from format to format, and some of it is there."""
READ_ALL_THE_SAME = {("Google", "blocked"): ""}
"""Google answers a refused prompt with an empty text, and says why."""
PARAMETERS = {"Anthropic": "metadata", "Google": "top_p"}


def test_every_fault_is_covered() -> None:
    assert {*ERRORS, *TEXTS} == set(get_args(FaultKind))
    assert not ERRORS.keys() & TEXTS.keys()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", get_args(FaultKind))
def test_each_fault_raises_its_error_or_is_read(wire: str, kind: FaultKind) -> None:
    parameter = PARAMETERS.get(wire, "temperature") if kind == "parameter" else None
    given: dict[str, Any] = {"faults": [Fault(kind, parameter=parameter)]}
    if kind in ERRORS and (wire, kind) not in READ_ALL_THE_SAME:
        with pytest.raises(ProviderError) as caught:
            WIRES[wire](**given)
        assert type(caught.value) is ERRORS[kind]
        return
    reply = WIRES[wire](**given)
    text = READ_ALL_THE_SAME.get((wire, kind), TEXTS.get(kind))
    assert reply.finish_reason
    assert reply.text == text if text is not None else kind == "filtered" or reply.text


@pytest.mark.parametrize("wire", WIRES)
def test_retry_after_is_read(wire: str) -> None:
    with pytest.raises(RateLimited) as caught:
        WIRES[wire](faults=[Fault("rate_limited", retry_after="7")])
    assert caught.value.retry_after == 7.0
