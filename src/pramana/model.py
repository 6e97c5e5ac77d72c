"""The nouns every stage shares: a case and what is asserted of it, a request and its reply, checks and the result.

Nothing but the standard library and msgspec, whose frozen structs are made in a sixth of the time that frozen
dataclasses take: a run makes a dozen a case. Plain data, because they are stored and hashed. `msgspec.structs.replace`
makes another of one.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, field
from msgspec.structs import astuple

Role = Literal["system", "user", "assistant"]
Difficulty = Literal["easy", "medium", "hard"]
CaseKind = Literal["test_case", "scenario"]


class Outcome(StrEnum):
    """How a check ended. An error is not a failure, and an unscored reply is not a wrong one."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNSCORED = "unscored"
    SKIPPED = "skipped"


class Turn(Struct, frozen=True, array_like=True):  # as JSON, an array: stored cases are full of them
    """One message of what is asked."""

    role: Role
    text: str


class Assertion(Struct, frozen=True, array_like=True):
    """What must hold of a reply, as a suite states it."""

    type: str
    case_sensitive: bool = True
    threshold: int | float | None = None
    judge_prompt: str | None = None
    schema: Any = None
    """The JSON Schema of a `json_schema` assertion."""


class Source(Struct, frozen=True):
    """Where a case was read, for messages only: it is no part of the case's identity."""

    file: str
    line: int


class Facets(Struct, frozen=True, array_like=True):
    """What cases are selected and summarised by."""

    category: str
    """A test case's category or a scenario's type."""
    difficulty: str
    language: str | None = None
    tags: tuple[str, ...] = ()


class Expected(Struct, frozen=True, array_like=True):
    """An assertion, and the texts it looks for."""

    assertion: Assertion
    ideals: tuple[str, ...] = ()


class Line(Struct, frozen=True):
    """One thing a caller says, and what must hold of the answer to it."""

    text: str
    audio_url: str | None = None
    """Where it was recorded; None: the embedded voice says it."""
    barge_in_s: float | None = None
    """Said so long after the answer to the line before became audible; None: once that answer is over."""
    expected: tuple[Expected, ...] = ()
    reference: str | None = None
    """The words the agent must say."""


class Case(Struct, frozen=True, eq=False):
    """One thing asked and what is expected of the answer."""

    id: str
    kind: CaseKind
    turns: tuple[Turn, ...]
    facets: Facets
    assertion: Assertion | None = None
    """A test case's assertion; None for a scenario."""
    ideals: tuple[str, ...] = ()
    name: str | None = None
    expected_outcome: str | None = None
    """A scenario's expected outcome; None for a test case."""
    prompt_audio_url: str | None = None
    tokens_est: int | None = None
    script: tuple[Line, ...] = ()
    """What the caller says, the prompt first; empty where the prompt is all and nothing more is asked of its answer."""
    conditions: str = ""
    """How a spoken prompt sounds: `noise=10dB,phone`."""
    source: Source | None = None

    def __eq__(self, other: object) -> bool:
        """Two cases are one wherever they were read."""
        return isinstance(other, Case) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return astuple(self)[:-1]


if TYPE_CHECKING:

    class PublicCase(Case, frozen=True):
        """What `pramana.Case` is to a type checker: a case, with the arguments of `load.rows.make_case`.

        A struct cannot have a constructor of its own, so at run time every case is a `Case`. What the package gives
        to its users is declared as this class, so that `case: pramana.Case` accepts it.
        """

        def __init__(
            self,
            input: str | Sequence[Mapping[str, str]],  # noqa: A002
            *,
            ideal: str | Sequence[str] | None = None,
            check: str | Mapping[str, Any] | Assertion | None = None,
            id: str | None = None,  # noqa: A002
            name: str | None = None,
            category: str = "general",
            difficulty: str = "medium",
            language: str | None = None,
            tags: Iterable[str] = (),
            tokens_est: int | None = None,
            expected_outcome: str | None = None,
        ) -> None: ...


class StatedAssertion(Struct, frozen=True, omit_defaults=True):
    """An assertion as a scenario states it; as JSON, only what differs from the defaults."""

    type: str
    case_sensitive: bool = True
    threshold: float | None = None
    judge_prompt: str | None = None
    schema: Any = None
    ideal: str | tuple[str, ...] | None = None


class ScenarioTurn(Struct, frozen=True):
    """What the caller says after the prompt."""

    say: str
    audio_url: str | None = None
    barge_in: float | None = None
    assert_: tuple[StatedAssertion, ...] | None = field(default=None, name="assert")
    reference: str | None = None


