"""Selecting cases: within one filter any value will do, across filters all must hold."""

import pytest

from pramana.model import Case, Facets, Turn
from pramana.request import Selection


def case(number: int, **facets: object) -> Case:
    stated = {"category": "coding", "difficulty": "easy", **facets}
    return Case(f"c-{number}", "test_case", (Turn("user", "x"),), Facets(**stated))  # type: ignore[arg-type]


CASES = [
    case(0),
    case(1, category="safety", difficulty="hard", tags=("domain:travel", "task:booking")),
    case(2, category="task-completion", language="de", tags=("domain:health",)),
    case(3, difficulty="hard", tags=("domainless", "task:booking")),
]


@pytest.mark.parametrize(
    ("selection", "picked"),
    [
        (Selection(), [0, 1, 2, 3]),
        (Selection(categories=("safety", "task-completion")), [1, 2]),
        (Selection(difficulties=("hard",)), [1, 3]),
        (Selection(languages=("de", "fr")), [2]),
        (Selection(tags=("task:booking",)), [1, 3]),
        (Selection(tags=("domain:",)), [1, 2]),
        (Selection(tags=("domain",)), []),
        (Selection(tags=("domain:", "task:booking")), [1, 2, 3]),
        (Selection(ids=("c-0", "c-3", "c-9")), [0, 3]),
        (Selection(difficulties=("hard",), tags=("domain:",)), [1]),
        (Selection(limit=2), [0, 1]),
        (Selection(difficulties=("hard",), limit=1), [1]),
    ],
)
def test_what_is_picked(selection: Selection, picked: list[int]) -> None:
    assert [each.id for each in selection.pick(CASES)] == [f"c-{number}" for number in picked]


def test_a_selection_says_what_was_given_and_nothing_else() -> None:
    assert not Selection()
    assert Selection().recorded() == {}
    assert Selection(tags=("a",), limit=3)
    assert Selection(tags=("a",), limit=3).recorded() == {"tags": ["a"], "limit": 3}


def test_the_limit_draws_no_more_than_it_needs() -> None:
    drawn = []

    def stream() -> object:
        for each in CASES:
            drawn.append(each.id)
            yield each

    assert len(list(Selection(limit=1).pick(stream()))) == 1  # type: ignore[arg-type]
    assert len(drawn) <= 2
