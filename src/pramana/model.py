"""The data types that all stages share: cases and assertions, requests and replies, checks and results.

Imports only the standard library and msgspec, whose structs take a sixth of the time of frozen dataclasses to create: a
run creates a dozen per case. Plain data, because it is stored and hashed; `msgspec.structs.replace` changes a copy.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, field
from msgspec.structs import astuple

Role = Literal["system", "user", "assistant"]
Difficulty = Literal["easy", "medium", "hard"]
CaseKind = Literal["test_case", "scenario"]


class Outcome(StrEnum):
    """The outcome of a check or a result. Errored and unscored are not verdicts: they do not count as failed."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNSCORED = "unscored"
    SKIPPED = "skipped"


class Turn(Struct, frozen=True, array_like=True):  # an array in JSON: stored cases have many turns
    """One message of a conversation."""

    role: Role
    text: str


class Assertion(Struct, frozen=True, array_like=True):
    """A condition that a reply must meet, as a suite states it."""

    type: str
    case_sensitive: bool = True
    threshold: int | float | None = None
    judge_prompt: str | None = None
    schema: Any = None
    """The JSON Schema of a `json_schema` assertion."""


class SourceLocation(Struct, frozen=True):
    """Where a case was read, for messages only: not part of the case's identity."""

    file: str
    line: int


class Facets(Struct, frozen=True, array_like=True):
    """The properties of a case by which cases are filtered and summarised."""

    category: str
    """A test case's category or a scenario's type."""
    difficulty: str
    language: str | None = None
    tags: tuple[str, ...] = ()


class Expected(Struct, frozen=True, array_like=True):
    """An assertion and its ideals."""

    assertion: Assertion
    ideals: tuple[str, ...] = ()


class Line(Struct, frozen=True):
    """One thing the caller says, and the assertions on the agent's answer."""

    text: str
    audio_url: str | None = None
    """The recording of the line; None: the embedded voice speaks it."""
    barge_in_s: float | None = None
    """Seconds after the previous answer became audible at which the line starts; None: once that answer is over."""
    expected: tuple[Expected, ...] = ()
    reference: str | None = None
    """The exact words the agent must say."""


class Case(Struct, frozen=True, eq=False):
    """One test: an input and what is expected of the reply."""

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
    """What the caller says, starting with the prompt; empty for a prompt alone without assertions on its answer."""
    conditions: str = ""
    """The conditions of a spoken prompt: `noise=10dB,phone`."""
    source: SourceLocation | None = None

    def __eq__(self, other: object) -> bool:
        """Compare content only: where a case was read does not matter."""
        return isinstance(other, Case) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return astuple(self)[:-1]


if TYPE_CHECKING:

    class PublicCase(Case, frozen=True):
        """The type of `pramana.Case` for type checkers: a case with the arguments of `load.rows.make_case`.

        A struct cannot define its own constructor, so at run time every case is a `Case`. Public functions declare this
        class, so that `case: pramana.Case` type-checks.
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
    """An assertion as a scenario states it; its JSON has only values that differ from the defaults."""

    type: str
    case_sensitive: bool = True
    threshold: float | None = None
    judge_prompt: str | None = None
    schema: Any = None
    ideal: str | tuple[str, ...] | None = None


class ScenarioTurn(Struct, frozen=True):
    """A line the caller says after the prompt."""

    say: str
    audio_url: str | None = None
    barge_in: float | None = None
    assert_: tuple[StatedAssertion, ...] | None = field(default=None, name="assert")
    reference: str | None = None


class Scenario(Struct, frozen=True):
    """A voice scenario as stored, with the field names of files; `load.scenario` has the rules and makes cases."""

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
    """The verdict of one assertion, judge or scorer on one reply."""

    name: str
    version: str
    """The version of the check's meaning, not of the program: never pool results of two versions."""
    outcome: Outcome
    reason: str
    value: float | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)
    """Plain data: what matched, and where."""
    decides: bool = True
    """Whether it counts toward the result's outcome. A measurement does not: its outcome is `UNSCORED`."""


