"""Warnings about valid scenarios: missing recordings, IDs that two files share, and style."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from pramana.errors import Problem
from pramana.load.problems import attach_source, describe_value
from pramana.load.scenario import LocatedScenario
from pramana.load.yaml12 import split_lines

_MEANINGLESS_WORDS = (
    "my|test|tests|scenario|example|sample|case|foo|bar|baz|demo|new|temp|tmp|untitled|prompt|item|thing|x"
)
_VAGUE_ID_RE = re.compile(rf"(?:{_MEANINGLESS_WORDS}|\d|-)+|.{{1,2}}")


def lint_scenarios(
    scenarios: Sequence[LocatedScenario], file: Path, text: str, places_by_id: dict[str, str], *, check_style: bool
) -> Iterator[Problem]:
    """Yield every warning at its key; `places_by_id` has the place of each ID in earlier files."""
    for each, field, message in _find_missing_recordings(scenarios, file.parent):
        yield each.make_problem(message, field, "warning")
    lines = split_lines(text)
    for each, field, message in chain(
        _find_style_problems(scenarios) if check_style else (), _find_repeated_ids(scenarios, places_by_id)
    ):
        problem = each.make_problem(message, field, "warning")
        yield attach_source(problem, lines[problem.line - 1])


def _find_missing_recordings(
    scenarios: Sequence[LocatedScenario], folder: Path
) -> Iterator[tuple[LocatedScenario, str, str]]:
    """Yield recordings that are missing, relative to the file: in the middle of a run it is too late to find out."""
    for each in scenarios:
        turns = [("turns", turn.audio_url) for turn in each.scenario.turns or ()]
        for field, url in (("prompt_audio_url", each.scenario.prompt_audio_url), *turns):
            if url and not url.startswith("/") and "://" not in url and not (folder / url).is_file():
                yield each, field, f"the recording {folder / url} does not exist; without it the case ends as errored"


def _find_repeated_ids(
    scenarios: Sequence[LocatedScenario], places_by_id: dict[str, str]
) -> Iterator[tuple[LocatedScenario, str, str]]:
    """Yield IDs that two files share: each is valid alone, but an import would keep only one."""
    for each in scenarios:
        before = places_by_id.setdefault(each.scenario.id, f"{each.file}:{each.find_field_position('id').line}")
        if not before.startswith(f"{each.file}:"):
            yield (
                each,
                "id",
                f'id "{each.scenario.id}" is also used at {before}; if both are imported, only one is kept',
            )


def _find_style_problems(scenarios: Sequence[LocatedScenario]) -> Iterator[tuple[LocatedScenario, str, str]]:
    styles: dict[bool, str] = {}
    for located in scenarios:
        scenario = located.scenario
        if _VAGUE_ID_RE.fullmatch(scenario.id):
            better = "name what the scenario tests, domain first, such as billing-refund-duplicate"
            yield located, "id", f"{describe_value(scenario.id)} does not describe the scenario; {better}"
        if len(scenario.expected_outcome.split()) < 2:
            outcome = describe_value(scenario.expected_outcome)
            yield (
                located,
                "expected_outcome",
                f"the expected outcome {outcome} is one word; describe what a judge can check",
            )
        for tag in scenario.tags:
            hierarchical = ":" in tag.strip(":")
            other = styles.get(not hierarchical)
            if other is not None and hierarchical not in styles:
                yield (
                    located,
                    "tags",
                    (
                        f"{describe_value(tag)} and {describe_value(other)} mix two styles; "
                        "use key:value tags or plain ones"
                    ),
                )
            styles.setdefault(hierarchical, tag)
