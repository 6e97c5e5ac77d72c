"""The request for a run, as plain data: `RunRequest`, its cases (`Selection`) and its limits (`Limits`).

The command line, the API, the workbench form and Python each make a `RunRequest`; `planning` turns it into a plan. A
new option is one field here and one flag: the API's body and the form are made from the fields. Nothing here reads a
file or uses a store.

One filter serves files, tiers, stored scenarios and the API: `Selection.matches` decides in Python, the store does the
same in SQL.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo, asdict, fields

from pramana.errors import InvalidInput, Problem, describe_value, quote_text, suggest_similar
from pramana.jsonl import MAX_JSON_DEPTH, is_nested_deeper
from pramana.model import Case

MAX_PARAMETERS_CHARS = 64_000
"""Maximum length of all parameters as JSON: every list of runs reads them."""
MAX_NAME_CHARS = 500
MAX_PANEL_SIZE = 9
MAX_RUN_NAME_CHARS, MAX_NOTE_CHARS = 100, 10_000
LOCAL_ONLY_MARK = {"local_only": True}
_SAMPLING_MARK = {"sampling": True}
_StructType = TypeVar("_StructType", bound=Struct)
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
RunName = Annotated[str, Meta(max_length=MAX_RUN_NAME_CHARS)]
RunNote = Annotated[str, Meta(max_length=MAX_NOTE_CHARS)]
Seconds = Annotated[float, Meta(gt=0, le=10**9)]
SearchText = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
PageNumber = Annotated[int, Meta(ge=1, le=1_000_000)]
PageSize = Annotated[int, Meta(ge=1, le=500)]


class _NoFilter(tuple[str, ...]):
    """The default of a filter, which is left out: equal to an empty tuple, but not the one that a user gives."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "NO_FILTER"


NO_FILTER = _NoFilter()


