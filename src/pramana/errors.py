"""The errors that may leave Pramana, each with a stable code, an HTTP status and an exit code.

PramanaError                    something Pramana can explain; never a stack trace for the user
├── InvalidInput                a file, text or argument is not valid; carries every problem with its place
├── NotFound                    a suite version, tier or file that was named does not exist
├── AlreadyExists               it already exists, and what exists may not change
├── HashMismatch                content does not match its pinned hash; carries both hashes
├── BrokenPlugin                an installed package registered something unusable
├── WeightsMissing              an embedded model's weights are missing and could not be downloaded
│   └── EngineMissing           the runtime of an embedded model is not installed
├── SecretsLocked               stored secrets cannot be decrypted with the available keys
├── StoreFailed                 the database failed
├── AlreadyRunning              another process is working on this run
├── StateConflict               the current state does not allow it: the run has ended, or the version changed
├── BudgetSpent                 the run's cost or token limit is reached: stops it at once
├── Stopped                     the run was stopped before this request was sent
└── ProviderError               a provider did not reply as expected; says whether a retry may help
    ├── AuthenticationFailed    the key is missing or wrong: stops the run at once
    ├── OutOfCredit             the account is out of credit: stops the run at once
    ├── UnknownModel            the provider has no such model: stops the run at once
    ├── RateLimited             too many requests; may say how long to wait
    ├── Unavailable             a 5xx, a 529, no response in time
    │   └── Unreachable         no connection: stops the run at once if no request has succeeded yet
    ├── NotAnApi                a 404 that is not about the model: stops the run likewise
    ├── BrokenReply             the reply is cut off or not in the provider's format
    ├── AddressNotAllowed       the address is not allowed, such as a private one: stops the run at once
    ├── ApiKeyInReply           the reply contains an API key, so it is not stored
    └── Rejected                the provider rejected the request; may name the parameter at fault

Problems are values (`Problem`): loaders collect them, and only a stage's border turns them into an exception.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypedDict, Unpack

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """An error or a warning at one place. Line and column count from one; zero means the whole file."""

    message: str
    path: str = ""
    """The path in the document: `[17].assertion.type` in a suite, `scenarios[0].id` in scenarios."""
    line: int = 0
    column: int = 0
    file: str = ""
    source: str = ""
    """The part of the line around the problem; empty if there is none."""
    caret: int = 0
    """The column within `source`, counted from one."""
    severity: Severity = "error"

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return ": ".join(part for part in (place, self.path, self.message) if part)


@dataclass(frozen=True, slots=True)
class RepeatedProblem:
    """Problems with the same message at several places."""

    first: Problem
    count: int

    @property
    def times(self) -> str:
        """The count as a suffix of the line; empty for a single problem."""
        return f" ({self.count:,} times)" if self.count > 1 else ""


def fold_repeats(problems: Iterable[Problem]) -> list[RepeatedProblem]:
    """Fold equal problems into the first: the same message at other cases, turns or files.

    Warnings also count as equal when only the texts they quote differ.

    >>> [f"{each.first}{each.times}" for each in fold_repeats([Problem("blank", "[0].id"), Problem("blank", "[7].id")])]
    ['[0].id: blank (2 times)']
    """
    found: dict[tuple[str, ...], RepeatedProblem] = {}
    for each in problems:
        message = each.message if each.severity == "error" else _QUOTED.sub('""', each.message)
        key = (each.severity, _NUMBER.sub("", each.path), message)
        before = found.get(key)
        found[key] = RepeatedProblem(before.first, before.count + 1) if before else RepeatedProblem(each, 1)
    return list(found.values())


_NUMBER, _QUOTED = re.compile(r"\d+"), re.compile(r'"[^"]*"')
HintKey = Literal[
    "list_runs", "list_scorings", "start_run", "resume_run", "list_scenarios", "import_scenarios", "run_stored",
    "list_library", "list_models", "list_server_models", "list_tokens", "name_model", "create_token", "pull_weights",
    "list_watches", "start_watch", "compare_any_suite",
    "publish_suite", "any_suite", "check_filters", "name_judge", "choose_modalities", "send_parameter",
]  # fmt: skip
COMMAND_HINTS: Mapping[HintKey, str] = {
    "list_runs": "see: pramana runs",
    "list_scorings": "list the scorings: pramana show {} --scorings",
    "start_run": "start a run: pramana run",
    "resume_run": "resume the run on the command line: pramana run --resume {}",
    "list_watches": "see: pramana drift list",
    "start_watch": "start one: pramana drift start MODEL",
    "list_scenarios": "see: pramana scenarios list",
    "import_scenarios": "import scenarios: pramana scenarios import FILE",
    "run_stored": "run: pramana run store:{}",
    "list_library": "write library: for all built-in scenarios, or library:task-completion for one folder",
    "list_models": "list the models on offer: pramana models {}",
    "list_server_models": "list the models on offer: pramana models {}",
    "name_model": "to test a Python function, write python:module:function; list models: pramana models",
    "list_tokens": "see: pramana token list",
    "create_token": "create a token on the server: pramana token create NAME --role admin",
    "pull_weights": "run: pramana models pull {}",
    "any_suite": "to compare {}, add --any-suite",
    "compare_any_suite": "to compare the cases that both have, run without --baseline and use: pramana compare "
    "--any-suite",
    "publish_suite": "restore the file, or publish the new content as a new version: pramana suite publish",
    "check_filters": "check the spelling of {:options}",
    "name_judge": "name another model with --judge",
    "choose_modalities": "choose the modalities: --modality text,voice",
    "send_parameter": "give the parameter {0} of your function a default, or send it: --param {0}=VALUE",
}
"""Hints as a terminal, a log and a stored reason print them. The API and the pages have their own texts."""
PYTHON_HINTS: Mapping[HintKey, str] = {
    **COMMAND_HINTS,
    "list_runs": "see: pramana.runs()",
    "list_scorings": "list the scorings: pramana.load_report({!r}).scorings",
    "start_run": "start a run: pramana.evaluate(...)",
    "resume_run": "resume the run in Python: pramana.resume({!r})",
    "any_suite": "to compare {}, pass any_suite=True",
    "compare_any_suite": "to compare the cases that both have: pramana.compare(BASE, NEW, any_suite=True)",
    "name_model": "to test a Python function, pass it: model=function; list models: pramana models, in a shell",
    "check_filters": "check the spelling of selection={:fields}",
    "name_judge": 'pass another model, such as judge="gpt-5-mini"',
    "choose_modalities": 'choose the modalities: modalities=["text", "voice"]',
    "send_parameter": 'give the parameter {0} of your function a default, or send it: parameters={{"{0}": VALUE}}',
}
"""Hints for users of the Python API."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What to do about an error: a key that each front end words for its users, and the subject."""

    key: HintKey
    about: object = ""
    """Text, or a selection, which each front end formats in its own words: `{:options}`, `{:fields}`, `{:json}`."""


