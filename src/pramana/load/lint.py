"""What is valid in scenarios and yet doubtful: recordings that are missing, ids in two files, and advice on style."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from pramana.errors import Problem
from pramana.load.problems import found, with_source
from pramana.load.scenario import Located
from pramana.load.yaml12 import lines_of

_EMPTY_WORDS = "my|test|tests|scenario|example|sample|case|foo|bar|baz|demo|new|temp|tmp|untitled|prompt|item|thing|x"
_VAGUE = re.compile(rf"(?:{_EMPTY_WORDS}|\d|-)+|.{{1,2}}")


def warnings(
    scenarios: Sequence[Located], file: Path, text: str, seen: dict[str, str], *, lint: bool
) -> Iterator[Problem]:
    """Yield a warning for everything doubtful, each at its key; `seen` has the place of each id of the files before."""
    for each, field, message in _missing_recordings(scenarios, file.parent):
        yield each.problem(message, field, "warning")
    lines = lines_of(text)
    for each, field, message in chain(_advice(scenarios) if lint else (), _repeats(scenarios, seen)):
        problem = each.problem(message, field, "warning")
        yield with_source(problem, lines[problem.line - 1])


def _missing_recordings(scenarios: Sequence[Located], folder: Path) -> Iterator[tuple[Located, str, str]]:
    """Yield recordings that count from the file and are not there: in the middle of a run it is late to learn so."""
    for each in scenarios:
        turns = [("turns", turn.audio_url) for turn in each.scenario.turns or ()]
        for field, url in (("prompt_audio_url", each.scenario.prompt_audio_url), *turns):
            if url and not url.startswith("/") and "://" not in url and not (folder / url).is_file():
                yield each, field, f"there is no recording {folder / url}; a case without its recording is errored"


def _repeats(scenarios: Sequence[Located], seen: dict[str, str]) -> Iterator[tuple[Located, str, str]]:
    """Yield ids that two files share: each is valid alone, but an import would keep only one."""
    for each in scenarios:
        before = seen.setdefault(each.scenario.id, f"{each.file}:{each.at('id').line}")
        if not before.startswith(f"{each.file}:"):
            yield each, "id", f'id "{each.scenario.id}" is also used at {before}; importing both keeps only one'


def _advice(scenarios: Sequence[Located]) -> Iterator[tuple[Located, str, str]]:
    styles: dict[bool, str] = {}
    for located in scenarios:
        scenario = located.scenario
        if _VAGUE.fullmatch(scenario.id):
            better = "name what the scenario tests, domain first, such as billing-refund-duplicate"
            yield located, "id", f"{found(scenario.id)} does not describe the scenario; {better}"
        if len(scenario.expected_outcome.split()) < 2:
            outcome = found(scenario.expected_outcome)
            yield located, "expected_outcome", f"{outcome} is one word; describe what a judge can check"
        for tag in scenario.tags:
            hierarchical = ":" in tag.strip(":")
            other = styles.get(not hierarchical)
            if other is not None and hierarchical not in styles:
                yield (
                    located,
                    "tags",
                    f"{found(tag)} and {found(other)} mix two styles; use key:value tags or plain ones",
                )
            styles.setdefault(hierarchical, tag)