class Selection(Struct, frozen=True, kw_only=True):
    """Filters on cases.

    A case is selected if it passes every filter; it passes a filter if it matches any value of the filter
    (`all_tags`: every value).

    >>> bool(Selection()), bool(Selection(tags=("domain:",)))
    (False, True)
    """

    ids: tuple[str, ...] = NO_FILTER
    categories: tuple[str, ...] = NO_FILTER
    """Categories of test cases, or types of scenarios."""
    tags: tuple[str, ...] = NO_FILTER
    """A tag that ends in a colon matches every tag that starts with it: `domain:` matches `domain:travel`."""
    all_tags: tuple[str, ...] = NO_FILTER
    difficulties: tuple[str, ...] = NO_FILTER
    languages: tuple[str, ...] = NO_FILTER
    text: str = ""
    """Found in the ID, name, prompt or expected outcome, ignoring case."""
    limit: int | None = None
    """Maximum number of cases, counted in their order."""

    def __post_init__(self) -> None:
        for name in _OPTION_BY_FILTER:
            if isinstance(value := getattr(self, name), str):
                raise InvalidInput(
                    f"{name} is a list, found the text {quote_text(value)}; write {name}=[{quote_text(value)}]"
                )

    def __bool__(self) -> bool:
        return bool(self.to_recorded())

    def list_filters_given_as_empty(self) -> list[str]:
        """Return the names of the filters that were given as an empty list, which is not the same as left out.

        >>> Selection(ids=()).list_filters_given_as_empty(), Selection().list_filters_given_as_empty()
        (['ids'], [])
        """
        return [name for name in _OPTION_BY_FILTER if (value := getattr(self, name)) is not NO_FILTER and not value]

    def refuse_empty_filters(self, argument_name: str, published_names: Mapping[str, str] | None = None) -> None:
        """Raise `InvalidInput` for a filter that was given as an empty list; `published_names` names the filters.

        >>> Selection(all_tags=()).refuse_empty_filters("selection", {"all_tags": "allTags"})
        Traceback (most recent call last):
            ...
        pramana.errors.InvalidInput: selection: allTags is empty: no case would run; leave it out for all cases
        """
        if empty := self.list_filters_given_as_empty():
            name = (published_names or {}).get(empty[0], empty[0])
            raise InvalidInput(f"{argument_name}: {name} is empty: no case would run; leave it out for all cases")

    def to_recorded(self) -> dict[str, object]:
        """Return the filters that are set, as plain data for the plan."""
        given = asdict(self).items()
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given if value}

    def __format__(self, words: str) -> str:
        """Return the filters in the words of a front end: `options`, `fields` of Python, or `json` of the API.

        >>> chosen = Selection(all_tags=("vip", "new"), limit=3)
        >>> f"{chosen:options}", f"{chosen:fields}"
        ('--all-tags vip --all-tags new --limit 3', '{"all_tags": ["vip", "new"], "limit": 3}')
        >>> f"{chosen:json}"
        '{"allTags": ["vip", "new"], "limit": 3}'
        """
        recorded = self.to_recorded()
        if words in ("fields", "json"):
            renamed = {_to_camel_case(name) if words == "json" else name: value for name, value in recorded.items()}
            return json.dumps(renamed, ensure_ascii=False)
        values = ((name, each) for name, value in recorded.items() for each in _as_list(value))
        return " ".join(f"{_OPTION_BY_FILTER.get(name, f'--{name}')} {value}" for name, value in values)

    def matches(self, case: Case) -> bool:
        """Return whether a case passes every filter; the limit on the number of cases is not checked."""
        facets = case.facets
        return (
            (not self.categories or facets.category in self.categories)
            and (not self.difficulties or facets.difficulty in self.difficulties)
            and (not self.languages or facets.language in self.languages)
            and (not self.ids or case.id in self.ids)
            and (not self.tags or any(_has_tag(facets.tags, wanted) for wanted in self.tags))
            and all(_has_tag(facets.tags, wanted) for wanted in self.all_tags)
            and (not self.text or _has_text(case, self.text.casefold()))
        )

    def select_cases(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Yield the cases that match the selection, up to its limit; only as many cases are read as needed."""
        return islice(filter(self.matches, cases), self.limit)


_OPTION_BY_FILTER = {
    "categories": "--category",
    "tags": "--tag",
    "all_tags": "--all-tags",
    "difficulties": "--difficulty",
    "languages": "--language",
    "ids": "--id",
}
"""The filters that are lists, each with its command-line option; a scenario's type is its category."""


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _to_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def is_tag_prefix(tag: str) -> bool:
    """Return whether a tag in a filter is a prefix: `domain:` matches every tag that starts with it."""
    return tag.endswith(":")


def _has_tag(tags: tuple[str, ...], tag_filter: str) -> bool:
    return any(tag.startswith(tag_filter) for tag in tags) if is_tag_prefix(tag_filter) else tag_filter in tags


def _has_text(case: Case, casefolded_text: str) -> bool:
    searched = (case.id, case.name, case.expected_outcome, *(turn.text for turn in case.turns))
    return any(casefolded_text in each.casefold() for each in searched if each)


def format_cost_limit(max_cost_usd: float) -> str:
    """Format a cost limit in dollars, never in scientific notation.

    >>> format_cost_limit(2.0), format_cost_limit(0.00001), format_cost_limit(1500)
    ('$2', '$0.00001', '$1500')
    """
    return f"${f'{max_cost_usd:.12f}'.rstrip('0').rstrip('.')}"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on cost, tokens, time and concurrency. A resumed run keeps its limits, except those that you pass."""

    max_cost_usd: Annotated[
        Annotated[float, Meta(gt=0, le=10**9)] | None,
        Meta(title="Cost limit (USD)", description="Cost limit in US dollars", extra={"published": "max_cost"}),
    ] = None
    """Cost limit in US dollars. It includes the cost of judges, and the cost of the run before it was resumed. At the
    limit, no new requests are sent; those in flight are finished and paid for, so a run can cost a little more."""
    max_total_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=10**15)] | None,
        Meta(title="Token limit", description="Limit on input and output tokens together"),
    ] = None
    """Limit on input and output tokens together. It includes the tokens of judges, and those of the run before it was
    resumed. At the limit, no new requests are sent; those in flight are finished, so a run can use a few more."""

    deadline_s: Annotated[
        Seconds | None,
        Meta(
            title="Time limit (seconds)",
            description="Time limit in seconds; a resumed run gets the full time again",
            extra={"published": "deadline_seconds"},
        ),
    ] = None
    """It starts again each time the run is resumed."""
    concurrency: Annotated[
        int,
        Meta(ge=1, le=10_000, title="Concurrency per provider", description="Concurrent requests per provider"),
    ] = 32
    timeout_s: Annotated[
        Seconds, Meta(description="Time limit per request in seconds", extra={"published": "timeout_seconds"})
    ] = 120.0

    def to_stored(self) -> dict[str, Any]:
        """Return the limits that are set, as a run stores them: `Limits(**stored)` restores them."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def for_resumed_run(cls, stored_limits: Mapping[str, Any], new_limits: Mapping[str, Any]) -> "Limits":
        """Return the limits of a resumed run: the stored ones, overridden by those that are given.

        >>> Limits.for_resumed_run({"max_cost_usd": 2.0, "concurrency": 4}, {"concurrency": 8}).to_stored()
        {'max_cost_usd': 2.0, 'concurrency': 8, 'timeout_s': 120.0}
        """
        limits = cls(**{**stored_limits, **new_limits})
        check_struct_values(limits)
        return limits


class RunRequest(Struct, frozen=True, kw_only=True):
    """All options of a run.

    >>> RunRequest(models=("fake",), temperature=None, max_tokens=50).make_sent_parameters()
    {'temperature': None, 'seed': 42, 'max_tokens': 50}
    """

    # `title` is a field's label in the workbench, `description` its sentence in the API's documentation. Fields marked
    # local-only read files of this machine; `planning` refuses them in requests from other users.

    paths: Annotated[tuple[Path, ...], Meta(extra=LOCAL_ONLY_MARK)] = ()

    """Suite and scenario files, or folders of them."""
    cases: Annotated[tuple[Case, ...], Meta(extra=LOCAL_ONLY_MARK)] = ()
    """Cases built in Python."""
    selection: Annotated[Selection, Meta(extra=LOCAL_ONLY_MARK)] = Selection()
    """Filters on the cases in `paths`, in `cases` or in the tier."""
    suite: Annotated[Name | None, Meta(description="Suite version, such as v1.0")] = None
    tier: Annotated[Name | None, Meta(description="Tier of the suite, such as cheap")] = None
    scenarios: Selection | None = None
    """Filters on the scenarios in the store. An empty selection means all of them, None means none."""
    models: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=50, description="Models to test")]
    repeats: Annotated[int, Meta(ge=1, le=1_000, title="Repeats per case", description="Repeats per case")] = 1
    modalities: Annotated[tuple[str, ...] | None, Meta(extra={"published": "modality"})] = None
    """How cases are sent: text, voice, noisy. None: text to text models, voice to voice agents."""
    condition: Annotated[
        Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None,
        Meta(title="Audio condition", description="noise=10dB,phone"),
    ] = None
    judge: Annotated[
        Name | None, Meta(title="Judge model", description="Judge model; null: each model judges its own replies")
    ] = None
    other_judges: Annotated[
        Annotated[tuple[Name, ...], Meta(max_length=MAX_PANEL_SIZE - 1)],
        Meta(description="Further judges: with `judge` they form a panel, whose majority decides"),
    ] = ()
    """Each of them judges every reply. Without a majority, the reply has no verdict."""
    embedder: Annotated[
        Name | None,
        Meta(title="Embedding model", description="Embedding model for semantic_similarity; null: MiniLM, embedded"),
    ] = None
    stt: Annotated[
        Name | None, Meta(title="Speech-to-text model", description="Speech-to-text model that transcribes calls again")
    ] = None
    voice: Literal["espeak", "piper"] = "espeak"
    scorers: Annotated[
        Annotated[tuple[Name, ...], Meta(max_length=20)],
        Meta(description="Installed scorers that also check every reply"),
    ] = ()
    """Scorers that check every reply too: names of installed ones, or `python:package.module:function`, which only the
    user of this machine may pass."""
    system_prompt: Annotated[str, Meta(max_length=1_000_000)] | None = None
    """Sent before the messages of every case."""
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=100)] | None,
        Meta(title="Temperature", description="Sampling temperature; null sends none", extra=_SAMPLING_MARK),
    ] = 0.0
    seed: Annotated[
        Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None,
        Meta(title="Seed", description="Random seed; null sends none", extra=_SAMPLING_MARK),
    ] = 42
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=10**9)] | None,
        Meta(title="Max output tokens", description="Max output tokens per reply", extra=_SAMPLING_MARK),
    ] = None
    top_p: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(title="Top P", description="Nucleus sampling; null sends none", extra=_SAMPLING_MARK),
    ] = None
    parameters: Annotated[Mapping[str, Any], Meta(description="Any other parameter, by the provider's name for it")] = (
        msgspec.field(default_factory=dict)
    )
    """Sent unchanged. A parameter that has its own field, such as `temperature`, overrides that field."""
    name: Annotated[RunName | None, Meta(title="Name", description="Name of the run, shown in lists")] = None
    note: Annotated[RunNote | None, Meta(title="Note", description="Note on the run")] = None
    limits: Limits = Limits()
    cache: Annotated[bool, Meta(extra=LOCAL_ONLY_MARK)] = False
    """Whether to reuse cached replies to identical requests."""

    def make_sent_parameters(self) -> dict[str, Any]:
        """Return every parameter that is sent with a case; the value None stops a default from being sent."""
        stated = {name: getattr(self, name) for name in MODEL_PARAMETER_FIELDS}
        unset = {
            name for name, value in stated.items() if value is None and MODEL_PARAMETER_FIELDS[name].default is None
        }
        return {**{name: value for name, value in stated.items() if name not in unset}, **self.parameters}

    def check(self) -> None:
        """Raise `InvalidInput` with every invalid value, field by field."""
        problems = [
            *find_value_problems(self),
            *find_value_problems(self.limits, "limits."),
            *_find_parameter_problems(self.parameters),
        ]
        if problems:
            raise InvalidInput.from_problems(problems)


