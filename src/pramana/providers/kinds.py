"""The kinds of providers: the registry, and what is known about each kind before one is opened.

Plain tables, so that looking up a name imports nothing else. Nothing here sends a request or reads the environment.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pramana.errors import InvalidInput
from pramana.plugins import Registry

providers = Registry(
    "provider",
    "pramana.providers",
    {
        "openai": "pramana.providers.text.openai:OpenAI",
        "openai-responses": "pramana.providers.text.openai:OpenAIResponses",
        "anthropic": "pramana.providers.text.anthropic:Anthropic",
        "google": "pramana.providers.text.google:Google",
        "compatible": "pramana.providers.text.openai:OpenAI",
        "local": "pramana.providers.text.local:LocalProvider",
        "fake": "pramana.providers.text.fake:FakeProvider",
        "cascade": "pramana.providers.voice.cascade:Cascade",
        "local-voice": "pramana.providers.voice.cascade:Cascade",
        "fake-voice": "pramana.providers.voice.fake:FakeVoice",
        "openai-realtime": "pramana.providers.voice.realtime:RealtimeProvider",
        "gemini-live": "pramana.providers.voice.live:LiveProvider",
        "elevenlabs": "pramana.providers.voice.declared:DeclaredProvider",
        "deepgram": "pramana.providers.voice.declared:DeclaredProvider",
        "vapi": "pramana.providers.voice.declared:DeclaredProvider",
        "twilio": "pramana.providers.voice.declared:DeclaredProvider",
        "pipecat": "pramana.providers.voice.declared:DeclaredProvider",
        "websocket": "pramana.providers.voice.declared:DeclaredProvider",
        "python": "pramana.providers.text.function:FunctionProvider",
        "command": "pramana.providers.text.command:CommandProvider",
    },
)
MODEL_ALIASES: Mapping[str, str] = {
    "opus": "claude-opus-4-6",
    "sonnet": "claude-sonnet-4-6",
    "haiku": "claude-haiku-4-5",
}
PROVIDER_ID_RE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Valid names for a registered provider, which is typed before a colon."""
MODEL_PREFIXES: Mapping[str, re.Pattern[str]] = {
    "openai": re.compile(r"gpt-|chatgpt-|o[134](-|$)|ft:(gpt-|o[134]-)|text-embedding-"),
    "anthropic": re.compile(r"claude-"),
    "google": re.compile(r"gemini-|gemma-"),
}


@dataclass(frozen=True, slots=True)
class ProviderVariables:
    """The environment variables that configure a provider; of several, the first one set is used."""

    key_variables: tuple[str, ...]
    base_url_variables: tuple[str, ...]
    default_base_url: str | None = None
    """The vendor's own; None: there is no default."""
    key_required: bool = True


VARIABLES_BY_KIND: Mapping[str, ProviderVariables] = {
    "openai": ProviderVariables(("OPENAI_API_KEY",), ("OPENAI_BASE_URL",), "https://api.openai.com/v1"),
    "openai-responses": ProviderVariables(("OPENAI_API_KEY",), ("OPENAI_BASE_URL",), "https://api.openai.com/v1"),
    "anthropic": ProviderVariables(
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), ("ANTHROPIC_BASE_URL",), "https://api.anthropic.com"
    ),
    "google": ProviderVariables(
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        ("GOOGLE_GEMINI_BASE_URL",),
        "https://generativelanguage.googleapis.com",
    ),
    "cascade": ProviderVariables(
        ("CASCADE_API_KEY", "OPENAI_API_KEY"),
        ("CASCADE_BASE_URL", "OPENAI_BASE_URL"),
        "https://api.openai.com/v1",
        key_required=False,
    ),
    "openai-realtime": ProviderVariables(("OPENAI_API_KEY",), ("OPENAI_BASE_URL",), "https://api.openai.com/v1"),
    "gemini-live": ProviderVariables(
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        ("GOOGLE_GEMINI_BASE_URL",),
        "https://generativelanguage.googleapis.com",
    ),
    # Their addresses are in their descriptions; a public agent of ElevenLabs needs no key.
    "elevenlabs": ProviderVariables(("ELEVENLABS_API_KEY",), ("ELEVENLABS_BASE_URL",), "", key_required=False),
    "deepgram": ProviderVariables(("DEEPGRAM_API_KEY",), ("DEEPGRAM_BASE_URL",), ""),
    "vapi": ProviderVariables(("VAPI_API_KEY",), ("VAPI_BASE_URL",), ""),
    "twilio": ProviderVariables(("TWILIO_AGENT_API_KEY",), ("TWILIO_AGENT_BASE_URL",), "", key_required=False),
    "pipecat": ProviderVariables(("PIPECAT_API_KEY",), ("PIPECAT_BASE_URL",), "", key_required=False),
    "websocket": ProviderVariables(("WEBSOCKET_API_KEY",), ("WEBSOCKET_BASE_URL",), "", key_required=False),
    # A separate variable: OpenAI's key must not go to an arbitrary server.
    "compatible": ProviderVariables(("COMPATIBLE_API_KEY",), ("COMPATIBLE_BASE_URL",), key_required=False),
}
VOICE_AGENT_KINDS_WITH_ACCOUNT = (
    "cascade", "openai-realtime", "gemini-live", "elevenlabs", "deepgram", "vapi", "twilio", "pipecat", "websocket",
)  # fmt: skip
"""Voice agents that need an account; their agents are not listed."""
KINDS_WITHOUT_ACCOUNT = ("local", "local-voice", "fake", "fake-voice", "python", "command")
CODE_RUNNING_KINDS = ("python", "command")


def check_url(address: str, syntax_hint: str, secret_hint: str) -> str:
    """Return the address of a server if it may be stored; raise `InvalidInput` if it may hold a secret."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if not parts.hostname:
        raise InvalidInput(f"the server address is not a URL; {syntax_hint}")
    if parts.username or parts.password or parts.query:
        raise InvalidInput(
            f"the address of {parts.hostname} contains a user, a password or a query, and addresses are stored; "
            f"leave them out and {secret_hint}"
        )
    return address.rstrip("/")
