"""SmolLM2-135M in this process, by llama.cpp: a conversation goes in, a reply comes out. No key, no network.

There is one engine per process, loaded on first use, which replies to one conversation at a time: on one machine the
same conversation and parameters then give the same text in any order and process. Other processors round differently,
so every reply records what it was computed with. There is always a system message, because this model's replies are
erratic without one. A reply ends after 256 tokens, or earlier if the caller ends it. Nothing is written to the
terminal. The model is weak: useful as a test subject that visibly fails, never as a judge.
"""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from pramana import clock
from pramana.embedded import weights
from pramana.embedded.engines import EngineInfo, parse_llama_features
from pramana.errors import BrokenReply, EngineMissing, Rejected, Unavailable
from pramana.installation import make_install_command
from pramana.model import Reply, Turn, Usage
from pramana.replies import encode_raw_response

NAME = "SmolLM2-135M-Instruct"
WEIGHTS_NAME = "smollm2-135m"
DEFAULT_SYSTEM_PROMPT = "You are a helpful assistant."
CONTEXT_TOKENS = 2048
"""Maximum tokens of a prompt and its reply together."""
MAX_REPLY_TOKENS = 256
_WEIGHTS_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_LENGTH_PARAMETERS = ("max_tokens", "max_completion_tokens", "n_predict")
_RESERVED_PARAMETERS = ("messages", "model", "stream", "stream_options")
StopCheck = Callable[[str, float], str | None]
"""Takes the reply so far and the seconds since its first token; returns a reason to end the reply (`repetition`,
`time`), or None to continue."""


def require_runtime() -> None:
    """Raise `EngineMissing` if the embedded model's runtime is not installed; weights alone are of no use."""
    if find_spec("xllamacpp") is None:
        raise EngineMissing(f"the embedded model needs its runtime, xllamacpp: {make_install_command('local')}")