def request_to_plain(request: RunRequest) -> dict[str, Any]:
    """Return the fields of a request that differ from their defaults as plain data, with absolute paths.

    >>> request_to_plain(RunRequest(models=("fake",), selection=Selection(limit=3)))
    {'selection': {'limit': 3}, 'models': ('fake',)}
    """
    given = {each.name: getattr(request, each.name) for each in fields(RunRequest)}
    given |= {
        name: Selection.to_recorded(given[name]) for name in ("selection", "scenarios") if given[name] is not None
    }
    given |= {"paths": [_make_path_absolute(each) for each in request.paths], "limits": request.limits.to_stored()}
    if request.limits == Limits():
        del given["limits"]
    plain: dict[str, Any] = msgspec.to_builtins(given)
    defaults = {each.name: each.default for each in fields(RunRequest)}
    return {
        name: value
        for name, value in plain.items()
        if given[name] != defaults[name] and (value or name not in ("paths", "selection", "parameters"))
    }


def request_from_plain(plain: Mapping[str, Any]) -> RunRequest:
    """Return the request that `request_to_plain` made plain."""

    def decode_path(type_: type, value: Any) -> Any:
        return Path(value) if type_ is Path else value

    return msgspec.convert(dict(plain), RunRequest, dec_hook=decode_path)