class Utterance(Struct, frozen=True):
    """A line as sound: the same samples for every agent."""

    line: Line
    samples: Any
    """A numpy array of 16-bit samples at `pramana.audio.CALLER_SAMPLE_RATE`."""
    digest: str


class Speech(Struct, frozen=True):
    """The sound of a spoken request, and its conditions."""

    utterances: tuple[Utterance, ...]
    language: str = "en"
    variant: str = "voice"
    conditions: str = ""
    """The conditions of the variant and of the case, combined."""


Purpose = Literal["case", "judge", "embedding"]
PromptOrder = Literal["usual", "answers-swapped", "criterion-last"]
"""The order in which a judge's prompt offers its two answers, and names the criterion and the judged text."""


class Request(Struct, frozen=True):
    """A request: one conversation that is sent to one model."""

    model: str
    """The provider's name for the model, without the provider's prefix."""
    turns: tuple[Turn, ...]
    """The whole conversation in order, system turns included."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Neutral names (temperature, seed, top_p, max_tokens, stop); any other is sent unchanged."""
    purpose: Purpose = "case"
    sample: int = 0
    """The repeat, from 0: which of several identical requests this is; never sent, but part of the cache key."""
    speech: Speech | None = None
    """The speech of a call; `turns` are then the earlier messages. None: the request is sent as text."""


class Usage(Struct, frozen=True):
    """The token counts of a reply as the provider reported them; None means that a count is unknown, never zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Input tokens read from the provider's prompt cache."""


class RecordedCall(Struct, frozen=True):
    """The stored artifacts of a spoken conversation: everything measured can be computed from them again."""

    recording: str
    """The digest of a stereo WAV: the caller left, the agent right, on one clock."""
    log: str
    """The digest of the event log: one JSON object per line."""
    caller: tuple[str, ...] = ()
    """The digests of the sound played, one per line of the script."""


class ToolCall(Struct, frozen=True):
    """A call of a tool that the model made in its reply.

    >>> str(ToolCall("get_weather", '{"city":"Paris"}'))
    'get_weather({"city":"Paris"})'
    """

    name: str
    arguments: str = "{}"
    """JSON as the model wrote it, which may be invalid; any text for a custom tool."""
    id: str | None = None
    """The provider's ID of the call, to return a result for it; None if the provider sends none."""

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


class Reply(Struct, frozen=True):
    """What a model returned, and how long it took."""

    text: str
    usage: Usage = Usage()
    served_model: str | None = None
    """The model that replied, as the provider reports it."""
    fingerprint: str | None = None
    finish_reason: str | None = None
    """The provider's own value: stop, length, content_filter, end_turn …"""
    first_token_s: float | None = None
    """Time to first token; None when the reply was not streamed."""
    total_s: float = 0.0
    raw: bytes | None = None
    """The unchanged response as JSON in UTF-8: an object, or the array of a stream's events."""
    dropped: tuple[str, ...] = ()
    """Parameters that the model rejected, left out when the request was sent again."""
    cost_usd: float | None = None
    """None is unknown, never zero. What a function or an installed provider states counts before any price list."""
    cached: bool = False
    """Whether the reply comes from the cache, without a request."""
    vectors: tuple[Sequence[float], ...] = ()
    """Embeddings: one per turn, in order."""
    answers: tuple[str, ...] = ()
    """The answer to each line of a script; `text` has all of them. Empty for a single prompt."""
    call: RecordedCall | None = None
    """The call of a spoken reply; `text` is then the transcript of what the agent said."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that the model calls, in order; `text` is empty if the reply has nothing else."""

    def response(self) -> Any:
        """Return the raw response as plain data; numbers that JSON cannot represent become None."""
        if self.raw is None:
            return None
        return json.loads(self.raw.decode("utf-8", "surrogatepass"), parse_constant=lambda _: None)


