"""What a careful author of scenarios would rather not ship: warnings, never errors."""

import re
from collections.abc import Iterator, Sequence

from pramana.errors import Problem
from pramana.load.problems import found, with_source
from pramana.load.scenario import Located, lines_of

_EMPTY_WORDS = "my|test|tests|scenario|example|sample|case|foo|bar|baz|demo|new|temp|tmp|untitled|prompt|item|thing|x"
_VAGUE = re.compile(rf"(?:{_EMPTY_WORDS}|\d|-)+|.{{1,2}}")


def lint(scenarios: Sequence[Located], text: str, file: str = "") -> Iterator[Problem]:
    """Yield advice on ids, outcomes and tags, each at its key."""
    lines = lines_of(text)
    for located, field, message in _advice(scenarios):
        place = located.at(field)
        path = f"{located.path}.{field}" if located.path else field
        problem = Problem(message, path, place.line, place.column, file, severity="warning")
        yield with_source(problem, lines[place.line - 1])


def _advice(scenarios: Sequence[Located]) -> Iterator[tuple[Located, str, str]]:
    styles: dict[bool, str] = {}
    for located in scenarios:
        scenario = located.scenario
        if _VAGUE.fullmatch(scenario.id):
            better = "name what it tests, domain first, such as billing-refund-duplicate"
            yield located, "id", f"{found(scenario.id)} says nothing about the scenario; {better}"
        if len(scenario.expected_outcome.split()) < 2:
            outcome = found(scenario.expected_outcome)
            yield located, "expected_outcome", f"{outcome} is one word; name the facts a judge can check"
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