def _make_path_absolute(path: Path) -> str:
    """Return a file's absolute path; a name such as `library:` or `store:hours-1` stays as it is."""
    return str(path) if ":" in str(path) and not path.exists() else str(path.absolute())


class RunEdit(Struct, frozen=True, kw_only=True):
    """Changes to a stored run; None leaves a value as it is, an empty text removes it."""

    name: Annotated[RunName | None, Meta(description="Name of the run in lists; empty for none")] = None
    note: Annotated[RunNote | None, Meta(description="Note on the run; empty for none")] = None


def check_struct_values(struct: Struct) -> None:
    """Raise `InvalidInput` with every value of a struct that does not fit its field."""
    if problems := list(find_value_problems(struct)):
        raise InvalidInput.from_problems(problems)


def get_field_metadata(field: FieldInfo) -> Meta:
    """Return the metadata of a field: title, description, bounds."""
    found = [each for each in get_args(field.type)[1:] if isinstance(each, Meta)] if _is_annotated(field.type) else []
    return found[-1] if found else Meta()  # the outermost, after any bounds of its type


def get_published_name(field: FieldInfo) -> str:
    """Return the name of a field in the API, in snake_case."""
    return str((get_field_metadata(field).extra or {}).get("published", field.name))


def takes_number(field: FieldInfo) -> bool:
    """Return whether a field takes a number."""
    return bool({int, float} & set(_iterate_base_types(field.type)))


