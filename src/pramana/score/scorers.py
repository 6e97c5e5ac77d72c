"""Scorers: functions that score a reply beside its assertion. A case and its reply go in, checks come out.

`@scorer` makes a scorer from a sync or async function that takes a `ScoringContext`. The returned value decides: a bool
passes or fails, a number is a score, text is a label, None is no score; a mapping holds several of them, and `Score`
adds a reason. A number decides an outcome only if the scorer has `pass_at`. A function that raises, or returns anything
else, makes an `errored` check and never a failed one. Functions run beside the event loop; their requests to models
pass the limits of the run. Nothing here opens a provider or accesses a store.
"""

import asyncio
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from numbers import Real
from typing import TYPE_CHECKING, Any, cast, overload

import msgspec
from msgspec import Struct

from pramana.errors import (
    BrokenPlugin,
    BudgetSpent,
    InvalidInput,
    NotFound,
    PramanaError,
    ProviderError,
    Stopped,
    describe_exception,
    describe_value,
)
from pramana.model import Case, Check, Outcome, PlannedScorer, Reply, Request, Turn
from pramana.plugins import assertion_types, scorers
from pramana.providers import redaction
from pramana.providers.text.function import function_path, import_function, is_asynchronous
from pramana.providers.text.runners import CoroutineRunner, FunctionCallOutcome, ThreadRunner
from pramana.replies import add_usage
from pramana.score.judge import Judge, shorten_reason

if TYPE_CHECKING:
    from pramana.model import PublicCase

MAX_SCORER_THREADS = 32
"""Maximum number of sync functions that run at the same time."""
MAX_CHECK_NAME_LENGTH = 130
"""Maximum length of a check's name: the scorer's name, a dot, and a score's name if there are several."""
MAX_LABEL_LENGTH = 100
MAX_REASON_LENGTH = 1_000
_NAME_RE = re.compile(r"[A-Za-z_][\w.-]{0,63}")
_RESERVED_CHECK_NAMES = ("rubric", "call", "voice")
"""Names of built-in checks, besides the assertion types."""
_MESSAGE_KEYS = ("role", "content")


class Score(Struct, frozen=True):
    """The score that a scorer gives a reply, with its reason.

    >>> Score(0.5, reason="One of two facts is there.", evidence={"found": ["Paris"]}).value
    0.5
    """

    value: bool | float | str | None
    """True or False, a number, a label, or None for no score."""
    reason: str = ""
    evidence: Mapping[str, object] = msgspec.field(default_factory=dict)
    """JSON-compatible data."""


ScoreValue = bool | float | str | Score | None
ScorerReturn = ScoreValue | Mapping[str, ScoreValue]
"""The return value of a scorer."""
Prompt = str | Sequence[Mapping[str, str]]
"""A prompt, or messages as `{"role": …, "content": …}`."""
Parameters = Mapping[str, Any] | None


# ── Contexts ──


def _refuse_blocking_ask(_prompt: Prompt, _model: str | None, _parameters: Parameters) -> Reply:
    raise InvalidInput("models can be called only while a run scores its replies; in a test, pass asking=…")


async def _refuse_ask(prompt: Prompt, model: str | None, parameters: Parameters) -> Reply:
    return _refuse_blocking_ask(prompt, model, parameters)


@dataclass(frozen=True, slots=True)
class ScoringContext:
    """The argument of an async scorer: one reply and its case.

    >>> from pramana import Case, Reply
    >>> ScoringContext(Case("What is the capital of France?", ideal="Paris"), Reply("Paris.")).reply.text
    'Paris.'
    """

    case: "PublicCase"
    """The case, with its ideals, tags and expected outcome."""
    reply: Reply
    """The whole reply: text, tokens, costs, times and the raw response."""
    model: str = ""
    """The model that replied, as typed."""
    asking: Callable[[Prompt, str | None, Parameters], Awaitable[Reply]] = field(default=_refuse_ask, repr=False)
    """How `ask` calls a model; a test can pass its own function."""

    async def ask(self, prompt: Prompt, *, model: str | None = None, parameters: Parameters = None) -> Reply:
        """Call a model within the limits and the budget of the run: the judge, unless `model` is set."""
        return await self.asking(prompt, model, parameters)


