"""JSON Schema (2020-12) of the file formats, for editors and for programs that write the files."""

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import TypeAdapter

from pramana.assertions import find_assertion_type
from pramana.errors import BrokenPlugin
from pramana.load.conversation import ASSERTION_KEYS, KEYS_BY_NESTED_FIELD, MAX_ITEMS_BY_FIELD
from pramana.load.scenario import FIELD_BY_CAMEL_CASE_KEY, Scenario
from pramana.load.suite import MAX_LIST_ITEMS, TestCase
from pramana.plugins import assertion_types
from pramana.providers.voice.description import Description

JSON_SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def make_suite_schema() -> dict[str, Any]:
    """Return the schema of one line of a suite."""
    schema = TypeAdapter(TestCase).json_schema()
    schema["$defs"]["StatedAssertion"]["properties"]["type"] = {
        "enum": assertion_types.names(),
        "title": "Type",
    }
    schema["allOf"] = [
        {
            "if": {"properties": {"assertion": {"properties": {"type": {"const": name}}}}},
            "then": _make_required_field_schema("ideal")
            if need == "ideal"
            else {"properties": {"assertion": _make_required_field_schema(need)}},
        }
        for name in assertion_types.names()
        for need in _find_required_fields(name)
    ]
    return {"$schema": JSON_SCHEMA_DIALECT, **schema}


def _find_required_fields(assertion_type_name: str) -> tuple[str, ...]:
    try:
        return find_assertion_type(assertion_type_name).needs
    except BrokenPlugin:  # a fault of another package; `pramana validate` reports it where it is used
        return ()


def _make_required_field_schema(field: str) -> dict[str, Any]:
    return {"required": [field], "properties": {field: {"not": {"type": "null"}}}}


def make_agent_schema() -> dict[str, Any]:
    """Return the schema of a voice agent's description."""
    (top,), parts = msgspec.json.schema_components((Description,), ref_template="#/$defs/{name}")
    for part in parts.values():
        part["properties"] = {name: _widen_to_accepted_types(stated) for name, stated in part["properties"].items()}
    return {"$schema": JSON_SCHEMA_DIALECT, **top, "$defs": parts}


