"""Deterministic assertions: a reply's text and its ideals go in, one check comes out. No model, network or clock.

`evaluate_assertion()` is the one entry. With a list of ideals, `exact_match`, `contains_any` and `regex` pass on *any*
of them, `contains` on *all*, and `contains_none` on *none*. Case-insensitive comparison uses `casefold()`. Each type
has a version, which is stored with every check: raise it when a change could alter an outcome. Types that need a model
return `unscored` here and name the scorer that decides them.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal, get_args
from urllib.parse import unquote

from msgspec import Struct, field

from pramana.errors import BrokenPlugin, InvalidInput, describe_value, quote_text, suggest_similar
from pramana.jsonl import BadJson, parse_rfc8259, to_canonical_json
from pramana.model import Assertion, Check, Outcome
from pramana.plugins import assertion_types

Need = Literal["ideal", "judge_prompt", "schema"]


class Verdict(Struct, frozen=True):
    """The decision of an assertion type whether one output passes."""

    outcome: Outcome
    reason: str
    evidence: Mapping[str, object] = field(default_factory=dict)


class AssertionType(Struct, frozen=True):
    """A registered assertion type: its name and version, the fields it requires of a case, and its function."""

    name: str
    version: str
    decide: Callable[[Assertion, str, tuple[str, ...]], Verdict]
    needs: tuple[Need, ...] = ()
    flaw: Callable[[Assertion, tuple[str, ...]], tuple[Need, str] | None] = lambda _assertion, _ideals: None
    """Returns at load why the assertion can never be decided (a broken pattern or schema), and the field at fault."""


Decide = Callable[[Assertion, str, tuple[str, ...]], bool | Verdict]
"""Decides whether an output meets an assertion, given the case's ideals."""


def make_assertion_type(
    name: str, *, version: str = "1", needs: Sequence[Need] = ()
) -> Callable[[Decide], AssertionType]:
    """Make an assertion type from a function, which must be synchronous and offline.

    >>> @make_assertion_type("is_shouting", version="2")
    ... def is_shouting(assertion, output, ideals):
    ...     return output.isupper()
    >>> print(is_shouting.decide(Assertion("is_shouting"), "hello", ()).reason)
    is_shouting returned False
    """
    texts: dict[str, Any] = {"name": name, "version": version}
    for argument, value in texts.items():
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(f"the {argument} of an assertion type is text, found {describe_value(value)}")
    if isinstance(needs, str) or not isinstance(needs, Sequence):
        raise InvalidInput(f"needs is a list of what the assertion requires, found {describe_value(needs)}")

    def decorate(function: Decide) -> AssertionType:
        if not callable(function):
            raise InvalidInput(f"an assertion type is made from a function, found {describe_value(function)}")

        def decide_with_function(assertion: Assertion, output: str, ideals: tuple[str, ...]) -> Verdict:
            found: Any = function(assertion, output, ideals)
            if isinstance(found, Verdict):
                return found
            if not isinstance(found, bool):
                raise TypeError(f"it returned {type(found).__name__}; expected a bool or a Verdict")
            return Verdict(Outcome.PASSED if found else Outcome.FAILED, f"{name} returned {found}")

        return AssertionType(name, version, decide_with_function, tuple(needs))

    return decorate


_validated_type_by_name: dict[str, AssertionType] = {}
"""Types already validated: every check looks one up."""


def evaluate_assertion(
    assertion: Assertion | Mapping[str, Any], output: str, ideal: str | Sequence[str] | None = None
) -> Check:
    """Check one output against one assertion.

    >>> check = evaluate_assertion({"type": "contains", "case_sensitive": False}, "It is PARIS.", "paris")
    >>> print(check.outcome, "-", check.reason)
    passed - found "PARIS" at character 7
    """
    stated = parse_assertion(assertion)
    kind = find_assertion_type(stated.type)
    if not isinstance(ideal, str | Sequence | None):
        raise InvalidInput("ideal must be text or a list of texts")
    ideals = (ideal,) if isinstance(ideal, str) else tuple(ideal or ())
    if not isinstance(output, str):
        raise InvalidInput(f"the output to check must be text, found {type(output).__name__}")
    if not all(isinstance(each, str) for each in ideals):
        raise InvalidInput("ideal must be text or a list of texts")
    for _, message in find_missing_fields(kind, stated, ideals):
        raise InvalidInput(message)
    if flaw := kind.flaw(stated, ideals):
        raise InvalidInput(flaw[1])
    return check_output(stated, output, ideals)


