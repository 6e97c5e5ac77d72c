"""JSON Schema (2020-12) of the file formats, for editors and for programs that write the files."""

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import TypeAdapter

from pramana.assertions import assertion_type
from pramana.errors import BrokenPlugin
from pramana.load.conversation import ASSERTION_KEYS, LIMITS, NESTED
from pramana.load.scenario import CAMEL_CASE, Scenario
from pramana.load.suite import MAX_ITEMS, TestCase
from pramana.plugins import assertion_types
from pramana.providers.voice.description import Description

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def suite_schema() -> dict[str, Any]:
    """Return the schema of one line of a suite."""
    schema = TypeAdapter(TestCase).json_schema()
    schema["$defs"]["StatedAssertion"]["properties"]["type"] = {
        "enum": assertion_types.names(),
        "title": "Type",
    }
    schema["allOf"] = [
        {
            "if": {"properties": {"assertion": {"properties": {"type": {"const": name}}}}},
            "then": _input_schema("ideal") if need == "ideal" else {"properties": {"assertion": _input_schema(need)}},
        }
        for name in assertion_types.names()
        for need in _required_fields(name)
    ]
    return {"$schema": DIALECT, **schema}


def _required_fields(name: str) -> tuple[str, ...]:
    try:
        return assertion_type(name).needs
    except BrokenPlugin:  # a fault of another package; `pramana validate` reports it where it is used
        return ()


def _input_schema(field: str) -> dict[str, Any]:
    return {"required": [field], "properties": {field: {"not": {"type": "null"}}}}


def agent_schema() -> dict[str, Any]:
    """Return the schema of a voice agent's description."""
    (top,), parts = msgspec.json.schema_components((Description,), ref_template="#/$defs/{name}")
    for part in parts.values():
        part["properties"] = {name: _accepted_spellings(stated) for name, stated in part["properties"].items()}
    return {"$schema": DIALECT, **top, "$defs": parts}


def _accepted_spellings(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of what may be written: a single item needs no list, and a plain number is read as text."""
    if schema.get("type") == "array":
        return {"anyOf": [schema, schema.get("items", {})]}
    return schema | {"type": _SCALARS} if schema.get("type") == "string" and "enum" not in schema else schema


_SCALARS = ["string", "number", "boolean"]
"""The types an editor sees in a plain value, which the loader reads as text."""
_TEXT: dict[str, Any] = {"type": _SCALARS, "pattern": r"\S"}
_WORDS = r"[^\s!-/:-@\[-\u0060{-~]"
"""A character that is neither blank nor ASCII punctuation; the loader knows all punctuation."""
_RECORDING = r"^(https?://[^/\s]|(?![A-Za-z][A-Za-z0-9+.-]+:)[^\s])"


def scenario_schema() -> dict[str, Any]:
    """Return the schema of a scenario document: many under `scenarios`, or a single one."""
    one = TypeAdapter(Scenario).json_schema()
    fields, parts = one["properties"], one.pop("$defs")
    for name in ("name", "prompt", "expected_outcome"):
        fields[name] |= _TEXT
    fields["id"]["type"] = ["string", "integer"]
    fields["language"]["type"] = [*_SCALARS, "null"]
    fields["difficulty"]["enum"] = [*fields["difficulty"]["enum"], None]
    del fields["difficulty"]["type"]
    fields["tags"] |= {"type": ["array", "null"], "items": _TEXT}
    _replace_schema(fields, "prompt_audio_url", {"type": ["string", "null"], "pattern": _RECORDING})
    _replace_schema(fields, "conditions", {"type": ["string", "null"], "pattern": r"\S"})
    _replace_schema(fields, "turns", _list_of("ScriptedTurn", "turns"))
    _describe_answer(fields)
    _describe_turn(parts["ScriptedTurn"])
    _describe_assertion(parts["Asserted"])
    for spelling, field in CAMEL_CASE.items():
        fields[spelling] = {**fields[field], "description": f"The same as {field}"}
    one["required"] = [field for field in one["required"] if field not in CAMEL_CASE.values()]
    one["allOf"] = [
        {"oneOf": [{"required": [field]}, {"required": [spelling]}]}
        if field == "expected_outcome"
        else {"not": {"required": [field, spelling]}}
        for spelling, field in CAMEL_CASE.items()
    ]
    text = {"type": [*_SCALARS, "null"]}
    many = {
        "version": {**text, "description": "Any text"},
        "name": {**text, "description": "Of the whole file"},
        "description": {**text, "description": "Of the whole file"},
        "scenarios": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Scenario"}},
    }
    return {
        "$schema": DIALECT,
        "title": "VoiceBench scenarios",
        "type": "object",
        # Any of these keys implies many scenarios, so that an editor suggests `scenarios` before it is written.
        "if": {"anyOf": [{"required": [name]} for name in ("scenarios", "version", "description")]},
        "then": {"properties": many, "required": ["scenarios"], "additionalProperties": False},
        "else": {"$ref": "#/$defs/Scenario"},
        "$defs": {"Scenario": one, **parts},
    }


def _replace_schema(fields: dict[str, Any], name: str, schema: dict[str, Any]) -> None:
    fields[name] = {**schema, "description": fields[name]["description"]}


def _list_of(part: str, field: str) -> dict[str, Any]:
    items = {"$ref": f"#/$defs/{part}"}
    return {"type": ["array", "null"], "minItems": 1, "maxItems": LIMITS[field], "items": items}


def _describe_answer(fields: dict[str, Any]) -> None:
    """Describe the assertions on an answer, to the prompt or to a turn."""
    _replace_schema(fields, "assert", {"anyOf": [{"$ref": "#/$defs/Asserted"}, _list_of("Asserted", "assert")]})
    _replace_schema(fields, "reference", {"type": [*_SCALARS, "null"], "pattern": _WORDS})


def _describe_turn(turn: dict[str, Any]) -> None:
    fields = turn["properties"]
    fields["say"] |= _TEXT
    _replace_schema(fields, "audio_url", {"type": ["string", "null"], "pattern": _RECORDING})
    _describe_answer(fields)
    turn["allOf"] = _spellings(fields, NESTED["turns"])


def _describe_assertion(assertion: dict[str, Any]) -> None:
    fields = assertion["properties"]
    fields["type"] = {"enum": assertion_types.names(), "title": "Type"}
    fields["case_sensitive"]["type"] = ["boolean", "null"]
    _replace_schema(fields, "judge_prompt", {"type": [*_SCALARS, "null"]})
    several = {"type": "array", "minItems": 1, "maxItems": MAX_ITEMS, "items": _TEXT}
    _replace_schema(fields, "ideal", {"anyOf": [_TEXT, several, {"type": "null"}]})
    assertion["allOf"] = _spellings(fields, ASSERTION_KEYS) + [
        {
            "if": {"properties": {"type": {"const": name}}},
            "then": {"anyOf": [_input_schema(spelling) for spelling, field in ASSERTION_KEYS.items() if field == need]},
        }
        for name in assertion_types.names()
        for need in _required_fields(name)
    ]


def _spellings(fields: dict[str, Any], keys: Mapping[str, str]) -> list[dict[str, Any]]:
    """Add the other spellings of keys; return the rule that each key is used in only one spelling."""
    others = {spelling: field for spelling, field in keys.items() if spelling != field}
    for spelling, field in others.items():
        fields[spelling] = {**fields[field], "description": f"The same as {field}"}
    return [{"not": {"required": [field, spelling]}} for spelling, field in others.items()]
