"""The arguments of `evaluate` and its siblings: their types, and errors in their words.

Each option is a field of `RunRequest` or `Limits`, with its name there. Every function of the library raises its errors
through `reword_for_python`; the command line has its own names for the same fields. Nothing here reads an argument.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from msgspec.structs import fields

from pramana import settings
from pramana.errors import PYTHON_HINTS, InvalidInput, NotFound, PramanaError, WeightsMissing, suggest_similar
from pramana.model import Case, Reply
from pramana.providers.text.function import has_user_frames
from pramana.request import RunRequest, Selection, get_published_name
from pramana.score.scorers import Scorer, ScorerFunction

PathLike = str | Path
Cases = PathLike | Case | Mapping[str, Any] | Iterable[PathLike | Case | Mapping[str, Any]] | Any
"""A file or folder, several of them, cases, dictionaries, or a data frame."""
Model = str | Callable[..., str | Reply | Coroutine[Any, Any, str | Reply]]
"""A model's name, or a function from prompt or messages to text."""
SingleJudge = str | Callable[..., Any]
Judge = SingleJudge | Sequence[SingleJudge]
"""A model's name, or a function from a question to text, a bool or a dictionary; several form a panel."""
Models = Sequence[Model] | Mapping[str, Callable[..., Any]]
"""Several models; a dictionary maps the names under which results are stored to functions."""
AnyScorer = str | Scorer | ScorerFunction
"""The name of an installed scorer, or a function that scores."""


class ResumeOptions(TypedDict, total=False):
    """The options that a resumed run may change: its limits, the cache, and the functions of its scorers."""

    scorers: Sequence[AnyScorer]
    cache: bool
    max_cost_usd: float | None
    max_total_tokens: int | None
    deadline_s: float | None
    concurrency: int
    timeout_s: float


class RunOptions(ResumeOptions, total=False):
    """All other options of a run, with the names of `RunRequest` and `Limits`."""

    suite: str
    tier: str
    selection: Selection | Mapping[str, Any]
    scenarios: Selection | Mapping[str, Any]
    modalities: Sequence[str]
    condition: str
    embedder: str
    stt: str
    voice: Literal["espeak", "piper"]
    system_prompt: str
    temperature: float | None
    seed: int | None
    max_tokens: int
    top_p: float
    parameters: Mapping[str, Any]
    name: str
    note: str


# ── Unknown options ──

_SELECTION_EXAMPLE = 'selection=pramana.Selection({}=("…",))'
_ARGUMENT_HINTS = {
    "repeats": "repeat",
    "paths": "the path as the first argument",
    "limits": "each limit by itself, such as max_cost_usd=2",
    "max_cost": "max_cost_usd",
    "budget": "max_cost_usd",
    "deadline": "deadline_s",
    "timeout": "timeout_s",
    "system": "system_prompt",
    "modality": "modalities",
    "params": "parameters",
    "limit": "selection=pramana.Selection(limit=10)",
    "text": 'selection=pramana.Selection(text="…")',
    **{
        each: _SELECTION_EXAMPLE.format(each)
        for each in ("ids", "categories", "tags", "all_tags", "difficulties", "languages")
    },
    "id": _SELECTION_EXAMPLE.format("ids"),
    "category": _SELECTION_EXAMPLE.format("categories"),
    "tag": _SELECTION_EXAMPLE.format("tags"),
    "difficulty": _SELECTION_EXAMPLE.format("difficulties"),
    "language": _SELECTION_EXAMPLE.format("languages"),
}
"""Hints for options that have another name on the command line, or are fields of another option."""
_NAMED_PARAMETERS = ("model", "models", "judge", "repeat", "progress")
"""The parameters of `evaluate` that its signature names."""


def make_unexpected_option_error(function: str, name: str) -> TypeError:
    """Return the error about an option that does not exist, with the one that was probably meant.

    >>> make_unexpected_option_error("evaluate", "max_cost")
    TypeError("evaluate() got an unexpected keyword argument 'max_cost'; write max_cost_usd")
    """
    known = [*_NAMED_PARAMETERS, *RunOptions.__annotations__]
    hint = f"; write {_ARGUMENT_HINTS[name]}" if name in _ARGUMENT_HINTS else suggest_similar(name, known)
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


# ── Errors ──

_ERRORS_NEEDING_NO_TRACEBACK = (InvalidInput, NotFound, WeightsMissing)
"""Errors whose message says where they come from, even if a user's file raised them."""


def reword_for_python(error: PramanaError) -> PramanaError:
    """Return an error with hints and fields as arguments, and without our frames; `PRAMANA_DEBUG=1` keeps the frames.

    An error that a user's function raised keeps its frames, as they say where.
    """
    if isinstance(error, InvalidInput):
        error = error.with_paths(_argument_name)
    error.hints = PYTHON_HINTS
    if settings.is_debugging() or (not isinstance(error, _ERRORS_NEEDING_NO_TRACEBACK) and has_user_frames(error)):
        return error
    error.__cause__ = None
    return error.with_traceback(None)


def _argument_name(field: str) -> str:
    """Return the argument of `evaluate` that sets a field of a request.

    >>> [*map(_argument_name, ("repeats", "limits.max_cost_usd", "modality", "temperature"))]
    ['repeat', 'max_cost_usd', 'modalities', 'temperature']
    """
    published = {get_published_name(each): each.name for each in fields(RunRequest)} | {"repeats": "repeat"}
    return published.get(field, field.removeprefix("limits."))