class Engine:
    """The loaded model and its one thread."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._queue = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pramana-language")
        self._server: Any = None
        self.info: EngineInfo | None = None
        """What the model is computed with; None until it is loaded."""

    def submit(
        self,
        turns: Sequence[Turn],
        parameters: Mapping[str, Any],
        is_cancelled: Callable[[], bool],
        should_stop: StopCheck | None = None,
    ) -> "Future[Reply]":
        """Request a reply; conversations are processed in order.

        A reply in progress ends early, with `BrokenReply`, once `is_cancelled` returns True; or, with the text so far
        and the reason as its finish reason, once `should_stop` returns one. Times cover this conversation only, without
        loading and without waiting for others.
        """
        return self._queue.submit(self._reply, turns, parameters, is_cancelled, should_stop)

    def prepare(self) -> "Future[Any]":
        """Load the model before the first request."""
        return self._queue.submit(self._load)

    def _reply(
        self,
        turns: Sequence[Turn],
        parameters: Mapping[str, Any],
        is_cancelled: Callable[[], bool],
        should_stop: StopCheck | None,
    ) -> Reply:
        if is_cancelled():
            raise BrokenReply("cancelled before the model answered")
        body = _make_request_body(turns, parameters)
        server = self._load()
        heard = _ReplyStream(is_cancelled, should_stop)
        try:
            server.handle_chat_completions(body, heard)
        except (RuntimeError, TypeError, ValueError) as error:
            raise Rejected(f"{NAME} does not accept this conversation: {error}") from None
        assert self.info is not None  # noqa: S101 - set when loaded
        return heard.make_reply(self.info)

    def _load(self) -> Any:
        if self._server is not None:
            return self._server
        require_runtime()
        weights.pull(WEIGHTS_NAME)
        folder = weights.verify_folder(WEIGHTS_NAME)
        try:
            import xllamacpp  # type: ignore[import-untyped]
        except ImportError as error:
            what_to_do = (
                "install the GNU OpenMP library, on Debian and Ubuntu with: apt-get install libgomp1"
                if "libgomp" in str(error)
                else make_install_command("local")
            )
            raise EngineMissing(f"the embedded model needs its runtime ({error}): {what_to_do}") from error
        given = xllamacpp.CommonParams()
        given.model.path = str(folder / _WEIGHTS_FILE)
        given.model_alias = {NAME}  # otherwise every reply would contain the path of the weights
        given.n_ctx, given.n_parallel = CONTEXT_TOKENS, 1
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = self.threads
        given.n_gpu_layers = 0  # other arithmetic gives different text
        given.warmup = False
        given.verbosity = -1  # llama.cpp writes to standard error; this value silences it
        given.cache_ram_mib = 0  # otherwise finished prompts would be kept, up to 8 GB
        # The library always opens a port on loopback; a random key keeps other programs out.
        given.api_keys = [secrets.token_hex(32)]
        given.cors_origins = ""
        given.ui = given.endpoint_slots = False
        try:
            self._server = xllamacpp.Server(given)
        except RuntimeError as error:
            raise Unavailable(f"{NAME} could not be loaded from {folder}: {error}") from error
        self.info = EngineInfo(
            "xllamacpp",
            xllamacpp.__version__,
            _WEIGHTS_FILE.removesuffix(".gguf").replace(".", " "),
            f"sha256:{weights.find_pinned_weights(WEIGHTS_NAME).files[_WEIGHTS_FILE].sha256[:8]}…",
            parse_llama_features(xllamacpp.get_system_info()),
            self.threads,
        )
        return self._server


_engine: Engine | None = None
_engine_lock = threading.Lock()


def get_engine(threads: int = 1) -> Engine:
    """Return this process's engine. The first caller sets the number of threads.

    One thread is the safe choice: beside other work, two ran five times slower than one.
    """
    global _engine  # noqa: PLW0603 - one engine per process, because the weights take 200 MB
    with _engine_lock:
        if _engine is None:
            _engine = Engine(threads)
        return _engine


def _make_request_body(turns: Sequence[Turn], parameters: Mapping[str, Any]) -> dict[str, Any]:
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    if not any(turn.role == "system" for turn in turns):
        messages.insert(0, {"role": "system", "content": DEFAULT_SYSTEM_PROMPT})
    for turn in turns:
        if any("\ud800" <= character <= "\udfff" for character in turn.text):
            raise Rejected(
                f"{NAME} needs UTF-8: a {turn.role} message contains half of a surrogate pair, which is not valid text"
            )
    length = MAX_REPLY_TOKENS
    for name in _LENGTH_PARAMETERS:
        given = parameters.get(name)
        if given is None:
            continue
        if type(given) is not int or given < 1:
            raise Rejected(f"{name} must be a whole number above 0, not {given!r}", parameter=name)
        length = min(length, given)
    return {
        "cache_prompt": False,  # a reply's times and text must not depend on earlier requests
        **{
            name: value
            for name, value in parameters.items()
            if name not in (*_LENGTH_PARAMETERS, *_RESERVED_PARAMETERS)
        },
        "messages": messages,
        "max_tokens": length,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


class _ReplyStream:
    """Receives the events of one reply. The runtime that calls it swallows exceptions, so it raises none."""

    def __init__(self, is_cancelled: Callable[[], bool], should_stop: StopCheck | None) -> None:
        self._is_cancelled, self._should_stop = is_cancelled, should_stop
        self._began = clock.monotonic()
        self._first: float | None = None
        self._parts: list[str] = []
        self._finish: str | None = None
        self._logprobs: list[Any] = []
        """Of the first tokens, if the request asks for logprobs."""
        self._last: Mapping[str, Any] = {}
        self._cancelled = False

    def __call__(self, event: Mapping[str, Any]) -> bool:
        """Process one event; return True to end the reply."""
        self._last = event
        for choice in event.get("choices", ()):
            if not self._logprobs and isinstance(stated := choice.get("logprobs"), dict):
                self._logprobs = [_shorten_logprobs(each) for each in stated.get("content") or ()]
            if part := choice["delta"].get("content"):
                self._first = self._first or clock.monotonic()
                self._parts.append(part)
            self._finish = choice.get("finish_reason") or self._finish
        self._cancelled = self._is_cancelled()
        if self._cancelled:
            return True
        if self._should_stop and self._first and not self._finish:
            self._finish = self._should_stop("".join(self._parts), clock.monotonic() - self._first)
            return self._finish is not None
        return False

    def make_reply(self, engine: EngineInfo) -> Reply:
        ended = clock.monotonic()
        if error := self._last.get("error"):
            raise _make_rejected(error)
        if self._cancelled:
            raise BrokenReply("cancelled before the reply was complete")
        if self._finish is None:
            raise BrokenReply(f"{NAME} stopped in the middle of its reply")
        pinned = weights.find_pinned_weights(WEIGHTS_NAME)
        sha256 = pinned.files[_WEIGHTS_FILE].sha256
        usage = self._last.get("usage", {})
        text = "".join(self._parts)
        return Reply(
            text,
            Usage(usage.get("prompt_tokens"), usage.get("completion_tokens", len(self._parts) or None), 0),
            served_model=NAME,
            fingerprint=str(engine),
            finish_reason=self._finish,
            first_token_s=None if self._first is None else self._first - self._began,
            total_s=ended - self._began,
            raw=encode_raw_response(
                {
                    "model": NAME,
                    "choices": [
                        {
                            "message": {"role": "assistant", "content": text},
                            "finish_reason": self._finish,
                            **({"logprobs": {"content": self._logprobs}} if self._logprobs else {}),
                        }
                    ],
                    "usage": usage,
                    "timings": self._last.get("timings"),
                    "runtime": f"{engine.name} {engine.version}",
                    "processor": list(engine.processor_features),
                    "threads": engine.threads,
                    "weights": {
                        "package": f"{pinned.project} {pinned.version}",
                        "file": _WEIGHTS_FILE,
                        "sha256": sha256,
                    },
                }
            ),
            cost_usd=0.0,  # known to be zero
        )


def _shorten_logprobs(token: Mapping[str, Any]) -> dict[str, Any]:
    """Return a token with its logprob and those of the likeliest tokens, without IDs and bytes."""
    top = [{"token": each.get("token"), "logprob": each.get("logprob")} for each in token.get("top_logprobs") or ()]
    return {"token": token.get("token"), "logprob": token.get("logprob"), "top_logprobs": top}


def _make_rejected(error: Mapping[str, Any]) -> Rejected:
    if error.get("type") == "exceed_context_size_error":
        return Rejected(
            f"the conversation is {error.get('n_prompt_tokens', 'too many')} tokens long; {NAME} takes "
            f"{CONTEXT_TOKENS}, "
            "including its reply: shorten it, or use another model"
        )
    message = str(error.get("message"))
    field = message.partition("Field '")[2].partition("'")[0]
    return Rejected(f"{NAME} refused the request: {message}", parameter=field or None)
