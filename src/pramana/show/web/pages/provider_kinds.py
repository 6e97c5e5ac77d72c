"""The kinds of providers as their forms show them: a description, and the labels and hints of their fields."""

from collections.abc import Mapping
from dataclasses import dataclass

_VENDOR_URL = "empty: the vendor’s own, {}"
_OWN_URL = "empty: the vendor’s own"


@dataclass(frozen=True, slots=True)
class Kind:
    """The form of one kind of provider; a field without a label is not shown."""

    title: str
    about: str
    url: str = ""
    """The hint below the URL field."""
    model: str = ""
    """The label of the model field."""
    model_hint: str = ""
    key: str = ""
    """The hint below the key field."""
    key_needed: bool = True
    called: bool = False
    """Whether a connection test needs to know which agent to call."""
    described: bool = False


_MODEL_HINT = "used if a run names only the provider; empty: none"


def _embedded_kind(title: str, about: str) -> Kind:
    """Return the kind of an embedded provider, which calls no service."""
    return Kind(
        title,
        about,
        model="Options",
        model_hint="the part after the colon, used if a run names only the provider; empty: none",
    )


GROUPS: Mapping[str, Mapping[str, Kind]] = {
    "Your own server": {
        "compatible": Kind(
            "OpenAI-compatible server",
            "vLLM, Ollama, LM Studio, llama.cpp, a gateway, or any other server with OpenAI’s chat completions API.",
            url="such as https://vllm.example/v1",
            model="Model",
            model_hint=_MODEL_HINT,
            key="if the server requires one",
            key_needed=False,
        ),
    },
    "Vendors": {
        "openai": Kind(
            "OpenAI",
            "GPT models, over the Chat Completions API.",
            url=_VENDOR_URL.format("https://api.openai.com/v1"),
            model="Model",
            model_hint=_MODEL_HINT,
            key="begins with sk-",
        ),
        "openai-responses": Kind(
            "OpenAI (responses)",
            "GPT models, over the Responses API.",
            url=_VENDOR_URL.format("https://api.openai.com/v1"),
            model="Model",
            model_hint=_MODEL_HINT,
            key="begins with sk-",
        ),
        "anthropic": Kind(
            "Anthropic",
            "Claude models.",
            url=_VENDOR_URL.format("https://api.anthropic.com"),
            model="Model",
            model_hint=_MODEL_HINT,
            key="begins with sk-ant-",
        ),
        "google": Kind(
            "Google",
            "Gemini models.",
            url=_VENDOR_URL.format("https://generativelanguage.googleapis.com"),
            model="Model",
            model_hint=_MODEL_HINT,
            key="from Google AI Studio",
        ),
    },
    "Voice agents": {
        "openai-realtime": Kind(
            "OpenAI Realtime",
            "Speech to speech, called over a WebSocket.",
            url=_VENDOR_URL.format("https://api.openai.com/v1"),
            model="Model",
            model_hint=_MODEL_HINT,
            key="begins with sk-",
        ),
        "gemini-live": Kind(
            "Gemini Live",
            "Google’s speech-to-speech models, called over a WebSocket.",
            url=_VENDOR_URL.format("https://generativelanguage.googleapis.com"),
            model="Model",
            model_hint=_MODEL_HINT,
            key="from Google AI Studio",
        ),
        "elevenlabs": Kind(
            "ElevenLabs",
            "An agent of ElevenLabs.",
            url=_OWN_URL,
            model="Agent’s id",
            model_hint="ID of the agent to call; empty: each run names the agent",
            key="empty for a public agent",
            key_needed=False,
            called=True,
        ),
        "deepgram": Kind(
            "Deepgram",
            "Deepgram’s voice agent, with a language model of your choice.",
            url=_OWN_URL,
            model="Language model",
            model_hint="such as gpt-4o-mini; empty: each run names the model",
            key="your Deepgram API key",
            called=True,
        ),
        "vapi": Kind(
            "Vapi",
            "An assistant of Vapi.",
            url=_OWN_URL,
            model="Assistant’s id",
            model_hint="ID of the assistant to call; empty: each run names the assistant",
            key="your private Vapi key",
            called=True,
        ),
        "twilio": Kind(
            "Twilio Media Streams",
            "Your own server, called as Twilio would call it.",
            model="Address to call",
            model_hint="such as wss://agent.example/media; the key is only sent to this address",
            key="sent as a bearer token, if your server requires one; not your Twilio key",
            key_needed=False,
            called=True,
        ),
        "pipecat": Kind(
            "Pipecat",
            "A bot behind Pipecat’s WebSocket transport.",
            model="Address to call",
            model_hint="such as wss://bot.example/ws; the key is only sent to this address",
            key="sent as a bearer token, if your bot requires one",
            key_needed=False,
            called=True,
        ),
        "cascade": Kind(
            "Cascade",
            "Speech recognition, a text model and a voice, made into one agent.",
            url=_VENDOR_URL.format("https://api.openai.com/v1"),
            model="Parts",
            model_hint="such as stt=whisper-1,chat=gpt-5-mini,tts=tts-1; empty: each run names the models",
            key="key of the server above",
            key_needed=False,
            called=True,
        ),
        "websocket": Kind(
            "An agent you describe",
            "Any agent that talks over a WebSocket: a YAML description defines how to connect and what its messages "
            "mean.",
            url="value of {base_url} in the description; empty: its default there",
            model="Model",
            model_hint="value of {model} in the description; empty: each run names the model, if the description uses "
            "{model}",
            key="value of {key} in the description",
            key_needed=False,
            described=True,
        ),
    },
    "On this machine": {
        "local": _embedded_kind("Embedded model", "The small language model that comes with Pramana."),
        "local-voice": _embedded_kind(
            "Embedded voice agent", "Speech recognition, language model and voice, all on this machine."
        ),
        "fake": _embedded_kind("Fake", "Returns fixed replies at once, to try things out."),
        "fake-voice": _embedded_kind("Fake voice agent", "Speaks fixed replies at once, to try things out."),
    },
}
KINDS: Mapping[str, Kind] = {name: kind for group in GROUPS.values() for name, kind in group.items()}
TEMPLATE = """\
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


def find_kind(name: str) -> Kind:
    """Return a kind by name; an empty one for a kind that a newer version has stored."""
    return KINDS.get(name) or Kind(name, "")
