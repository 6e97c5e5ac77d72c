"""Markup of a scenario or a test case: what is sent, and what the answer must fulfil."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pramana.model import Scenario, ScenarioTurn, StatedAssertion
from pramana.report.markup import HtmlChild, SafeHtml, join_html, render_facts, render_text, render_untrusted_text, tag

MAX_TEXT_CHARS = 20_000
_ASSERTION_PHRASES = {
    "exact_match": "is exactly",
    "contains": "contains",
    "contains_any": "contains one of",
    "contains_none": "contains none of",
    "is_json": "is JSON",
    "json_schema": "is JSON that matches a schema",
    "llm_judge": "satisfies an LLM judge",
    "semantic_similarity": "has a similar meaning to",
    "regex": "matches the pattern",
}
"""The wording of an assertion by type; other types are shown by name."""


def render_scenario(scenario: Scenario) -> SafeHtml:
    """Return a scenario as markup: its lines, context and expectations."""
    known: list[tuple[str, HtmlChild]] = [
        ("Type", scenario.type),
        ("Difficulty", scenario.difficulty),
        ("Language", render_untrusted_text(scenario.language)),
    ]
    if scenario.conditions:
        known.append(("Sounds", render_untrusted_text(scenario.conditions)))
    first = ScenarioTurn(scenario.prompt, scenario.prompt_audio_url, None, scenario.assert_, scenario.reference)
    lines = [first, *(scenario.turns or ())]
    return join_html(
        [
            tag("p", render_untrusted_text(scenario.name), class_="card-title"),
            render_facts(known),
            tag("p", render_tags(scenario.tags)) if scenario.tags else None,
            tag("ol", (tag("li", _render_scenario_turn(each)) for each in lines), class_="script"),
            tag("h3", "A good agent"),
            _render_message_text(scenario.expected_outcome),
        ]
    )


def render_case(case: Mapping[str, Any]) -> SafeHtml:
    """Return a test case as markup: its messages, the expected answer and its assertions."""
    asked = case["input"]
    turns = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    assertion = msgspec.convert({**case["assertion"], "ideal": case.get("ideal")}, StatedAssertion)
    said = (join_html([tag("dt", turn["role"]), tag("dd", _render_message_text(turn["content"]))]) for turn in turns)
    tagged = case["metadata"].get("tags") or ()
    return join_html(
        [
            tag("dl", said, class_="said"),
            tag("p", "Passes when the answer ", *_render_assertion(assertion)),
            tag("p", "Tags: ", render_tags(tagged), class_="quiet") if tagged else None,
        ]
    )


def render_tags(names: Sequence[str], urls_by_name: Mapping[str, str] | None = None) -> SafeHtml:
    """Return tags side by side, each as a link if `urls_by_name` has its address."""
    return tag(
        "span", join_html((_render_tag(each, (urls_by_name or {}).get(each)) for each in names), " "), class_="tags"
    )


def render_excerpt(content: str, max_chars: int = 160) -> SafeHtml:
    """Return the beginning of a text, with the text's own writing direction."""
    cut = " ".join(content[: 2 * max_chars].split())
    return tag(
        "div", render_text(cut if len(cut) <= max_chars else cut[:max_chars].rstrip() + "…"), dir="auto", class_="clip"
    )


def _render_tag(name: str, url: str | None) -> SafeHtml:
    return (
        tag("a", render_untrusted_text(name, 80), href=url, class_="tag")
        if url
        else tag("span", render_untrusted_text(name, 80), class_="tag")
    )


def _render_message_text(text: str) -> SafeHtml:
    return tag("div", render_text(text, MAX_TEXT_CHARS), dir="auto", class_="speech")


def _render_scenario_turn(turn: ScenarioTurn) -> SafeHtml:
    """Return a caller's line and what the agent's answer must fulfil."""
    barged, recorded = turn.barge_in, turn.audio_url
    when = "The caller says" if barged is None else f"The caller interrupts after {barged:g} s of the answer"
    must = [tag("li", "Passes when the answer ", *_render_assertion(each)) for each in turn.assert_ or ()]
    if turn.reference:
        must.append(tag("li", "The agent must say: ", render_untrusted_text(turn.reference)))
    return join_html(
        [
            tag("span", when, class_="small quiet"),
            _render_message_text(turn.say),
            tag("p", "Played from the recording ", render_untrusted_text(recorded), class_="small quiet")
            if recorded
            else None,
            tag("ul", must, class_="small") if must else None,
        ]
    )


def _render_assertion(assertion: StatedAssertion) -> list[HtmlChild]:
    """Return an assertion as the end of a sentence."""
    kind = assertion.type
    found: list[HtmlChild] = [
        _ASSERTION_PHRASES.get(kind) or tag("span", "passes ", tag("code", render_untrusted_text(kind)))
    ]
    ideal = assertion.ideal
    wanted: list[str] = [ideal] if isinstance(ideal, str) else list(ideal or ())
    if kind == "contains" and len(wanted) > 1:
        found = ["contains all of"]
    elif kind == "exact_match" and len(wanted) > 1:
        found = ["is exactly one of"]
    if assertion.judge_prompt:
        wanted = [assertion.judge_prompt]
    if wanted:
        found += [" ", join_html((tag("q", render_untrusted_text(each)) for each in wanted), ", ")]
    if assertion.threshold is not None:
        found.append(f" (similarity of {assertion.threshold:g} or more)")
    if not assertion.case_sensitive:
        found.append(" (ignoring case)")
    if assertion.schema is not None:
        found += [" ", tag("code", render_untrusted_text(json.dumps(assertion.schema, ensure_ascii=False)))]
    return found