@dataclass(frozen=True, slots=True)
class BlockingScoringContext:
    """The argument of a sync scorer: like `ScoringContext`, but `ask` blocks until the reply is there."""

    case: "PublicCase"
    reply: Reply
    model: str = ""
    asking: Callable[[Prompt, str | None, Parameters], Reply] = field(default=_refuse_blocking_ask, repr=False)

    def ask(self, prompt: Prompt, *, model: str | None = None, parameters: Parameters = None) -> Reply:
        """Call a model within the limits and the budget of the run: the judge, unless `model` is set."""
        return self.asking(prompt, model, parameters)


ScorerFunction = (
    Callable[[ScoringContext], ScorerReturn | Awaitable[ScorerReturn]]
    | Callable[[BlockingScoringContext], ScorerReturn]
)


# ── Scorers ──


class Scorer(Struct, frozen=True):
    """A function that scores replies, with the name and the version that are stored with each score."""

    name: str
    version: str
    """Version of its meaning; raise it if the same reply could get another score."""
    function: Callable[[Any], Any]
    pass_at: float | None = None
    """The lowest number that passes; None makes numbers measurements, which never decide."""

    def __call__(self, context: ScoringContext | BlockingScoringContext) -> Any:
        """Call the function directly, as a test does."""
        return self.function(context)


@overload
def scorer(function: ScorerFunction) -> Scorer: ...


@overload
def scorer(
    *, name: str | None = None, version: str = "1", pass_at: float | None = None
) -> Callable[[ScorerFunction], Scorer]: ...


def scorer(
    function: ScorerFunction | None = None,
    *,
    name: str | None = None,
    version: str = "1",
    pass_at: float | None = None,
) -> Scorer | Callable[[ScorerFunction], Scorer]:
    """Make a scorer from a function, which is called with a `ScoringContext` for each reply.

    >>> @scorer(version="2", pass_at=0.5)
    ... def brevity(context):
    ...     return 1 / len(context.reply.text.split())
    >>> brevity.name, brevity.version, brevity.pass_at
    ('brevity', '2', 0.5)
    """
    if function is not None:
        return make_scorer(function, name, version, pass_at)
    return partial(make_scorer, name=name, version=version, pass_at=pass_at)


def make_scorer(function: Any, name: Any = None, version: Any = "1", pass_at: Any = None) -> Scorer:
    """Return a scorer from a function; return a scorer unchanged."""
    if isinstance(function, Scorer):
        return function
    if not callable(function):
        raise InvalidInput(f"a scorer is a function of a ScoringContext, found {type(function).__name__}")
    name = function_path(function).rpartition(":")[2].rpartition(".")[2] if name is None else name
    if not isinstance(name, str) or not _NAME_RE.fullmatch(name):
        raise InvalidInput(
            f"a scorer cannot be called {name!r:.80}: a name is 1 to 64 letters, digits, _ . and -; name it: "
            '@pramana.scorer(name="politeness")'
        )
    if name in _RESERVED_CHECK_NAMES or name in assertion_types.builtin:
        raise InvalidInput(f'the scorer name "{name}" is reserved for a built-in check; choose another name')
    if not isinstance(version, str) or not version.strip():
        raise InvalidInput(f'the version of a scorer is text such as "1", found {version!r:.80}')
    if pass_at is not None and not _is_number(pass_at):
        raise InvalidInput(f"pass_at is a number, found {pass_at!r:.80}")
    return Scorer(name, version, function, None if pass_at is None else float(pass_at))


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def make_stored_name(scorer_: Scorer) -> str:
    """Return the name under which a scorer passed from Python is stored.

    The scorer's own name is appended unless the path identifies it, since several scorers may share one place or
    function.

    >>> make_stored_name(make_scorer(len)), make_stored_name(make_scorer(len, "size"))
    ('python:builtins:len', 'python:builtins:len:size')
    """
    path = function_path(scorer_.function)
    module, _, attribute = path.partition(":")
    at_path: Any = sys.modules.get(module)
    for name in attribute.split("."):
        at_path = getattr(at_path, name, None)
    own_name = "<" not in path and scorer_.name == attribute.rpartition(".")[2]
    return f"python:{path}" if at_path is scorer_ or own_name else f"python:{path}:{scorer_.name}"