def check_output(assertion: Assertion, output: str, ideals: tuple[str, ...]) -> Check:
    """Check one output against an assertion that is known to be valid, as loaded cases' assertions are."""
    kind = find_assertion_type(assertion.type)
    try:
        verdict = kind.decide(assertion, output, ideals)
        return Check(kind.name, kind.version, verdict.outcome, verdict.reason, None, verdict.evidence)
    except Exception as error:  # noqa: BLE001 - a type of another package must not end a run
        reason = f"{kind.name} could not decide: {type(error).__name__}: {error}"
        return Check(kind.name, kind.version, Outcome.ERRORED, reason)


def find_assertion_type(name: str) -> AssertionType:
    """Return the assertion type with that name; raise `BrokenPlugin` if its registration is unusable."""
    kind = assertion_types.load(name)
    if _validated_type_by_name.get(name) is kind:
        return _validated_type_by_name[name]
    if not isinstance(kind, AssertionType):
        raise BrokenPlugin(f'the assertion type "{name}" is a {type(kind).__name__}, not an AssertionType')
    if kind.name != name:
        raise BrokenPlugin(f'the assertion type registered as "{name}" has the other name "{kind.name}"')
    if unknown := [need for need in kind.needs if need not in get_args(Need)]:
        raise BrokenPlugin(f'the assertion type "{name}" needs {unknown[0]}; a case has {", ".join(get_args(Need))}')
    _validated_type_by_name[name] = kind
    return kind


def parse_assertion(given: Assertion | Mapping[str, Any]) -> Assertion:
    """Return a validated assertion; raise `InvalidInput` for an unknown key or an invalid value."""
    stated = given if isinstance(given, Assertion) else _assertion_from_mapping(given)
    if not isinstance(stated.case_sensitive, bool):
        raise InvalidInput(f"case_sensitive must be true or false, found {stated.case_sensitive!r}")
    threshold = stated.threshold
    if threshold is not None and not (type(threshold) in (int, float) and 0 <= threshold <= 1):
        raise InvalidInput(f"threshold must be a number from 0 to 1, found {threshold!r}")
    if not isinstance(stated.judge_prompt, str | None):
        raise InvalidInput("judge_prompt must be text")
    return stated


def find_missing_fields(kind: AssertionType, assertion: Assertion, ideals: Sequence[str]) -> Iterator[tuple[Need, str]]:
    """Yield each required field that the assertion lacks, with a message."""
    if "ideal" in kind.needs and not (ideals and all(ideal.strip() for ideal in ideals)):
        yield "ideal", f"{kind.name} needs an ideal: a string, or a list of strings"
    if "judge_prompt" in kind.needs and not (assertion.judge_prompt or "").strip():
        yield "judge_prompt", f"{kind.name} needs a judge_prompt that can be answered YES or NO"
    if "schema" in kind.needs and assertion.schema is None:
        yield "schema", f"{kind.name} needs a schema: an object of JSON Schema, or true or false"


def _assertion_from_mapping(fields: Any) -> Assertion:
    if not isinstance(fields, Mapping):
        raise InvalidInput(f'an assertion is an object such as {{"type": "contains"}}, found {type(fields).__name__}')
    known = Assertion.__struct_fields__
    for key in fields:
        if key not in known:
            raise InvalidInput(f"unknown key {quote_text(str(key))} in the assertion{suggest_similar(str(key), known)}")
    if "type" not in fields:
        raise InvalidInput(f"the assertion has no type; expected one of {', '.join(assertion_types.names())}")
    if not isinstance(fields["type"], str):
        raise InvalidInput(f"the assertion's type must be text, found {type(fields['type']).__name__}")
    return Assertion(**fields)


def _make_pass_verdict(reason: str, **evidence: object) -> Verdict:
    return Verdict(Outcome.PASSED, reason, evidence)


def _make_fail_verdict(reason: str, **evidence: object) -> Verdict:
    return Verdict(Outcome.FAILED, reason, evidence)


def _quote_list(texts: Sequence[str], conjunction: str) -> str:
    shown = [quote_text(each) for each in texts[:5]]
    return f" {conjunction} ".join([*shown, f"{len(texts) - 5} more"] if len(texts) > 5 else shown)


# ── Text ──