def _iterate_base_types(type_: Any) -> Iterator[Any]:
    inner = get_args(type_)
    if _is_annotated(type_):
        yield from _iterate_base_types(inner[0])
    elif get_origin(type_) in (Union, UnionType):
        yield from (base for each in inner for base in _iterate_base_types(each))
    else:
        yield type_


def _is_annotated(type_: Any) -> bool:
    return get_origin(type_) is Annotated


def _find_fields_with_mark(mark: str) -> dict[str, FieldInfo]:
    return {each.name: each for each in fields(RunRequest) if (get_field_metadata(each).extra or {}).get(mark)}


MODEL_PARAMETER_FIELDS = _find_fields_with_mark("sampling")
"""The fields that are model parameters."""
DEFAULT_PARAMETERS = RunRequest(models=()).make_sent_parameters()
"""The parameters that a run sends by default."""
LOCAL_ONLY_FIELDS = _find_fields_with_mark("local_only")
"""The fields that only this machine's own user may set."""


def find_value_problems(struct: Struct, path_prefix: str = "") -> Iterator[Problem]:
    """Yield a problem for each value of a struct that does not fit its field."""
    for each in _get_fields_cached(type(struct)):
        value = getattr(struct, each.name)
        if each.name in ("paths", "cases"):  # files are checked by their readers
            continue
        if expected := _find_nested_types(each.type):  # their content is checked separately
            if not isinstance(value, expected):
                kind = "a dictionary" if Mapping in expected else f"a {expected[0].__name__}"
                yield Problem(f"expected {kind}, found {describe_value(value)}", f"{path_prefix}{each.name}")
        elif message := describe_type_mismatch(value, each.type):
            yield Problem(message, f"{path_prefix}{each.name}")


@cache
def _find_nested_types(type_: Any) -> tuple[type, ...]:
    """Return the types that a field of structs or mappings accepts; empty for any other field."""
    bases = [get_origin(each) or each for each in _iterate_base_types(type_)]
    nested = [each for each in bases if each is Mapping or (isinstance(each, type) and issubclass(each, Struct))]
    return (*nested, *(each for each in bases if each is type(None))) if nested else ()


def _find_parameter_problems(parameters: Any) -> Iterator[Problem]:
    if not isinstance(parameters, Mapping):
        return  # which is reported with the other fields
    if unnamed := [each for each in parameters if not isinstance(each, str)]:
        yield Problem(f"the name of a parameter is text, found {describe_value(unnamed[0])}", "parameters")
        return
    if is_nested_deeper(parameters, MAX_JSON_DEPTH):
        yield Problem(f"nested more than {MAX_JSON_DEPTH} levels deep", "parameters")
        return
    try:
        size = len(json.dumps(parameters, allow_nan=False))
    except ValueError:
        yield Problem("JSON does not allow NaN or Infinity", "parameters")
        return
    except TypeError as error:
        yield Problem(f"cannot be written as JSON: {error}", "parameters")
        return
    if size > MAX_PARAMETERS_CHARS:
        yield Problem(f"{size:,} characters as JSON; at most {MAX_PARAMETERS_CHARS:,} are allowed", "parameters")
    for name, value in parameters.items():
        if name in MODEL_PARAMETER_FIELDS and (
            message := describe_type_mismatch(value, MODEL_PARAMETER_FIELDS[name].type)
        ):
            yield Problem(message, f"parameters.{name}")


