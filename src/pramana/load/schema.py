"""JSON Schema (2020-12) of the file formats, for editors and for programs that write the files."""

from typing import Any

from pydantic import TypeAdapter

from pramana.assertions import assertion_type
from pramana.errors import BrokenPlugin
from pramana.load.scenario import CAMEL_CASE, Scenario
from pramana.load.suite import TestCase
from pramana.plugins import assertion_types

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
            "then": _given("ideal") if need == "ideal" else {"properties": {"assertion": _given(need)}},
        }
        for name in assertion_types.names()
        for need in _needs(name)
    ]
    return {"$schema": DIALECT, **schema}


def _needs(name: str) -> tuple[str, ...]:
    try:
        return assertion_type(name).needs
    except BrokenPlugin:  # another package's trouble; `pramana validate` names it where it is used
        return ()


def _given(field: str) -> dict[str, Any]:
    return {"required": [field], "properties": {field: {"not": {"type": "null"}}}}


_SCALARS = ["string", "number", "boolean"]
"""What an editor takes a plain value for, and the loader for the text that was typed."""


def scenario_schema() -> dict[str, Any]:
    """Return the schema of a scenario document: many under `scenarios`, or a single one."""
    one = TypeAdapter(Scenario).json_schema()
    fields = one["properties"]
    for name in ("name", "prompt", "expected_outcome"):
        fields[name] |= {"type": _SCALARS, "pattern": r"\S"}
    fields["id"]["type"] = ["string", "integer"]
    fields["language"]["type"] = [*_SCALARS, "null"]
    fields["difficulty"]["enum"] = [*fields["difficulty"]["enum"], None]
    del fields["difficulty"]["type"]
    fields["tags"] |= {"type": ["array", "null"], "items": {"type": _SCALARS, "pattern": r"\S"}}
    fields["prompt_audio_url"] = {
        "type": ["string", "null"],
        "pattern": r"^(https?://[^/\s]|(?![A-Za-z][A-Za-z0-9+.-]+:)[^\s])",
        "description": fields["prompt_audio_url"]["description"],
    }
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
        # Any of these says that many are meant, so that an editor offers `scenarios` before it is there.
        "if": {"anyOf": [{"required": [name]} for name in ("scenarios", "version", "description")]},
        "then": {"properties": many, "required": ["scenarios"], "additionalProperties": False},
        "else": {"$ref": "#/$defs/Scenario"},
        "$defs": {"Scenario": one},
    }
