"""Scenarios as a table: full ids at any width; names and tags move to their own lines if they do not fit."""

import pytest

from pramana.app.scenarios import ScenarioView
from pramana.report.scenarios import render_scenarios
from pramana.report.terminal import count_columns


def make_scenario(scenario_id: str, name: str, tags: tuple[str, ...] = (), **fields: str) -> ScenarioView:
    stated = {"type": "information-retrieval", "language": "en", "difficulty": "medium", **fields}
    nothing = dict.fromkeys(("prompt_audio_url", "assert_", "reference", "turns", "conditions"))
    texts = {"prompt": "p", "expected_outcome": "o", "created_at": "", "updated_at": ""}
    return ScenarioView(id=scenario_id, name=name, tags=tags, **stated, **texts, **nothing)  # type: ignore[arg-type]


SCENARIOS = [
    make_scenario("hours-1", "Opening hours", ("domain:shop",)),
    make_scenario("booking-ferry-with-van", "フェリー\x1b[31m", ("domain:travel", "task:book"), language="ja"),
]


def test_a_wide_table_has_one_line_per_scenario() -> None:
    assert render_scenarios(SCENARIOS, 160).split("\n") == [
        "id                      name              type                   language  difficulty  tags",
        "hours-1                 Opening hours     information-retrieval  en        medium      domain:shop",
        "booking-ferry-with-van  フェリー\\x1b[31m  information-retrieval  ja        medium      "
        "domain:travel task:book",
    ]


def test_a_narrow_table_has_two_lines_per_scenario_and_full_ids() -> None:
    assert render_scenarios(SCENARIOS, 80).split("\n") == [
        "id                      type                   language  difficulty",
        "hours-1                 information-retrieval  en        medium",
        "  Opening hours  domain:shop",
        "booking-ferry-with-van  information-retrieval  ja        medium",
        "  フェリー\\x1b[31m  domain:travel task:book",
    ]


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_no_line_is_longer_than_the_terminal(columns: int) -> None:
    long = make_scenario("x" * 100, "name " * 100, ("tag",) * 50)
    assert max(count_columns(line) for line in render_scenarios([long], columns).split("\n")) <= columns