class Failure(Struct, frozen=True):
    """Why there is no reply."""

    code: str
    message: str


class ResultKey(Struct, frozen=True):
    """What identifies a result within its run."""

    case: str
    """The case digest."""
    model: str
    """As the user typed it."""
    variant: str = "text"
    repeat: int = 0


class Result(Struct, frozen=True):
    """The outcome of one case for one model, variant and repeat: the reply or the failure, and the checks."""

    key: ResultKey
    case_id: str
    reply: Reply | None
    failure: Failure | None
    checks: tuple[Check, ...]
    result_hash: str | None
    """The hash of the published format; None without a reply."""
    digest: str | None
    """Pramana's own digest, which cannot be ambiguous."""

    @property
    def outcome(self) -> Outcome:
        """Return the worst outcome of the checks that decide; unscored if none does.

        A result without checks is errored, and so is one without a reply unless it was skipped.
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
    """Send a request to its provider, within all limits; raises `ProviderError`."""

    async def __call__(self, request: Request) -> Reply: ...


class Provider(Protocol):
    """A provider translates requests for the API of a model, without retries, limits or a cache of its own.

    A registered provider also has `open(target, account)`, a class method that returns an instance.
    """

    async def ask(self, request: Request) -> Reply:
        """Send a request to a model; raise a `ProviderError` that says whether a retry may help."""
        ...

    async def models(self) -> list[str]:
        """Return the names of the available models."""
        ...

    async def close(self) -> None:
        """Close the provider's connections; after `close`, the provider receives no more requests."""
        ...


class EmbeddingProvider(Protocol):
    """A provider that also embeds: each turn of a request is a text, and the reply has one vector per turn."""

    async def embed(self, request: Request) -> Reply: ...


class Target(Struct, frozen=True):
    """A model, as the user typed it and as Pramana resolved it.

    A run stores its targets, without API keys, so that the run can be resumed.
    """

    typed: str
    """What the user typed: `gpt-5`, `openai:gpt-5`, `http://localhost:8000/v1#llama`."""
    provider: str
    """The registered name: `openai`."""
    model: str
    """The provider's name for the model."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the provider that may be stored: a base URL, a command, a seed."""


class PlannedScorer(Struct, frozen=True):
    """A scorer as typed, and the version that a resumed run requires."""

    typed: str
    """`politeness`, or `python:package.module:function`."""
    name: str
    version: str


