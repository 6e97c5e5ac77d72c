"""JSON Schema (2020-12) of the file formats, for editors and for programs that write the files."""

from typing import Any

from pydantic import TypeAdapter

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
        for need in assertion_types.load(name).needs
    ]
    return {"$schema": DIALECT, **schema}


def _given(field: str) -> dict[str, Any]:
    return {"required": [field], "properties": {field: {"not": {"type": "null"}}}}


def scenario_schema() -> dict[str, Any]:
    """Return the schema of a scenario document: many under `scenarios`, or a single one."""
    one = TypeAdapter(Scenario).json_schema()
    for spelling, field in CAMEL_CASE.items():
        one["properties"][spelling] = {**one["properties"][field], "description": f"The same as {field}"}
    one["required"] = [field for field in one["required"] if field not in CAMEL_CASE.values()]
    one["allOf"] = [
        {"oneOf": [{"required": [field]}, {"required": [spelling]}]}
        if field == "expected_outcome"
        else {"not": {"required": [field, spelling]}}
        for spelling, field in CAMEL_CASE.items()
    ]
    text = {"type": "string"}
    return {
        "$schema": DIALECT,
        "title": "VoiceBench scenarios",
        "if": {"type": "object", "required": ["scenarios"]},
        "then": {
            "properties": {
                "version": {**text, "description": "Any string"},
                "name": text,
                "description": text,
                "scenarios": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Scenario"}},
            },
            "additionalProperties": False,
        },
        "else": {"$ref": "#/$defs/Scenario"},
        "$defs": {"Scenario": one},
    }