class Scenario(Struct, frozen=True):
    """A voice scenario as it is stored, in the names of files; `load.scenario` has the rules and makes cases."""

    id: str
    name: str
    type: str
    prompt: str
    expected_outcome: str
    prompt_audio_url: str | None = None
    tags: tuple[str, ...] = ()
    language: str = "en"
    difficulty: str = "medium"
    assert_: tuple[StatedAssertion, ...] | None = field(default=None, name="assert")
    reference: str | None = None
    turns: tuple[ScenarioTurn, ...] | None = None
    conditions: str | None = None


class Check(Struct, frozen=True):
    """One judgement of one reply."""

    name: str
    version: str
    """Of the meaning, not of the program: results pooled from two versions must not be mixed."""
    outcome: Outcome
    reason: str
    value: float | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)
    """Plain data: what matched, and where."""
    decides: bool = True
    """Whether it counts for the result. A measurement does not: its outcome is `UNSCORED`, and it only informs."""


class Utterance(Struct, frozen=True):
    """A line as it is played: the same samples for every agent."""

    line: Line
    samples: Any
    """A numpy array of 16-bit samples at `pramana.audio.CALLER_RATE`."""
    digest: str


class Speech(Struct, frozen=True):
    """What is said in a call, and how."""

    utterances: tuple[Utterance, ...]
    language: str = "en"
    variant: str = "voice"
    conditions: str = ""
    """How it sounds: what the variant says, and what the case states itself."""


Purpose = Literal["case", "judge", "embedding"]


class Request(Struct, frozen=True):
    """One conversation put to one model."""

    model: str
    """The provider's own name of the model, without the provider's prefix."""
    turns: tuple[Turn, ...]
    """All of it, system turns included, in order."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Neutral names (temperature, seed, top_p, max_tokens, stop); any other goes to the wire as it is."""
    purpose: Purpose = "case"
    sample: int = 0
    """Which of several askings alike this is; never on the wire, but no cache may take one for another."""
    speech: Speech | None = None
    """What is said, where the model is called instead of written to; `turns` are then what went before."""


class Usage(Struct, frozen=True):
    """Tokens as the provider counted them; None is unknown, never zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the input tokens, those read from the provider's prompt cache."""


MAX_TOKENS = 10**12
"""Of one reply: far above any real count, and millions of such replies can still be added up in a database."""


def parse_token_count(given: object) -> int | None:
    """Return a number of tokens as a provider gave it; None, which is unknown, where it is none.

    >>> *map(parse_token_count, (7, -1, 10**400, True, "7")),
    (7, None, None, None, None)
    """
    return given if type(given) is int and 0 <= given <= MAX_TOKENS else None


def parse_usage(usage: Usage) -> Usage:
    """Return the usage, with whatever is no number of tokens unknown."""
    asked, answered, cached = usage.input_tokens, usage.output_tokens, usage.cached_tokens
    if (
        parse_token_count(asked) is asked
        and parse_token_count(answered) is answered
        and parse_token_count(cached) is cached
    ):
        return usage
    return Usage(parse_token_count(asked), parse_token_count(answered), parse_token_count(cached))


def add_usage(tokens: int | None, more: Usage) -> int | None:
    """Return tokens with those of a usage added; unknown when either is."""
    if tokens is None or (more.input_tokens is None and more.output_tokens is None):
        return None
    return tokens + (more.input_tokens or 0) + (more.output_tokens or 0)


class Call(Struct, frozen=True):
    """A spoken conversation as it was recorded: all that is measured of it can be computed from these again."""

    recording: str
    """The digest of a stereo WAV: the caller left, the agent right, on one clock."""
    log: str
    """The digest of the events, one JSON object a line."""
    caller: tuple[str, ...] = ()
    """The digest of what was played for each line of the script."""


class ToolCall(Struct, frozen=True):
    """A tool that the model asks its caller to run, as it stands in a reply.

    >>> str(ToolCall("get_weather", '{"city":"Paris"}'))
    'get_weather({"city":"Paris"})'
    """

    name: str
    arguments: str = "{}"
    """JSON as the model wrote it, which need not be valid; of a custom tool, any text."""
    id: str | None = None
    """The provider's own, to answer the call with; None where it gives none."""

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


