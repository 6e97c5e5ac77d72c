"""An account without money: whatever the vendor calls it, the run stops at once; a mere rate limit is not mistaken for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anthropic
import openai
import pytest
from google import genai
from google.genai import types
from google.genai.errors import ClientError

from pramana.errors import AuthenticationFailed, OutOfCredit, ProviderError, RateLimited, Rejected
from pramana.model import Provider, Request, Turn
from pramana.providers.accounts import Account
from pramana.providers.http import HttpTransport
from pramana.providers.text.anthropic import Anthropic
from pramana.providers.text.google import Google
from pramana.providers.text.openai import OpenAI, OpenAIResponses

from ..loopback.anthropic import AnthropicWire
from ..loopback.google import GoogleWire
from ..loopback.openai import OpenAIWire
from ..loopback.server import Fault, Loopback, Wire

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-test-0123456789"
T = TypeVar("T")


def serve(use: Callable[[Loopback], Awaitable[T]], wire: Wire) -> T:
    async def go() -> T:
        async with Loopback(wire, faults=[Fault("unpaid")]) as server:
            return await use(server)

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("wire", "make", "says"),
    [
        (
            OpenAIWire(),
            OpenAI,
            r"the account at OpenAI \(.*\) is out of credit.* \(429\): You exceeded your current quota",
        ),
        (OpenAIWire(), OpenAIResponses, r"the account at OpenAI \(.*\) is out of credit.* \(429\): You exceeded"),
        (
            AnthropicWire(),
            Anthropic,
            r"the account at Anthropic \(.*\) is out of credit.* \(400\): Your credit balance",
        ),
        (GoogleWire(), Google, r"the account at Google \(.*\) is out of credit.* \(403\): This API method requires"),
    ],
)
def test_each_vendors_out_of_credit_error_is_recognised(
    wire: Wire, make: Callable[[Account], Provider], says: str
) -> None:
    async def use(server: Loopback) -> None:
        provider = make(Account(server.url, KEY))
        try:
            await provider.ask(Request("gpt-5", (Turn("user", "Well?"),)))
        finally:
            await provider.close()

    with pytest.raises(OutOfCredit, match=says) as caught:
        serve(use, wire)
    assert caught.value.fatal
    assert not caught.value.transient
    assert "\n" not in str(caught.value)


# The vendors' own SDKs understand what the servers send.


def test_out_of_credit_error_matches_the_openai_sdk() -> None:
    async def use(server: Loopback) -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            await client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "Well?"}])

    with pytest.raises(openai.RateLimitError) as caught:
        serve(use, OpenAIWire())
    assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")


def test_out_of_credit_error_matches_the_anthropic_sdk() -> None:
    async def use(server: Loopback) -> None:
        async with anthropic.AsyncAnthropic(base_url=server.url, auth_token=KEY, max_retries=0) as client:
            await client.messages.create(
                model="claude-opus-4-6", max_tokens=5, messages=[{"role": "user", "content": "Well?"}]
            )

    with pytest.raises(anthropic.BadRequestError, match="credit balance is too low"):
        serve(use, AnthropicWire())


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
def test_out_of_credit_error_matches_the_google_sdk() -> None:
    async def use(server: Loopback) -> None:
        client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=server.url))
        try:
            await client.aio.models.generate_content(model="gemini-2.5-pro", contents="Well?")
        finally:
            await client.aio.aclose()

    with pytest.raises(ClientError, match="requires billing to be enabled") as caught:
        serve(use, GoogleWire())
    assert (caught.value.code, caught.value.status) == (403, "PERMISSION_DENIED")


# Bodies as they were documented or reported


def make_error(**given: Any) -> dict[str, Any]:
    return {"error": given}


QUOTA = "You exceeded your current quota, please check your plan and billing details."
UNPAID = [
    (402, make_error(type="billing_error", message="There's an issue with your billing")),
    (402, make_error(code=402, status="RESOURCE_EXHAUSTED", message="Your prepayment credits are depleted.")),
    (402, "Insufficient Balance"),
    (402, ""),
    (429, make_error(message=QUOTA, type="insufficient_quota", param=None, code="insufficient_quota")),
    (429, make_error(message=QUOTA, type="insufficient_quota", param=None, code=None)),
    (429, make_error(message="Your account is not active", type="billing_not_active", code="billing_not_active")),
    (429, make_error(code=429, status="RESOURCE_EXHAUSTED", message="Your prepayment credits are depleted. Please go to AI Studio.")),
    (400, make_error(message="Billing hard limit has been reached", type="invalid_request_error", code="billing_hard_limit_reached")),
    (400, make_error(type="invalid_request_error", message="Your credit balance is too low to access the Anthropic API.")),
    (400, make_error(type="invalid_request_error", message="You have reached your specified API usage limits. You will regain access on 2026-12-01.")),
    (400, make_error(code=400, status="FAILED_PRECONDITION", message="Gemini API free tier is not available in your country. Please enable billing on your project in Google AI Studio.")),
    (403, make_error(code=403, status="PERMISSION_DENIED", message="Denied.", details=[{"reason": "BILLING_DISABLED"}])),
    (403, [make_error(code=403, message="This API method requires billing to be enabled.")]),
]  # fmt: skip
PAID = [
    (429, make_error(message="Rate limit reached", type="requests", code="rate_limit_exceeded"), RateLimited),
    # Google says this of a limit a minute as well, and it passes.
    (
        429,
        make_error(code=429, status="RESOURCE_EXHAUSTED", message=QUOTA, details=[{"retryDelay": "7s"}]),
        RateLimited,
    ),
    (
        403,
        make_error(code=403, status="PERMISSION_DENIED", details=[{"reason": "SERVICE_DISABLED"}]),
        AuthenticationFailed,
    ),
    (400, make_error(message="max_tokens is too low", type="invalid_request_error", code=None), Rejected),
]


@pytest.mark.parametrize(("status", "body"), UNPAID)
def test_out_of_credit_messages_are_recognised(status: int, body: Any) -> None:
    refused = HttpTransport("OpenAI", Account("http://host/v1", KEY)).failures.make_status_error(status, body)
    assert type(refused) is OutOfCredit
    assert (refused.status, refused.exit_code, refused.code) == (status, 3, "out_of_credit")
    assert "add credit or raise the limit" in str(refused)


@pytest.mark.parametrize(("status", "body", "kind"), PAID)
def test_rate_limits_are_not_mistaken_for_missing_credit(status: int, body: Any, kind: type[ProviderError]) -> None:
    assert (
        type(HttpTransport("OpenAI", Account("http://host/v1", KEY)).failures.make_status_error(status, body)) is kind
    )