def find_scorer(typed_name: str, scorers_by_name: Mapping[str, Scorer]) -> Scorer:
    """Return a scorer by name: one of `scorers_by_name`, an installed one, or a function as `python:module:name`."""
    if typed_name in scorers_by_name:
        return scorers_by_name[typed_name]
    kind, colon, path = typed_name.partition(":")
    if kind == "python" and colon:
        again = "pramana.resume(run_id, scorers=[function])"
        if path.count(":") > 1:
            raise InvalidInput(
                f"{typed_name} cannot be imported: this scorer exists only in the program that started the run; resume "
                "it "
                f"there with {again}, or decorate a function of a module"
            )
        return make_scorer(import_function(path, again))
    try:
        found = scorers.load(typed_name)
    except NotFound as error:
        known = ", ".join(scorers.names()) or "none"
        raise InvalidInput(
            f"{error}; installed scorers: {known}, and a function is python:package.module:function"
        ) from None
    if not isinstance(found, Scorer):
        raise BrokenPlugin(
            f'the scorer "{typed_name}" is a {type(found).__name__}, not a Scorer; decorate it: @pramana.scorer'
        )
    if found.name != typed_name:
        raise BrokenPlugin(f'the scorer registered as "{typed_name}" has the other name "{found.name}"')
    return found


def make_planned_scorers(
    typed_names: Sequence[str], scorers_by_name: Mapping[str, Scorer]
) -> tuple[PlannedScorer, ...]:
    """Return the scorers as a plan records them."""
    found = [find_scorer(each, scorers_by_name) for each in typed_names]
    for name, count in Counter(each.name for each in found).items():
        if count > 1:
            raise InvalidInput(f"{count} scorers are called {name}, and scores are stored by that name; rename one")
    return tuple(PlannedScorer(each, made.name, made.version) for each, made in zip(typed_names, found, strict=True))


def find_planned_scorers(planned: Sequence[PlannedScorer], scorers_by_name: Mapping[str, Scorer]) -> list[Scorer]:
    """Return the scorers of a plan; raise `InvalidInput` if one differs from what was planned."""
    found = []
    for each in planned:
        made = find_scorer(each.typed, scorers_by_name)
        if (made.name, made.version) != (each.name, each.version):
            raise InvalidInput(
                f"the run was planned with the scorer {each.name}, version {each.version}, and {each.typed} is now "
                f"{made.name}, version {made.version}; install the earlier version, or start a new run"
            )
        found.append(made)
    return found


# ── Scoring ──


def ends_run(error: BaseException) -> bool:
    """Return whether an error during scoring ends the whole run."""
    return isinstance(error, BudgetSpent | Stopped) or (isinstance(error, ProviderError) and error.fatal)