class Pairing(Struct, frozen=True):
    """The design of a test whether two endpoints are the same: its calls come in pairs, one call for each model."""

    seed: int
    """Draws the prompt of each pair, the order within the pair, and the seed that both calls send."""
    max_calls: int
    """Calls of both models together, those of the search for border prompts included."""
    search_calls: int
    """The most calls of that search. Its replies are stored as the repeats below this number and are not tested."""
    border_parameters: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of border prompts; other prompts are sent with the parameters of the plan."""


class PromptSearch(Struct, frozen=True):
    """The design of a search for border prompts: which of its cases are sent again is decided by the answers so far."""

    seed: int
    """Each call with a prompt sends the seed after that of the call before."""
    max_calls: int
    """Calls that were answered in earlier runs included."""
    max_prompts: int
    earlier_runs: tuple[str, ...] = ()
    """IDs of the runs that a limit ended before the search was complete: their answers are not requested again."""


class Plan(Struct, frozen=True):
    """Everything that defines a run: enough to resume it, and to decide whether two runs are comparable."""

    suite: str
    """`v1.0-cheap`; the stem of a file's name; several joined by `+`."""
    suite_hash: str | None
    """None when cases were filtered or come from several files, so that no whole suite was sent."""
    targets: tuple[Target, ...]
    repeats: int = 1
    parameters: Mapping[str, Any] = field(default_factory=dict)
    system_prompt: str | None = None
    judge: Target | None = None
    """None: each model judges itself, as the published format has it."""
    selection: Mapping[str, Any] = field(default_factory=dict)
    """The filters of the request; empty when every case is sent."""
    runner_version: str = ""
    embedder: Target | None = None
    """The embedder for `semantic_similarity`; None: all-MiniLM-L6-v2 in this process."""
    variants: tuple[str, ...] = ("text",)
    """The variants in which each case is sent, such as `text` or `voice+noise=10dB`."""
    stt: Target | None = None
    """An additional speech-to-text model; None: only Whisper tiny.en in this process, which knows English only."""
    voice: str = "espeak"
    """The voice of lines without a recording: `espeak`, or `piper` once its weights are pulled."""
    scorers: tuple[PlannedScorer, ...] = ()
    """Functions that score each reply, beside its assertion."""
    other_judges: tuple[Target, ...] = ()
    """The judges that form a panel with `judge`, whose majority decides; empty for a single judge."""

    @property
    def judges(self) -> tuple[Target, ...]:
        """The judges that were named: one, a panel, or none where each model judges itself."""
        return (self.judge, *self.other_judges) if self.judge else ()

    pairing: Pairing | None = None
    """How calls are paired in a test of two endpoints; None for an ordinary run."""
    search: PromptSearch | None = None
    """How a watch searches its border prompts; None for an ordinary run."""


class JudgeCalibration(Struct, frozen=True):
    """How far a judge agrees with people, by their labels of its verdicts."""

    check: str
    version: str
    judge: str
    """The canonical name of the judge."""
    label_count: int = 0
    accuracy: float | None = None
    """The share of verdicts with which people agree; None with too few labels."""
    interval: tuple[float, float] | None = None
    is_from_other_runs: bool = False
    """Whether the labels are those of other runs that the same judge judged."""


RunStatus = Literal["queued", "running", "finished", "stopped", "interrupted", "cancelled"]
"""`queued`: waits for a server. `stopped`: ended by an error or a limit. `interrupted`: its process ended first.
`cancelled`: on a user's request."""


class Spent(Struct):
    """What a run has cost so far, judges and embedders included."""

    cost_usd: float = 0.0
    tokens: int = 0
    unknown_cost: bool = False
    """Whether the cost of some reply is unknown, so that the sum is a lower bound."""
    unknown_tokens: bool = False


class Run(Struct, frozen=True):
    """A stored run: its plan and its progress."""

    id: str
    plan: Plan
    status: RunStatus
    created: str
    """ISO 8601, UTC."""
    expected: int
    """Number of results when complete: cases × models × repeats."""
    stored: int
    """Number of results stored."""
    finished: str | None = None
    reason: str | None = None
    """Why it stopped, as a sentence."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Other records: the limiter's history, the version of the prices."""
    owner: Literal["cli", "server"] = "cli"
    """Which front end runs it, and may resume it."""
    creator: str | None = None
    """The name of the token that created it."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Its limits; a resumed run keeps them, except those that are given anew."""
    cancelled: str | None = None
    """When a user requested that it end."""
    attempts: int = 0
    """How many times a process started to work on it."""
    holder: str | None = None
    """The name of the process that holds its lease; None if there is none."""
    number: int = 0
    """The number of its row, so that related rows are found without reading the row again."""
    scoring: int | None = None
    """The scoring that its results show; None for the newest."""
    name: str | None = None
    """The name its user gave it."""
    note: str | None = None
    """The user's note about it."""
    calibrations: tuple[JudgeCalibration, ...] = ()
    """How far judges agree with people, where the run is read to be shown; judges without labels are left out."""

    @property
    def reference(self) -> str:
        """Return the ID of the run, followed by the number of its scoring unless that is the newest: `RUN@1`."""
        return self.id if self.scoring is None else f"{self.id}@{self.scoring}"