def struct_from_texts(
    struct: type[_StructType], texts: Mapping[str, str | Sequence[str] | None], **given: Any
) -> _StructType:
    """Return a struct made from texts, such as URL parameters; raise `InvalidInput` with every misfit."""
    found, problems = dict(given), []
    for each in _get_fields_cached(struct):
        stated = texts.get(each.encode_name)
        if stated is None or each.name in given:
            continue
        values = [stated] if isinstance(stated, str) else list(stated)
        try:
            found[each.name] = msgspec.convert(
                values if _get_item_type(each.type) else values[-1], each.type, strict=False
            )
        except msgspec.ValidationError:
            problems.append(Problem(_describe_text_mismatch(values, each), each.encode_name))
    if problems:
        raise InvalidInput.from_problems(problems)
    return struct(**found)


_get_fields_cached = cache(fields)


def _describe_text_mismatch(values: Sequence[str], field: FieldInfo) -> str:
    item = next(_iterate_base_types(_get_item_type(field.type) or field.type))
    known = get_args(item) if get_origin(item) is Literal else ()
    for each in values:
        if known and each not in known:
            expected = f"expected {', '.join(known[:-1])} or {known[-1]}"
            return f"unknown {field.encode_name} {quote_text(each)}{suggest_similar(each, known)}; {expected}"
    expected = _describe_expected(field.type).removesuffix(", or null")  # a URL cannot express null
    return f"expected {expected}, found {quote_text(values[-1]) if len(values) == 1 else f'{len(values)} values'}"


def describe_type_mismatch(value: Any, type_: Any) -> str | None:
    """Describe how a value violates a type, or return None."""
    if not isinstance(value, float) or math.isfinite(value):
        with suppress(msgspec.ValidationError, UnicodeEncodeError):  # the latter for lone surrogates
            msgspec.convert(value, type_)
            return None
    if isinstance(value, tuple | list) and (item := _get_item_type(type_)):
        for each in value:
            if message := describe_type_mismatch(each, item):
                return message
    found = "nothing" if isinstance(value, tuple | list) and not value else describe_value(value)
    return f"expected {_describe_expected(type_)}, found {found}"


def _get_item_type(type_: Any) -> Any:
    """Return the item type of a list type, or None for any other type."""
    inner = get_args(type_)
    if _is_annotated(type_) or get_origin(type_) in (Union, UnionType):
        return next((found for each in inner if (found := _get_item_type(each))), None)
    return inner[0] if get_origin(type_) in (tuple, list) else None


_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", tuple: "a list"}


def _describe_expected(type_: Any) -> str:
    """Describe the values that a type accepts.

    >>> _describe_expected(Annotated[Annotated[float, Meta(ge=0, le=1)] | None, Meta(title="Share")])
    'a number from 0 to 1, or null'
    """
    if _is_annotated(type_):
        inner, *metas = get_args(type_)
        bounds = "".join(_describe_bounds(each) for each in metas if isinstance(each, Meta))
        return _describe_expected(inner) + bounds + (" characters" if inner is str and " of at " in bounds else "")
    if get_origin(type_) is Literal:
        return " or ".join(map(str, get_args(type_)))
    if type(None) in get_args(type_):
        return " or ".join(_describe_expected(each) for each in get_args(type_) if each is not type(None)) + ", or null"
    if isinstance(type_, type) and issubclass(type_, Enum):
        return " or ".join(each.value for each in type_)
    return _TYPE_NAMES.get(get_origin(type_) or type_, str(type_))


def _describe_bounds(meta: Meta) -> str:
    if meta.examples:
        return f" such as {meta.examples[0]}"
    words = {
        "more than": meta.gt,
        "from": meta.ge,
        "to": meta.le,
        "of at least": meta.min_length,
        "of at most": meta.max_length,
    }
    given = {word: bound for word, bound in words.items() if bound is not None and abs(bound) < _MIN_UNSTATED_BOUND}
    return "".join(f" {word} {bound:,}" for word, bound in given.items())


_MIN_UNSTATED_BOUND = 2**62
"""A limit of the machine, which is no help to the user."""