class _SearchedText:
    """An output that is searched for several ideals: folded once, with matches located in the original text."""

    def __init__(self, text: str, *, case_sensitive: bool) -> None:
        self.text, self.fold = text, not case_sensitive
        self.folded = text.casefold() if self.fold else text
        self._ends: list[int] = []

    def find(self, ideal: str) -> dict[str, object] | None:
        wanted = ideal.casefold() if self.fold else ideal
        start = self.folded.find(wanted)
        if start < 0:
            return None
        end = start + len(wanted)
        if self.fold and len(self.folded) != len(self.text):  # ß folds to ss: map back to the original characters
            if not self._ends:
                self._ends = list(accumulate(len(character.casefold()) for character in self.text))
            start, end = bisect_right(self._ends, start), bisect_right(self._ends, end - 1) + 1
        return {"ideal": ideal, "text": self.text[start:end], "start": start, "end": end}


def _describe_position(match: Mapping[str, object]) -> str:
    return f"{quote_text(str(match['text']))} at character {int(str(match['start'])) + 1}"


def _describe_positions(matches: Sequence[Mapping[str, object]]) -> str:
    more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
    return ", ".join(_describe_position(match) for match in matches[:5]) + more


def _decide_exact_match(assertion: Assertion, output: str, ideals: tuple[str, ...]) -> Verdict:
    def form(text: str) -> str:
        return text.strip() if assertion.case_sensitive else text.strip().casefold()

    given = form(output)
    for ideal in ideals:
        if given == form(ideal):
            start = len(output) - len(output.lstrip())
            match = {
                "ideal": ideal,
                "text": output.strip(),
                "start": start,
                "end": start + len(output.strip()),
            }
            return _make_pass_verdict(f"equals {quote_text(ideal.strip())}", matched=[match])
    return _make_fail_verdict(f"expected exactly {_quote_list(ideals, 'or')}, got {quote_text(output.strip())}")


def _decide_contains(assertion: Assertion, output: str, ideals: tuple[str, ...]) -> Verdict:
    text = _SearchedText(output, case_sensitive=assertion.case_sensitive)
    matches = {ideal: text.find(ideal) for ideal in ideals}
    found = [match for match in matches.values() if match]
    missing = [ideal for ideal, match in matches.items() if not match]
    if missing:
        return _make_fail_verdict(f"does not contain {_quote_list(missing, 'nor')}", matched=found, missing=missing)
    return _make_pass_verdict("found " + _describe_positions(found), matched=found)


def _decide_contains_any(assertion: Assertion, output: str, ideals: tuple[str, ...]) -> Verdict:
    text = _SearchedText(output, case_sensitive=assertion.case_sensitive)
    for ideal in ideals:
        if match := text.find(ideal):
            return _make_pass_verdict(f"found {_describe_position(match)}", matched=[match])
    return _make_fail_verdict(f"contains none of {_quote_list(ideals, 'or')}", missing=list(ideals))


def _decide_contains_none(assertion: Assertion, output: str, ideals: tuple[str, ...]) -> Verdict:
    text = _SearchedText(output, case_sensitive=assertion.case_sensitive)
    found = [match for ideal in ideals if (match := text.find(ideal))]
    if found:
        return _make_fail_verdict("contains " + _describe_positions(found), matched=found)
    return _make_pass_verdict(f"contains none of {_quote_list(ideals, 'or')}")


# ── Patterns ──

MAX_PATTERN_LENGTH = 1_000
MAX_REGEX_PROGRAM_BYTES = 1 << 20
"""RE2's time is proportional to pattern × text: both are bounded, so that no suite can hang a run."""


@lru_cache(maxsize=512)
def _compile_pattern(pattern: str, *, case_sensitive: bool) -> Any:
    import re2

    options = re2.Options()
    options.case_sensitive = case_sensitive
    options.log_errors = False
    options.max_mem = MAX_REGEX_PROGRAM_BYTES
    return re2.compile(pattern, options)


def _find_pattern_flaw(_assertion: Assertion, ideals: tuple[str, ...]) -> tuple[Need, str] | None:
    import re2

    for pattern in ideals:
        if len(pattern) > MAX_PATTERN_LENGTH:
            return (
                "ideal",
                f"a pattern of {len(pattern):,} characters; a pattern may have at most {MAX_PATTERN_LENGTH:,}",
            )
        try:
            _compile_pattern(pattern, case_sensitive=True)
        except UnicodeEncodeError:
            return "ideal", f"{quote_text(pattern)} contains half of a surrogate pair, which is not valid text"
        except re2.error as error:
            why = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error.args[0])
            return (
                "ideal",
                f"{quote_text(pattern)} is not a valid RE2 pattern (RE2 has no look-around or back-references): {why}",
            )
    return None


