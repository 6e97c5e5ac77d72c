"""How a case is asked and what must hold of the answer, as people read it: a scenario, or a test case of a suite."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pramana.model import Scenario, ScenarioTurn, StatedAssertion
from pramana.report.markup import Child, Safe, facts, foreign, join, tag, text

LONGEST = 20_000
_RULES = {
    "exact_match": "is exactly",
    "contains": "contains",
    "contains_any": "contains one of",
    "contains_none": "contains none of",
    "is_json": "is JSON",
    "json_schema": "is JSON that fits a schema",
    "llm_judge": "satisfies an LLM judge",
    "semantic_similarity": "means about the same as",
    "regex": "matches the pattern",
}
"""What a type of assertion says of an answer; others are called by their names."""


def of_scenario(found: Scenario) -> Safe:
    """Return a scenario as it will be asked."""
    known: list[tuple[str, Child]] = [
        ("Type", found.type),
        ("Difficulty", found.difficulty),
        ("Language", foreign(found.language)),
    ]
    if found.conditions:
        known.append(("Sounds", foreign(found.conditions)))
    first = ScenarioTurn(found.prompt, found.prompt_audio_url, None, found.assert_, found.reference)
    lines = [first, *(found.turns or ())]
    return join(
        [
            tag("p", foreign(found.name), class_="card-title"),
            facts(known),
            tag("p", tags(found.tags)) if found.tags else None,
            tag("ol", (tag("li", _line(each)) for each in lines), class_="script"),
            tag("h3", "A good agent"),
            _said(found.expected_outcome),
        ]
    )


def of_case(case: Mapping[str, Any]) -> Safe:
    """Return a test case: what is said to the model, what is expected, and by what the answer is judged."""
    asked = case["input"]
    turns = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    assertion = msgspec.convert({**case["assertion"], "ideal": case.get("ideal")}, StatedAssertion)
    said = (join([tag("dt", turn["role"]), tag("dd", _said(turn["content"]))]) for turn in turns)
    tagged = case["metadata"].get("tags") or ()
    return join(
        [
            tag("dl", said, class_="said"),
            tag("p", "Passes when the answer ", *_rule(assertion)),
            tag("p", "Tags: ", tags(tagged), class_="quiet") if tagged else None,
        ]
    )


def tags(found: Sequence[str], links: Mapping[str, str] | None = None) -> Safe:
    """Return tags side by side, each as a link where it leads somewhere."""
    return tag("span", join((_tag(each, (links or {}).get(each)) for each in found), " "), class_="tags")


def beginning(said: str, length: int = 160) -> Safe:
    """Return how a text begins, in the direction it runs."""
    cut = " ".join(said[: 2 * length].split())
    return tag("div", text(cut if len(cut) <= length else cut[:length].rstrip() + "…"), dir="auto", class_="clip")


def _tag(name: str, to: str | None) -> Safe:
    return tag("a", foreign(name, 80), href=to, class_="tag") if to else tag("span", foreign(name, 80), class_="tag")


def _said(words: str) -> Safe:
    return tag("div", text(words, LONGEST), dir="auto", class_="speech")


def _line(line: ScenarioTurn) -> Safe:
    """Return what the caller says, and what must hold of the answer."""
    barged, recorded = line.barge_in, line.audio_url
    when = "The caller says" if barged is None else f"The caller breaks in, {barged:g} s into the answer"
    must = [tag("li", "Passes when the answer ", *_rule(each)) for each in line.assert_ or ()]
    if line.reference:
        must.append(tag("li", "The agent must say: ", foreign(line.reference)))
    return join(
        [
            tag("span", when, class_="small quiet"),
            _said(line.say),
            tag("p", "From the recording ", foreign(recorded), class_="small quiet") if recorded else None,
            tag("ul", must, class_="small") if must else None,
        ]
    )


def _rule(assertion: StatedAssertion) -> list[Child]:
    """Return an assertion as the end of a sentence."""
    kind = assertion.type
    found: list[Child] = [_RULES.get(kind) or tag("span", "passes ", tag("code", foreign(kind)))]
    ideal = assertion.ideal
    wanted: list[str] = [ideal] if isinstance(ideal, str) else list(ideal or ())
    if kind == "contains" and len(wanted) > 1:
        found = ["contains all of"]
    elif kind == "exact_match" and len(wanted) > 1:
        found = ["is exactly one of"]
    if assertion.judge_prompt:
        wanted = [assertion.judge_prompt]
    if wanted:
        found += [" ", join((tag("q", foreign(each)) for each in wanted), ", ")]
    if assertion.threshold is not None:
        found.append(f" (similarity of {assertion.threshold:g} or more)")
    if not assertion.case_sensitive:
        found.append(" (in capitals or not)")
    if assertion.schema is not None:
        found += [" ", tag("code", foreign(json.dumps(assertion.schema, ensure_ascii=False)))]
    return found