class Reply(Struct, frozen=True):
    """What came back, and how long it took."""

    text: str
    usage: Usage = Usage()
    served_model: str | None = None
    """The model the provider says has answered."""
    fingerprint: str | None = None
    finish_reason: str | None = None
    """In the provider's own word: stop, length, content_filter, end_turn …"""
    first_token_s: float | None = None
    """None when the answer came in one piece."""
    total_s: float = 0.0
    raw: bytes | None = None
    """The response as JSON, as it came: an object, or the array of a stream's events. See `encode_raw_response`."""
    dropped: tuple[str, ...] = ()
    """Parameters the model would not take, left out when it was asked again."""
    cost_usd: float | None = None
    """None is unknown, never zero. What a function or an installed provider states counts before any price list."""
    cached: bool = False
    """Taken from the reply cache: nobody was asked."""
    vectors: tuple[Sequence[float], ...] = ()
    """Of an embedding: one a turn, in their order."""
    answers: tuple[str, ...] = ()
    """What was said to each line of a script; `text` is all of it. Empty where there was but one question."""
    call: Call | None = None
    """Where it was spoken; `text` is what the agent said, as it was written down."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that the model calls, in its order; `text` is empty where it says nothing besides."""

    def response(self) -> Any:
        """Return the raw response as plain data; a number that JSON does not have is None."""
        if self.raw is None:
            return None
        return json.loads(self.raw.decode("utf-8", "surrogatepass"), parse_constant=lambda _: None)


class NamedCall(Protocol):
    """A tool call, or a view of one."""

    @property
    def name(self) -> str: ...

    @property
    def arguments(self) -> str: ...


def describe_calls(calls: Iterable[NamedCall], longest: int = 160) -> str:
    """Return tool calls on one line, each no longer than so many characters.

    >>> describe_calls([ToolCall("get_weather", '{"city": "Paris"}'), ToolCall("get_time")])
    'called get_weather({"city": "Paris"}), get_time({})'
    """
    lines = (" ".join(f"{each.name}({each.arguments})".split()) for each in calls)
    return f"called {', '.join(line if len(line) <= longest else f'{line[: longest - 1]}…' for line in lines)}"