_SURROGATE_RE = re.compile("[\ud800-\udfff]")


def _decide_regex(assertion: Assertion, output: str, ideals: tuple[str, ...]) -> Verdict:
    text = _SURROGATE_RE.sub("\ufffd", output)  # RE2 reads UTF-8, which has no lone surrogates; models emit them
    for pattern in ideals:
        if found := _compile_pattern(pattern, case_sensitive=assertion.case_sensitive).search(text):
            start, end = found.span()
            match = {"ideal": pattern, "text": output[start:end], "start": start, "end": end}
            return _make_pass_verdict(f"{quote_text(pattern)} matches {_describe_position(match)}", matched=[match])
    return _make_fail_verdict(f"nothing matches {_quote_list(ideals, 'or')}", missing=list(ideals))


# ── JSON ──

_FENCE_TAG_RE = re.compile(r"[ \t]*[A-Za-z][\w+.-]*(?=\s)")
_JSON_FIRST_CHARACTERS = '{["-0123456789tfn'


def _extract_json_text(output: str) -> tuple[str, str]:
    """Return the JSON to parse, and its name for a reason."""
    stripped = output.strip()
    mark = stripped[: len(stripped) - len(stripped.lstrip(stripped[:1]))] if stripped[:1] in ("`", "~") else ""
    body = stripped[len(mark) :]
    inside = body.rstrip(mark[:1])
    if len(mark) < 3 or len(body) - len(inside) < len(mark):
        return stripped, "in the output"
    if tag := _FENCE_TAG_RE.match(inside):
        inside = inside[tag.end() :]
        info, newline, rest = inside.partition("\n")
        if newline and info.strip() and info.strip()[0] not in _JSON_FIRST_CHARACTERS:  # more words follow the tag
            inside = rest
    if any(line.lstrip().startswith(mark) for line in inside.split("\n")):
        return stripped, "in the output"
    return inside.strip(), "inside the Markdown fence"


def _parse_json_output(output: str, *, refuse_infinite: bool) -> tuple[Any, Verdict]:
    """Return the value and a passing verdict, or None and a verdict with the reason."""
    text, where = _extract_json_text(output)
    try:
        value = parse_rfc8259(text, refuse_infinite=refuse_infinite)
    except BadJson as bad:
        if bad.exceeds_our_limits:
            return None, Verdict(Outcome.ERRORED, f"this JSON cannot be checked: {bad.message}")
        if not text:
            return None, _make_fail_verdict("empty: no JSON")
        line, column = text.count("\n", 0, bad.column - 1) + 1, bad.column - (text.rfind("\n", 0, bad.column - 1) + 1)
        why = f"{bad.message.removeprefix('not valid JSON: ')} (line {line}, column {column} {where})"
        fence = next((mark for mark in ("```", "~~~") if mark in text), "")
        if fence and where == "in the output":
            closed = text.count(fence) > 1
            why = "text outside the Markdown fence" if closed else "the Markdown fence is never closed"
        return None, _make_fail_verdict(f"not JSON: {why}", line=line, column=column)
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return value, _make_pass_verdict(f"valid JSON {where}: {kinds.get(type(value), 'a number')}", where=where)


def _decide_is_json(_assertion: Assertion, output: str, _ideals: tuple[str, ...]) -> Verdict:
    return _parse_json_output(output, refuse_infinite=False)[1]


@lru_cache(maxsize=64)
def _make_validator(schema: bytes) -> Any:
    """Return a validator for a schema in canonical JSON."""
    from jsonschema_rs import Draft202012Validator, RegexOptions

    def refuse(address: str) -> Any:
        raise ValueError(f"{address} is in another document, and schemas are never fetched")

    return Draft202012Validator(json.loads(schema), pattern_options=RegexOptions(), retriever=refuse)


MAX_SCHEMA_LENGTH = 100_000
MAX_SUBSCHEMAS = 10_000
MAX_VALIDATED_LENGTH = 1_000_000
"""Maximum characters of a schema, subschemas after expanding `$ref`, and characters of an output to validate."""