class ScorerRunner:
    """Calls the scorers of a run. One instance per run, shared by its workers."""

    def __init__(
        self,
        scorers: Sequence[Scorer] = (),
        make_judge: Callable[[str], Judge] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Take the scorers, and a function that returns the judge of a model name; coroutines run in `loop`, if set.

        A scorer that takes longer than `timeout_s`, not counting its requests to models, is given up.
        """
        self._timeout_s = timeout_s
        self._scorers = [(each, is_asynchronous(each.function)) for each in scorers]
        self._named = make_judge
        self._threads, self._coroutines = ThreadRunner(MAX_SCORER_THREADS), CoroutineRunner(loop)
        self._keys = redaction.read_environment_secrets() if scorers else redaction.Secrets(())

    def __bool__(self) -> bool:
        return bool(self._scorers)

    @property
    def names(self) -> list[str]:
        """The names of the scorers."""
        return [each.name for each, _ in self._scorers]

    def close(self) -> None:
        """Stop the threads without waiting for functions that still run."""
        self._threads.close()
        self._coroutines.close()

    async def make_checks(
        self, case: Case, reply: Reply, model: str, judge: Judge | None, no_judge_reason: str
    ) -> list[Check]:
        """Return a reply's checks.

        Raise only errors that end the run. `no_judge_reason` is the reason if `judge` is None.
        """
        found: list[Check] = []
        for each, asynchronous in self._scorers:
            asked = _ScorerRequests(judge, no_judge_reason, self._named)
            ended = await self._call_within_timeout(each, case, reply, model, asked, asynchronous=asynchronous)
            error = asked.ended_run or ended.error
            if error and (ends_run(error) or isinstance(error, KeyboardInterrupt)):
                raise error
            evidence = asked.make_evidence()
            if error:
                found.append(self._make_check_of_scorer_error(each, error, evidence, lacks_judge=asked.lacks_judge))
            else:
                found += self._make_checks(each, ended.value, evidence)
        return found

    async def _call_within_timeout(
        self, scorer_: Scorer, case: Case, reply: Reply, model: str, requests: "_ScorerRequests", *, asynchronous: bool
    ) -> FunctionCallOutcome:
        try:
            async with asyncio.timeout(self._timeout_s) as requests.timeout:
                return await self._call_scorer(scorer_, case, reply, model, requests, asynchronous=asynchronous)
        except TimeoutError:  # one that the function raises is part of the outcome
            return FunctionCallOutcome(error=TimeoutError(f"no result within the time limit of {self._timeout_s:g} s"))

    async def _call_scorer(
        self, scorer_: Scorer, case: Case, reply: Reply, model: str, requests: "_ScorerRequests", *, asynchronous: bool
    ) -> FunctionCallOutcome:
        seen_case = cast("PublicCase", case)
        if asynchronous:
            seen = ScoringContext(seen_case, reply, model, requests.ask_async)
            return await self._coroutines.call(lambda: scorer_.function(seen))
        context = BlockingScoringContext(seen_case, reply, model, requests.ask_blocking)
        ended = await self._threads.call(lambda: scorer_.function(context))
        if isawaitable(ended.value):
            if hasattr(ended.value, "close"):
                ended.value.close()  # otherwise Python warns that the coroutine was never awaited
            return FunctionCallOutcome(error=TypeError("it returned a coroutine; declare it with async def"))
        return ended

    def _make_check_of_scorer_error(
        self, scorer_: Scorer, error: BaseException, evidence: Mapping[str, object], *, lacks_judge: bool
    ) -> Check:
        if lacks_judge:
            return Check(scorer_.name, scorer_.version, Outcome.UNSCORED, str(error), evidence=evidence)
        why = self._keys.redact_message(f"{scorer_.name} could not score: {describe_exception(error)}")
        return Check(
            scorer_.name, scorer_.version, Outcome.ERRORED, shorten_reason(why, MAX_REASON_LENGTH), evidence=evidence
        )

    def _make_checks(self, scorer_: Scorer, value: object, evidence: Mapping[str, object]) -> Iterator[Check]:
        """Yield the checks from a scorer's return value; the cost of its requests is in the evidence of the first."""
        several = {f"{scorer_.name}.{name}": one for name, one in value.items()} if isinstance(value, Mapping) else {}
        for number, (name, one) in enumerate(several.items() or [(scorer_.name, None if several == value else value)]):
            check = self._make_score_check(scorer_, name, one)
            asked = {key: said for key, said in evidence.items() if not number or key in ("judge", "served_model")}
            yield msgspec.structs.replace(check, evidence={**check.evidence, **asked}) if asked else check

    def _make_score_check(self, scorer_: Scorer, check_name: str, value: object) -> Check:
        try:
            return _make_check(check_name, scorer_, _parse_score(check_name, value, self._keys))
        except _InvalidScore as error:
            return Check(
                check_name[:MAX_CHECK_NAME_LENGTH], scorer_.version, Outcome.ERRORED, f"{scorer_.name} returned {error}"
            )


class _InvalidScore(Exception):
    """The returned value is not a valid score."""


def _parse_score(check_name: str, value: object, secrets: redaction.Secrets) -> Score:
    """Validate a returned value as a score that can be stored; raise `_InvalidScore` otherwise."""
    if len(check_name) > MAX_CHECK_NAME_LENGTH or not check_name.isprintable():
        raise _InvalidScore(f"a name of {len(check_name):,} characters, or with unprintable characters")
    given = value if isinstance(value, Score) else Score(_to_scalar(value))
    found = Score(_to_scalar(given.value), given.reason, _to_plain_evidence(given.evidence))
    if not isinstance(found.reason, str):
        raise _InvalidScore(f"a reason that is {_describe_type(found.reason)}")
    if secrets.occur_in(f"{found.reason} {found.value} {json.dumps(found.evidence, ensure_ascii=False)}"):
        raise _InvalidScore("an API key from the environment, and keys are never stored")
    return found


def _make_check(name: str, scorer_: Scorer, score: Score) -> Check:
    value, evidence = score.value, dict(score.evidence)
    reason = shorten_reason(score.reason, MAX_REASON_LENGTH)
    if isinstance(value, bool):
        outcome = Outcome.PASSED if value else Outcome.FAILED
        return Check(name, scorer_.version, outcome, reason or f"{name} returned {value}", None, evidence)
    if isinstance(value, float) and scorer_.pass_at is not None:
        outcome = Outcome.PASSED if value >= scorer_.pass_at else Outcome.FAILED
        compared = f"{name} is {value:.6g}, {'at least' if value >= scorer_.pass_at else 'below'} {scorer_.pass_at:g}"
        reason = f"{compared}: {reason}" if reason else compared
        return Check(name, scorer_.version, outcome, reason, value, {**evidence, "pass_at": scorer_.pass_at})
    if value is None:
        said, number = f"{name} returned None: nothing to score in this case", None
    elif isinstance(value, str):
        said, number, evidence = value, None, {**evidence, "label": value}
    else:
        said, number = f"{value:.6g}", float(value)
    return Check(name, scorer_.version, Outcome.UNSCORED, reason or said, number, evidence, decides=False)


def _to_scalar(value: object) -> bool | float | str | None:
    """Convert a value to plain Python; raise `_InvalidScore` if it is not a valid score."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():  # a numpy scalar or a tensor
        value = item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        label = str.__str__(value).strip()
        if not label or len(label) > MAX_LABEL_LENGTH:
            size = f"text of {len(label):,} characters" if label else "empty text"
            raise _InvalidScore(f"{size}; a label has 1 to {MAX_LABEL_LENGTH}, and Score(reason=…) takes longer text")
        return label
    if not isinstance(value, Real):
        raise _InvalidScore(
            f"{_describe_type(value)}; expected a bool, a number, a label, a Score, a mapping of these, or None"
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _InvalidScore(f"{number}, which is not a valid score; return None if there is nothing to score")
    return number


def _to_plain_evidence(evidence: object) -> dict[str, Any]:
    if not isinstance(evidence, Mapping):
        raise _InvalidScore(f"evidence that is {_describe_type(evidence)}; expected a mapping")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(evidence), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise _InvalidScore(f"evidence that cannot be written as JSON: {error}") from None
    return plain


def _describe_type(value: object) -> str:
    return f"a value of type {type(value).__name__}"


# ── Requests of a scorer ──


class _ScorerRequests:
    """The model requests of one scorer for one reply, with their cost."""

    def __init__(self, judge: Judge | None, no_judge_reason: str, make_judge: Callable[[str], Judge] | None) -> None:
        self._judge, self._no_judge, self._named = judge, no_judge_reason, make_judge
        self._loop = asyncio.get_running_loop()
        self._replies: list[tuple[Judge, Reply]] = []
        self.ended_run: PramanaError | None = None
        """The error that ends the run, kept even if the function catches it."""
        self.lacks_judge = False
        """Whether a request failed because there is no judge."""
        self.timeout: asyncio.Timeout | None = None
        """The time limit of the scorer, which is suspended during its requests: they have limits of their own."""
        self._pending_count = 0
        self._left_s: float | None = None

    async def ask_async(self, prompt: Prompt, model: str | None, parameters: Parameters) -> Reply:
        """Call a model from a coroutine of any event loop."""
        asking = self._ask(prompt, model, parameters)
        if asyncio.get_running_loop() is self._loop:
            return await asking
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self._loop))

    def ask_blocking(self, prompt: Prompt, model: str | None, parameters: Parameters) -> Reply:
        """Call a model from a thread, and block until the reply is there."""
        return asyncio.run_coroutine_threadsafe(self._ask(prompt, model, parameters), self._loop).result()

    async def _ask(self, prompt: Prompt, model: str | None, parameters: Parameters) -> Reply:
        turns = _parse_prompt(prompt)
        if not isinstance(model, str | None):
            raise InvalidInput(f"model: expected the name of a model, found {describe_value(model)}")
        if model is None:
            judge = self._judge
        elif self._named:
            judge = self._named(model)
        else:
            raise InvalidInput(f"scorers cannot call the model {model!r:.80}")
        if judge is None:
            self.lacks_judge = True
            raise InvalidInput(self._no_judge)
        request = Request(judge.provider_model_name, turns, {**judge.parameters, **(parameters or {})}, "judge")
        try:
            with self._suspend_timeout():
                reply = await judge.ask(request)
        except PramanaError as error:
            if ends_run(error):
                self.ended_run = error
            raise
        self._replies.append((judge, reply))
        return reply

    @contextmanager
    def _suspend_timeout(self) -> Iterator[None]:
        """Let the time limit of the scorer begin anew after a request; its requests may overlap."""
        limit = self.timeout.when() if self.timeout else None
        allowed = None if limit is None else limit - self._loop.time()
        self._pending_count += 1
        if self.timeout and allowed is not None:
            self.timeout.reschedule(None)
        try:
            yield
        finally:
            self._pending_count -= 1
            self._left_s = allowed if allowed is not None else self._left_s
            if self.timeout and self._left_s is not None and not self._pending_count and not self.timeout.expired():
                self.timeout.reschedule(self._loop.time() + self._left_s)

    def make_evidence(self) -> dict[str, object]:
        """Return the models called, their replies and the cost; empty if none was called."""
        if not self._replies:
            return {}
        replies = [reply for _, reply in self._replies]
        tokens: int | None = 0
        for each in replies:
            tokens = tokens if each.cached else add_usage(tokens, each.usage)
        costs = [each.cost_usd for each in replies]
        served = dict.fromkeys(each.served_model for each in replies if each.served_model)
        return {
            "judge": ", ".join(dict.fromkeys(judge.typed_name for judge, _ in self._replies)),
            "served_model": ", ".join(served) or None,
            "answers": [each.text for each in replies],
            "cost_usd": None if None in costs else sum(each for each in costs if each is not None),
            "tokens": tokens,
        }


def _parse_prompt(prompt: object) -> tuple[Turn, ...]:
    if isinstance(prompt, str):
        return (Turn("user", prompt),)
    if not isinstance(prompt, Sequence) or not prompt:
        raise InvalidInput(f"ask takes a prompt or a list of messages, found {_describe_type(prompt)}")
    turns = []
    for each in prompt:
        found = each if isinstance(each, Mapping) else {}
        role, content = (found.get(name) for name in _MESSAGE_KEYS)
        if role not in ("system", "user", "assistant") or not isinstance(content, str):
            expected = '{"role": "system", "user" or "assistant", "content": text}'
            raise InvalidInput(f"a message must be {expected}, found {each!r:.80}")
        turns.append(Turn(role, content))
    return tuple(turns)