def encode_raw_response(response: Any) -> bytes:
    """Return plain data as the JSON of a `Reply.raw`; halves of surrogate pairs, which models do emit, are kept."""
    return json.dumps(response, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def describe_invalid_reply(reply: object) -> str | None:
    """Name what about a reply is not as stated above; None when all is: anyone's provider makes them.

    >>> *map(describe_invalid_reply, (Reply("yes"), Reply("yes", finish_reason={"a": 1}), "yes")),
    (None, 'finish_reason is a dict', 'it is a str')
    """
    if not isinstance(reply, Reply):
        return f"it is a {type(reply).__name__}"
    for name, fits in _REPLY_FIELD_CHECKS.items():
        value: Any = getattr(reply, name)  # whatever its annotations say
        if not fits(value):
            return f"{name} is {value}" if isinstance(value, float) else f"{name} is a {type(value).__name__}"
    return None


# Tuples, since every reply is looked at, and a union of types would be made anew for each.
def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_tool_call(value: object) -> bool:
    if not isinstance(value, ToolCall):
        return False
    name, arguments = astuple(value)[:2]
    return isinstance(name, str) and isinstance(arguments, str) and _is_text_or_none(value.id)


def _is_duration(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= 10**9


_REPLY_FIELD_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda it: isinstance(it, str),
    "usage": lambda it: isinstance(it, Usage),
    "served_model": _is_text_or_none,
    "fingerprint": _is_text_or_none,
    "finish_reason": _is_text_or_none,
    "raw": lambda it: it is None or isinstance(it, bytes),
    "dropped": lambda it: isinstance(it, (tuple, list)) and all(isinstance(each, str) for each in it),
    "cached": lambda it: isinstance(it, bool),
    "vectors": lambda it: isinstance(it, (tuple, list)),
    "tool_calls": lambda it: not it or (isinstance(it, (tuple, list)) and all(map(_is_tool_call, it))),
    "total_s": _is_duration,
    **dict.fromkeys(("first_token_s", "cost_usd"), lambda it: it is None or _is_duration(it)),
}


class Failure(Struct, frozen=True):
    """Why there is no reply."""

    code: str
    message: str


class Key(Struct, frozen=True):
    """What makes a result one of a kind within its run."""

    case: str
    """The case digest."""
    model: str
    """As the user typed it."""
    variant: str = "text"
    repeat: int = 0


class Result(Struct, frozen=True):
    """One case asked of one model once: the reply, or why there is none, and its checks."""

    key: Key
    case_id: str
    reply: Reply | None
    failure: Failure | None
    checks: tuple[Check, ...]
    result_hash: str | None
    """As the published format has it; None without a reply."""
    digest: str | None
    """Our own, which cannot be ambiguous."""

    @property
    def outcome(self) -> Outcome:
        """The worst of the checks that decide; unscored where none does.

        Errored without any check, and without a reply, unless it was never meant to be asked.
        """
        checks = self.checks
        if not checks or (self.reply is None and checks[0].outcome is not Outcome.SKIPPED):
            return Outcome.ERRORED
        if len(checks) == 1:
            return checks[0].outcome
        return max(
            (each.outcome for each in checks if each.decides), key=OUTCOMES_BY_SEVERITY.index, default=Outcome.UNSCORED
        )


OUTCOMES_BY_SEVERITY = (Outcome.PASSED, Outcome.SKIPPED, Outcome.UNSCORED, Outcome.ERRORED, Outcome.FAILED)


class Ask(Protocol):
    """Put a request to its provider, through every limit there is; raises `ProviderError`."""

    async def __call__(self, request: Request) -> Reply: ...


class Provider(Protocol):
    """Who is asked. It only translates: no retries, no limits, no cache.

    What is registered has `open(target, account)` besides, a class method that returns one.
    """

    async def ask(self, request: Request) -> Reply:
        """Put a request to a model; raise a `ProviderError` that says whether asking again may help."""
        ...

    async def models(self) -> list[str]:
        """Return the names of the models on offer."""
        ...

    async def close(self) -> None:
        """Let go of connections; nothing is asked after that."""
        ...


class EmbeddingProvider(Protocol):
    """A provider that can also embed: each turn of a request is a text, and the reply has a vector for each."""

    async def embed(self, request: Request) -> Reply: ...


class Target(Struct, frozen=True):
    """A model as it was asked for and as it is reached: recorded, so that a run can be resumed. Never a key."""

    typed: str
    """What the user wrote: `gpt-5`, `openai:gpt-5`, `http://localhost:8000/v1#llama`."""
    provider: str
    """The registered name: `openai`."""
    model: str
    """The provider's own name of the model."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What else the provider needs and may be stored: a base URL, a command, a seed."""


class PlannedScorer(Struct, frozen=True):
    """A scorer as it was asked for, and the version that must be there when the run is resumed."""

    typed: str
    """`politeness`, or `python:package.module:function`."""
    name: str
    version: str


class Plan(Struct, frozen=True):
    """What a run does: enough to resume it, and to know whether two runs may be compared."""

    suite: str
    """`v1.0-cheap`; the file's stem for one's own; several joined by `+`."""
    suite_hash: str | None
    """None when cases were selected or come from several files: the whole was not asked."""
    targets: tuple[Target, ...]
    repeats: int = 1
    parameters: Mapping[str, Any] = field(default_factory=dict)
    system_prompt: str | None = None
    judge: Target | None = None
    """None: each model judges itself, as the published format has it."""
    selection: Mapping[str, Any] = field(default_factory=dict)
    """The filters that were given; empty when every case is asked."""
    runner_version: str = ""
    embedder: Target | None = None
    """Who embeds for `semantic_similarity`; None: all-MiniLM-L6-v2 in this process."""
    variants: tuple[str, ...] = ("text",)
    """How each case is asked: written, spoken, spoken under conditions."""
    stt: Target | None = None
    """Who else writes down what was said; None: Whisper tiny.en in this process alone, which knows English."""
    voice: str = "espeak"
    """Who speaks what was not recorded: `espeak`, or `piper` once it was pulled."""
    scorers: tuple[PlannedScorer, ...] = ()
    """Functions that score each reply beside its assertion."""


RunStatus = Literal["queued", "running", "finished", "stopped", "interrupted", "cancelled"]
"""Queued: for a server. Stopped: for a reason of its own. Interrupted: left by whoever ran it. Cancelled: as asked."""


class Spent(Struct):
    """What a run has cost until now, judges and embedders included."""

    cost_usd: float = 0.0
    tokens: int = 0
    unknown_cost: bool = False
    """Some reply's cost is unknown, so the sum is a lower bound."""
    unknown_tokens: bool = False


class Run(Struct, frozen=True):
    """A plan under way or done."""

    id: str
    plan: Plan
    status: RunStatus
    created: str
    """ISO 8601, UTC."""
    expected: int
    """Results there will be: cases × models × repeats."""
    stored: int
    """Results there are."""
    finished: str | None = None
    reason: str | None = None
    """Why it stopped, in words."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What else was recorded: the limiter's history, the version of the prices."""
    owner: Literal["cli", "server"] = "cli"
    """Who runs it, and may go on with it."""
    creator: str | None = None
    """Who made it: the name of a token."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """What it may spend: a server's run whichever server goes on with it, another in its first sitting."""
    cancelled: str | None = None
    """When somebody asked that it end."""
    attempts: int = 0
    """How often somebody began to work on it."""
    holder: str | None = None
    """The name of who holds it; None when nobody does."""
    number: int = 0
    """Of its row: what is known of it is found without reading the row again."""
    scoring: int | None = None
    """The scoring by which its results are read; None for the newest."""
    name: str | None = None
    """What its user calls it."""
    note: str | None = None
    """What its user wrote about it."""

    @property
    def reference(self) -> str:
        """Return the id, with the scoring where it is not the newest: `RUN@1`."""
        return self.id if self.scoring is None else f"{self.id}@{self.scoring}"
