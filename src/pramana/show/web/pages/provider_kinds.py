"""The kinds of providers as their forms show them: a description, and the labels and hints of their fields."""

from collections.abc import Mapping
from dataclasses import dataclass

_VENDOR_URL_HINT = "empty: the vendor’s own, {}"
_VENDOR_URL_HINT_WITHOUT_ADDRESS = "empty: the vendor’s own"


@dataclass(frozen=True, slots=True)
class ProviderKindForm:
    """The form of one kind of provider; a field without a label is not shown."""

    title: str
    summary: str
    url_hint: str = ""
    """The hint below the URL field."""
    model_label: str = ""
    """The label of the model field."""
    model_hint: str = ""
    key_hint: str = ""
    """The hint below the key field."""
    is_key_required: bool = True
    needs_model_to_probe: bool = False
    """Whether a connection test needs to know which agent to call."""
    is_described_in_yaml: bool = False


_MODEL_HINT = "used if a run names only the provider; empty: none"


def _make_embedded_kind(title: str, summary: str) -> ProviderKindForm:
    """Return the kind of an embedded provider, which calls no service."""
    return ProviderKindForm(
        title,
        summary,
        model_label="Options",
        model_hint="the part after the colon, used if a run names only the provider; empty: none",
    )


KINDS_BY_GROUP: Mapping[str, Mapping[str, ProviderKindForm]] = {
    "Your own server": {
        "compatible": ProviderKindForm(
            "OpenAI-compatible server",
            "vLLM, Ollama, LM Studio, llama.cpp, a gateway, or any other server with OpenAI’s chat completions API.",
            url_hint="such as https://vllm.example/v1",
            model_label="Model",
            model_hint=_MODEL_HINT,
            key_hint="if the server requires one",
            is_key_required=False,
        ),
    },
    "Vendors": {
        "openai": ProviderKindForm(
            "OpenAI",
            "GPT models, over the Chat Completions API.",
            url_hint=_VENDOR_URL_HINT.format("https://api.openai.com/v1"),
            model_label="Model",
            model_hint=_MODEL_HINT,
            key_hint="begins with sk-",
        ),
        "openai-responses": ProviderKindForm(
            "OpenAI (responses)",
            "GPT models, over the Responses API.",
            url_hint=_VENDOR_URL_HINT.format("https://api.openai.com/v1"),
            model_label="Model",
            model_hint=_MODEL_HINT,
            key_hint="begins with sk-",
        ),
        "anthropic": ProviderKindForm(
            "Anthropic",
            "Claude models.",
            url_hint=_VENDOR_URL_HINT.format("https://api.anthropic.com"),
            model_label="Model",
            model_hint=_MODEL_HINT,
            key_hint="begins with sk-ant-",
        ),
        "google": ProviderKindForm(
            "Google",
            "Gemini models.",
            url_hint=_VENDOR_URL_HINT.format("https://generativelanguage.googleapis.com"),
            model_label="Model",
            model_hint=_MODEL_HINT,
            key_hint="from Google AI Studio",
        ),
    },
    "Voice agents": {
        "openai-realtime": ProviderKindForm(
            "OpenAI Realtime",
            "Speech to speech, called over a WebSocket.",
            url_hint=_VENDOR_URL_HINT.format("https://api.openai.com/v1"),
            model_label="Model",
            model_hint=_MODEL_HINT,
            key_hint="begins with sk-",
        ),
        "gemini-live": ProviderKindForm(
            "Gemini Live",
            "Google’s speech-to-speech models, called over a WebSocket.",
            url_hint=_VENDOR_URL_HINT.format("https://generativelanguage.googleapis.com"),
            model_label="Model",
            model_hint=_MODEL_HINT,
            key_hint="from Google AI Studio",
        ),
        "elevenlabs": ProviderKindForm(
            "ElevenLabs",
            "An agent of ElevenLabs.",
            url_hint=_VENDOR_URL_HINT_WITHOUT_ADDRESS,
            model_label="Agent’s id",
            model_hint="ID of the agent to call; empty: each run names the agent",
            key_hint="empty for a public agent",
            is_key_required=False,
            needs_model_to_probe=True,
        ),
        "deepgram": ProviderKindForm(
            "Deepgram",
            "Deepgram’s voice agent, with a language model of your choice.",
            url_hint=_VENDOR_URL_HINT_WITHOUT_ADDRESS,
            model_label="Language model",
            model_hint="such as gpt-4o-mini; empty: each run names the model",
            key_hint="your Deepgram API key",
            needs_model_to_probe=True,
        ),
        "vapi": ProviderKindForm(
            "Vapi",
            "An assistant of Vapi.",
            url_hint=_VENDOR_URL_HINT_WITHOUT_ADDRESS,
            model_label="Assistant’s id",
            model_hint="ID of the assistant to call; empty: each run names the assistant",
            key_hint="your private Vapi key",
            needs_model_to_probe=True,
        ),
        "twilio": ProviderKindForm(
            "Twilio Media Streams",
            "Your own server, called as Twilio would call it.",
            model_label="Address to call",
            model_hint="such as wss://agent.example/media; the key is only sent to this address",
            key_hint="sent as a bearer token, if your server requires one; not your Twilio key",
            is_key_required=False,
            needs_model_to_probe=True,
        ),
        "pipecat": ProviderKindForm(
            "Pipecat",
            "A bot behind Pipecat’s WebSocket transport.",
            model_label="Address to call",
            model_hint="such as wss://bot.example/ws; the key is only sent to this address",
            key_hint="sent as a bearer token, if your bot requires one",
            is_key_required=False,
            needs_model_to_probe=True,
        ),
        "cascade": ProviderKindForm(
            "Cascade",
            "Speech recognition, a text model and a voice, made into one agent.",
            url_hint=_VENDOR_URL_HINT.format("https://api.openai.com/v1"),
            model_label="Parts",
            model_hint="such as stt=whisper-1,chat=gpt-5-mini,tts=tts-1; empty: each run names the models",
            key_hint="key of the server above",
            is_key_required=False,
            needs_model_to_probe=True,
        ),
        "websocket": ProviderKindForm(
            "An agent you describe",
            "Any agent that talks over a WebSocket: a YAML description defines how to connect and what its messages "
            "mean.",
            url_hint="value of {base_url} in the description; empty: its default there",
            model_label="Model",
            model_hint="value of {model} in the description; empty: each run names the model, if the description uses "
            "{model}",
            key_hint="value of {key} in the description",
            is_key_required=False,
            is_described_in_yaml=True,
        ),
    },
    "On this machine": {
        "local": _make_embedded_kind("Embedded model", "The small language model that comes with Pramana."),
        "local-voice": _make_embedded_kind(
            "Embedded voice agent", "Speech recognition, language model and voice, all on this machine."
        ),
        "fake": _make_embedded_kind("Fake", "Returns fixed replies at once, to try things out."),
        "fake-voice": _make_embedded_kind("Fake voice agent", "Speaks fixed replies at once, to try things out."),
    },
}
KINDS_BY_NAME: Mapping[str, ProviderKindForm] = {
    name: kind for group in KINDS_BY_GROUP.values() for name, kind in group.items()
}
DESCRIPTION_TEMPLATE = """\
name: My agent
url: "wss://agent.example/talk"
headers:
  Authorization: Bearer {key}

uplink:
  rate: 16000
  send: {type: sound, data: "{audio}"}

downlink:
  rate: 24000
  rules:
    - match: {type: sound}
      event: agent_audio
      audio: data
    - match: {type: words, who: agent}
      event: agent_text
      text: words
      final: true

turn_end:
  silence_ms: 1500
"""


def find_kind(name: str) -> ProviderKindForm:
    """Return a kind by name; an empty one for a kind that a newer version has stored."""
    return KINDS_BY_NAME.get(name) or ProviderKindForm(name, "")