def _count_expanded_subschemas(schema: Any) -> int:
    """Count the subschemas with each reference expanded once; a cycle counts as one."""
    sizes: dict[str, int] = {}
    open_references: set[str] = set()

    def size(part: Any) -> int:
        if isinstance(part, list):
            return sum(map(size, part))
        if not isinstance(part, dict):
            return 0
        total = 1 + sum(map(size, part.values()))
        reference = part.get("$ref", part.get("$dynamicRef"))
        if isinstance(reference, str) and reference.startswith("#") and reference not in open_references:
            if reference not in sizes:
                open_references.add(reference)
                sizes[reference] = size(_resolve_reference(schema, reference))
                open_references.discard(reference)
            total += sizes[reference]
        return total

    return size(schema)


def _resolve_reference(schema: Any, reference: str) -> Any:
    part = schema
    for name in reference.removeprefix("#").split("/")[1:]:
        part = part.get(unquote(name).replace("~1", "/").replace("~0", "~")) if isinstance(part, dict) else None
    return part if reference not in ("#", "#/") else None


def _find_schema_flaw(assertion: Assertion, _ideals: tuple[str, ...]) -> tuple[Need, str] | None:
    try:
        if len(to_canonical_json(assertion.schema)) > MAX_SCHEMA_LENGTH:
            return "schema", f"a schema of more than {MAX_SCHEMA_LENGTH:,} characters"
        if _count_expanded_subschemas(assertion.schema) > MAX_SUBSCHEMAS:
            return "schema", f"with its references expanded, it has more than {MAX_SUBSCHEMAS:,} subschemas"
    except (TypeError, RecursionError):
        return "schema", "not a JSON Schema (2020-12) that can be used: not plain JSON, or nested too deeply"
    try:
        _make_validator(to_canonical_json(assertion.schema))
    except ValueError as error:  # the library's ValidationError is one; deep nesting raises a plain ValueError
        return (
            "schema",
            f"not a JSON Schema (2020-12) that can be used: {str(error).partition(chr(10))[0][:200]}",
        )
    return None


def _decide_json_schema(assertion: Assertion, output: str, _ideals: tuple[str, ...]) -> Verdict:
    value, verdict = _parse_json_output(output, refuse_infinite=True)
    if verdict.outcome is not Outcome.PASSED:
        return verdict
    if len(output) > MAX_VALIDATED_LENGTH:
        return Verdict(
            Outcome.ERRORED,
            f"an output of more than {MAX_VALIDATED_LENGTH:,} characters is not checked against a schema",
        )
    validator = _make_validator(to_canonical_json(assertion.schema))
    try:
        if validator.is_valid(value):
            return _make_pass_verdict("valid JSON that matches the schema")
        validator.validate(value)  # raises the first error; listing all of them could exhaust memory
    except ValueError as error:
        path, message = (
            _format_json_path(getattr(error, "instance_path", ())),
            getattr(error, "message", str(error))[:200],
        )
        return _make_fail_verdict(
            f"does not match the schema: {path}: {message}", errors=[{"path": path, "message": message}]
        )
    return Verdict(Outcome.ERRORED, "the schema contradicts itself")


def _format_json_path(parts: Sequence[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


# ── Types that need a model ──


def _make_unscored_decision(scorer: str, needed_model: str) -> Callable[[Assertion, str, tuple[str, ...]], Verdict]:
    reason = f"needs {needed_model}: only the {scorer} scorer can decide this, not an offline check"
    return lambda _assertion, _output, _ideals: Verdict(Outcome.UNSCORED, reason, {"scorer": scorer})


exact_match = AssertionType("exact_match", "1", _decide_exact_match, ("ideal",))
contains = AssertionType("contains", "1", _decide_contains, ("ideal",))
contains_any = AssertionType("contains_any", "1", _decide_contains_any, ("ideal",))
contains_none = AssertionType("contains_none", "1", _decide_contains_none, ("ideal",))
regex = AssertionType("regex", "1", _decide_regex, ("ideal",), _find_pattern_flaw)
is_json = AssertionType("is_json", "1", _decide_is_json)
json_schema = AssertionType("json_schema", "1", _decide_json_schema, ("schema",), _find_schema_flaw)
llm_judge = AssertionType("llm_judge", "1", _make_unscored_decision("llm_judge", "a judge model"), ("judge_prompt",))
semantic_similarity = AssertionType(
    "semantic_similarity", "1", _make_unscored_decision("semantic_similarity", "an embedding model"), ("ideal",)
)