class _ErrorAttributes(TypedDict, total=False):
    """The class arguments that an error class may set."""

    code: str
    http_status: int
    exit_code: int
    transient: bool
    fatal: bool


class PramanaError(Exception):
    """The base class of Pramana's errors: an error with a message for the user and, where possible, a hint."""

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 3
    problems: tuple[Problem, ...] = ()
    """Every problem with its place, where that is known."""
    hint: Hint | None = None
    hints: Mapping[HintKey, str] = COMMAND_HINTS
    """The hints that `str()` uses: those of the current front end."""

    def __init_subclass__(cls, **stated: Unpack[_ErrorAttributes]) -> None:
        super().__init_subclass__()
        for name, value in stated.items():
            if name not in _ErrorAttributes.__annotations__:
                raise TypeError(f"an error class can set {', '.join(_ErrorAttributes.__annotations__)}, not {name}")
            setattr(cls, name, value)

    def __init__(self, message: str, *, hint: Hint | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def explain(self, hints: Mapping[HintKey, str]) -> str:
        """Return the error's message and its hint, in the words of a front end.

        >>> NotFound("there is no run yet", hint=Hint("start_run")).explain(COMMAND_HINTS)
        'there is no run yet; start a run: pramana run'
        """
        message = super().__str__()
        told = f"{message}; {hints[self.hint.key].format(self.hint.about).rstrip()}" if self.hint else message
        return told if told.isprintable() else _UNPRINTABLE_RE.sub(_escape_character, told)

    def __str__(self) -> str:
        return self.explain(self.hints)


def set_field_path_if_missing(error: PramanaError, path: str) -> None:
    """Say which field of a request an error is about, unless the error names its places."""
    error.problems = error.problems or (Problem(str(error.args[0]), path),)


_UNPRINTABLE_RE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a message quotes from its input and a terminal would execute or cannot print; lines and tabs are ours."""


def _escape_character(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


MAX_PROBLEMS_IN_TRACEBACK = 20
"""Maximum number of problems in a traceback."""
MAX_PROBLEMS_IN_MESSAGE = 3
"""Maximum number of folded problems in a message."""


class InvalidInput(PramanaError, code="invalid_input", http_status=400, exit_code=2):
    """The error for invalid input; its attribute `problems` has every problem with its place."""

    def __init__(self, message: str, problems: Sequence[Problem] = (), *, hint: Hint | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    def with_paths(self, rename_path: Callable[[str], str]) -> "InvalidInput":
        """Return the error with another name for each field, in the words of a front end; paths of files stay."""
        if any(each.file for each in self.problems):
            return self
        renamed = [replace(each, path=rename_path(each.path)) for each in self.problems]
        return self if renamed == list(self.problems) else InvalidInput.from_problems(renamed)

    @classmethod
    def from_problems(cls, problems: Sequence[Problem], total_count: int = 0) -> "InvalidInput":
        """Make one exception that starts with the first problem.

        `total_count` also counts problems that were not kept.

        Repeated problems appear once, with their count, up to the first few.
        """
        ordered = sorted(problems, key=lambda each: (each.file, each.line, each.column))
        folded = fold_repeats(ordered)
        shown = folded[: 1 if len(folded) == len(ordered) else MAX_PROBLEMS_IN_MESSAGE]
        others = max(total_count, len(ordered)) - sum(each.count for each in shown)
        more = f" (and {others:,} more)" if others else ""
        error = cls("; ".join(f"{each.first}{each.times}" for each in shown) + more, ordered)
        for each in ordered[
            1:MAX_PROBLEMS_IN_TRACEBACK
        ]:  # shown in tracebacks; commands and the API list the problems themselves
            error.add_note(str(each))
        return error


class NotFound(PramanaError, code="not_found", http_status=404, exit_code=2):
    """It does not exist."""


class AlreadyExists(PramanaError, code="already_exists", http_status=409, exit_code=2):
    """It already exists, such as a published version, which never changes."""


class HashMismatch(PramanaError, code="hash_mismatch", http_status=409, exit_code=2):
    """The content does not match its pinned hash."""

    def __init__(self, subject: str, *, pinned: str, actual: str) -> None:
        super().__init__(
            f"{subject} does not match its pinned hash and is not run\n  pinned {pinned}\n  found  {actual}",
            hint=Hint("publish_suite"),
        )
        self.pinned, self.actual = pinned, actual


class BrokenPlugin(PramanaError, code="broken_plugin"):
    """An installed package registered something that cannot be used."""


class WeightsMissing(PramanaError, code="weights_missing", http_status=503):
    """The weights of an embedded model are missing and could not be downloaded."""


class EngineMissing(WeightsMissing, code="engine_missing"):
    """The runtime of an embedded model is not installed."""


class SecretsLocked(PramanaError, code="locked", http_status=503):
    """Stored secrets cannot be decrypted with the available keys."""


class StoreFailed(PramanaError, code="store_failed", http_status=503):
    """The database failed."""


class AlreadyRunning(PramanaError, code="already_running", http_status=409):
    """Another process is working on this run."""


class StateConflict(PramanaError, code="conflict", http_status=409, exit_code=2):
    """The current state does not allow it."""


class BudgetSpent(PramanaError, code="budget_spent"):
    """The cost or token limit of the run is reached."""

    def __init__(self, message: str, limit: str | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        """The field of `Limits` that was reached."""


class Stopped(PramanaError, code="stopped"):
    """The run was stopped before this request was sent."""


class ProviderError(PramanaError, code="provider_error", http_status=502):
    """The error for a provider that did not reply as expected."""

    transient: ClassVar[bool] = False
    """Whether a retry may help."""
    fatal: bool = False
    """Whether every other request would fail too: the run stops with this error."""

    status: int | None = None
    retry_after: float | None = None
    """Seconds to wait before a retry, where the provider names a valid number."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None, hint: Hint | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.retry_after = status, _parse_seconds(retry_after)


class AuthenticationFailed(ProviderError, code="authentication_failed", fatal=True):
    """The key is missing or wrong."""


class OutOfCredit(ProviderError, code="out_of_credit", fatal=True):
    """The account is out of credit, or over its spending limit."""


class UnknownModel(ProviderError, code="unknown_model", fatal=True):
    """The provider has no such model."""


class RateLimited(ProviderError, code="rate_limited", transient=True):
    """Too many requests."""


class Unavailable(ProviderError, code="unavailable", transient=True):
    """The provider is temporarily unavailable."""


class Unreachable(Unavailable, code="unreachable"):
    """The provider cannot be reached."""


class NotAnApi(ProviderError, code="nothing_there"):
    """The server at that address is not the API."""


class BrokenReply(ProviderError, code="broken_reply", transient=True):
    """The reply is cut off or not in the provider's format."""


class AddressNotAllowed(ProviderError, code="address_refused", fatal=True):
    """The address is not on the public Internet, and this user may not use others."""


class ApiKeyInReply(ProviderError, code="key_in_answer"):
    """The reply contains an API key, so it is neither stored nor scored."""


class Rejected(ProviderError, code="rejected"):
    """The provider rejected the request."""

    def __init__(self, message: str, *, status: int | None = None, parameter: str | None = None) -> None:
        super().__init__(message, status=status)
        self.parameter = parameter
        """The parameter that the provider rejects, where it names one."""


def _parse_seconds(retry_after: object) -> float | None:
    """Return a valid number of seconds, or None: users' functions raise these errors too."""
    try:
        seconds = float(retry_after)  # type: ignore[arg-type] # which is what is tried
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < float("inf") else None


def suggest_similar(word: str, known: Iterable[str], min_similarity: float = 0.6) -> str:
    """Return a suggestion to append to a message, or an empty string if no known word is similar.

    >>> suggest_similar("contians", ["contains", "is_json"])
    '; did you mean "contains"?'
    """
    from difflib import get_close_matches

    near = get_close_matches(word[:100], list(known), n=1, cutoff=min_similarity)
    return f'; did you mean "{near[0]}"?' if near else ""


def escape_control_characters(text: str) -> str:
    """Return text with control characters and unprintable characters escaped, so that it stays on one line.

    >>> escape_control_characters("two\\nlines")
    'two\\\\nlines'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def describe_exception(error: BaseException) -> str:
    """Return an exception's type and message on one line, even if its `__str__` fails.

    >>> describe_exception(ValueError("two\\nlines")), describe_exception(KeyError())
    ('ValueError: two\\\\nlines', 'KeyError')
    """
    try:
        said = escape_control_characters(str(error))
    except Exception:  # noqa: BLE001 - str(error) may fail; the class name is enough
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def describe_value(value: object, limit: int = 60) -> str:
    """Return a value as Python writes it, on one line and shortened, even if its `__repr__` fails.

    >>> describe_value([1, 2]), describe_value("x" * 100, limit=5)
    ('[1, 2]', "'xxxx")
    """
    try:
        shown = escape_control_characters(repr(value[:limit] if isinstance(value, str | bytes) else value))
    except Exception:  # noqa: BLE001 - the value of a user may raise anything, or be nested too deeply
        shown = f"a {type(value).__name__}"
    return shown[:limit]


def quote_text(text: str, limit: int = 60) -> str:
    """Return text in double quotes on one line, control characters escaped, shortened to the limit."""
    return f'"{escape_control_characters(text if len(text) <= limit else text[: limit - 1] + "…")}"'
