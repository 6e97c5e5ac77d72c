"""Scenarios as the API writes them, from and to scenarios as files have them: camelCase, every field, plain values.

This is what a store keeps and a request answers with. Inside `assert` the names are those of suite files in both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pramana.errors import InvalidInput, Problem
from pramana.load.conversation import CAMEL_CASE as TURN_CAMEL_CASE
from pramana.load.conversation import Asserted, ScriptedTurn
from pramana.load.scenario import CAMEL_CASE, Scenario, dumped

_CAMEL = {field: spelling for spelling, field in CAMEL_CASE.items()}


def to_api(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as the API writes it: every field, in camelCase; inside `assert` the names of suite files.

    >>> to_api(Scenario(id="a", name="A", type="task-completion", prompt="p", expected_outcome="o"))["expectedOutcome"]
    'o'
    """
    return {
        "id": scenario.id,
        "name": scenario.name,
        "type": scenario.type,
        "prompt": scenario.prompt,
        "expectedOutcome": scenario.expected_outcome,
        "promptAudioUrl": scenario.prompt_audio_url,
        "tags": scenario.tags,
        "language": scenario.language,
        "difficulty": scenario.difficulty,
        "assert": _stated(scenario.assert_),
        "reference": scenario.reference,
        "turns": None if scenario.turns is None else [_turn(each) for each in scenario.turns],
        "conditions": scenario.conditions,
    }


def _turn(turn: ScriptedTurn) -> dict[str, Any]:
    return {
        "say": turn.say,
        "audioUrl": turn.audio_url,
        "bargeIn": turn.barge_in,
        "assert": _stated(turn.assert_),
        "reference": turn.reference,
    }


def _stated(assertions: Sequence[Asserted] | None) -> list[dict[str, Any]] | None:
    return None if assertions is None else [each.model_dump(mode="json") for each in assertions]


def api_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that were sent under the names the API writes, so that they can replace what it holds."""
    named = {_CAMEL.get(name, name): value for name, value in values.items()}
    if len(named) < len(values):
        twice = next(name for name in _CAMEL if name in values and _CAMEL[name] in values)
        message = f"{twice} and {_CAMEL[twice]} are two spellings of one key"
        raise InvalidInput.of([Problem(message, _CAMEL[twice])])
    return named


def write_api_scenarios(chunks: Iterable[Sequence[Mapping[str, Any]]], *, version: str = "1.0") -> Iterator[str]:
    """Yield, by the chunk, YAML text that reads back to scenarios as the API has them.

    >>> print("".join(write_api_scenarios([[{"id": "a", "expectedOutcome": "o", "tags": []}]])))
    version: '1.0'
    scenarios:
    - id: a
      expected_outcome: o
      tags: []
    <BLANKLINE>
    """
    yield dumped({"version": version}) + "scenarios:"
    some = False
    for chunk in chunks:
        entries = [_entry(each, CAMEL_CASE) for each in chunk]
        if entries:
            yield ("" if some else "\n") + dumped(entries)
            some = True
    if not some:
        yield " []\n"


def _entry(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a scenario or a turn as files have it: what is null is not written."""
    entry = {names.get(name, name): value for name, value in values.items() if value is not None}
    if "turns" in entry:
        entry["turns"] = [_entry(each, TURN_CAMEL_CASE) for each in entry["turns"]]
    return entry