def _widen_to_accepted_types(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of what may be written: a single item needs no list, and a plain number is read as text."""
    if schema.get("type") == "array":
        return {"anyOf": [schema, schema.get("items", {})]}
    return schema | {"type": _SCALAR_TYPES} if schema.get("type") == "string" and "enum" not in schema else schema


_SCALAR_TYPES = ["string", "number", "boolean"]
"""The types an editor sees in a plain value, which the loader reads as text."""
_TEXT_SCHEMA: dict[str, Any] = {"type": _SCALAR_TYPES, "pattern": r"\S"}
_WORD_CHARACTER_PATTERN = r"[^\s!-/:-@\[-\u0060{-~]"
"""A character that is neither blank nor ASCII punctuation; the loader knows all punctuation."""
_RECORDING_PATTERN = r"^(https?://[^/\s]|(?![A-Za-z][A-Za-z0-9+.-]+:)[^\s])"


def make_scenario_schema() -> dict[str, Any]:
    """Return the schema of a scenario document: many under `scenarios`, or a single one."""
    one = TypeAdapter(Scenario).json_schema()
    fields, parts = one["properties"], one.pop("$defs")
    for name in ("name", "prompt", "expected_outcome"):
        fields[name] |= _TEXT_SCHEMA
    fields["id"]["type"] = ["string", "integer"]
    fields["language"]["type"] = [*_SCALAR_TYPES, "null"]
    fields["difficulty"]["enum"] = [*fields["difficulty"]["enum"], None]
    del fields["difficulty"]["type"]
    fields["tags"] |= {"type": ["array", "null"], "items": _TEXT_SCHEMA}
    _replace_schema(fields, "prompt_audio_url", {"type": ["string", "null"], "pattern": _RECORDING_PATTERN})
    _replace_schema(fields, "conditions", {"type": ["string", "null"], "pattern": r"\S"})
    _replace_schema(fields, "turns", _make_list_schema("ScriptedTurn", "turns"))
    _replace_answer_check_schemas(fields)
    _replace_turn_schemas(parts["ScriptedTurn"])
    _replace_assertion_schemas(parts["Asserted"])
    for spelling, field in FIELD_BY_CAMEL_CASE_KEY.items():
        fields[spelling] = {**fields[field], "description": f"The same as {field}"}
    one["required"] = [field for field in one["required"] if field not in FIELD_BY_CAMEL_CASE_KEY.values()]
    one["allOf"] = [
        {"oneOf": [{"required": [field]}, {"required": [spelling]}]}
        if field == "expected_outcome"
        else {"not": {"required": [field, spelling]}}
        for spelling, field in FIELD_BY_CAMEL_CASE_KEY.items()
    ]
    text = {"type": [*_SCALAR_TYPES, "null"]}
    many = {
        "version": {**text, "description": "Any text"},
        "name": {**text, "description": "Of the whole file"},
        "description": {**text, "description": "Of the whole file"},
        "scenarios": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Scenario"}},
    }
    return {
        "$schema": JSON_SCHEMA_DIALECT,
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


def _make_list_schema(definition_name: str, field: str) -> dict[str, Any]:
    items = {"$ref": f"#/$defs/{definition_name}"}
    return {"type": ["array", "null"], "minItems": 1, "maxItems": MAX_ITEMS_BY_FIELD[field], "items": items}


def _replace_answer_check_schemas(fields: dict[str, Any]) -> None:
    """Describe the assertions on an answer, to the prompt or to a turn."""
    _replace_schema(
        fields, "assert", {"anyOf": [{"$ref": "#/$defs/Asserted"}, _make_list_schema("Asserted", "assert")]}
    )
    _replace_schema(fields, "reference", {"type": [*_SCALAR_TYPES, "null"], "pattern": _WORD_CHARACTER_PATTERN})


def _replace_turn_schemas(turn: dict[str, Any]) -> None:
    fields = turn["properties"]
    fields["say"] |= _TEXT_SCHEMA
    _replace_schema(fields, "audio_url", {"type": ["string", "null"], "pattern": _RECORDING_PATTERN})
    _replace_answer_check_schemas(fields)
    turn["allOf"] = _add_key_spellings(fields, KEYS_BY_NESTED_FIELD["turns"])


def _replace_assertion_schemas(assertion: dict[str, Any]) -> None:
    fields = assertion["properties"]
    fields["type"] = {"enum": assertion_types.names(), "title": "Type"}
    fields["case_sensitive"]["type"] = ["boolean", "null"]
    _replace_schema(fields, "judge_prompt", {"type": [*_SCALAR_TYPES, "null"]})
    several = {"type": "array", "minItems": 1, "maxItems": MAX_LIST_ITEMS, "items": _TEXT_SCHEMA}
    _replace_schema(fields, "ideal", {"anyOf": [_TEXT_SCHEMA, several, {"type": "null"}]})
    assertion["allOf"] = _add_key_spellings(fields, ASSERTION_KEYS) + [
        {
            "if": {"properties": {"type": {"const": name}}},
            "then": {
                "anyOf": [
                    _make_required_field_schema(spelling) for spelling, field in ASSERTION_KEYS.items() if field == need
                ]
            },
        }
        for name in assertion_types.names()
        for need in _find_required_fields(name)
    ]


def _add_key_spellings(fields: dict[str, Any], field_by_spelling: Mapping[str, str]) -> list[dict[str, Any]]:
    """Add the other spellings of keys; return the rule that each key is used in only one spelling."""
    others = {spelling: field for spelling, field in field_by_spelling.items() if spelling != field}
    for spelling, field in others.items():
        fields[spelling] = {**fields[field], "description": f"The same as {field}"}
    return [{"not": {"required": [field, spelling]}} for spelling, field in others.items()]
