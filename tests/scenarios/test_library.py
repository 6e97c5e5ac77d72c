"""The built-in scenario library: its promised size, variety and quality."""

import re
from collections import Counter
from itertools import combinations

import pytest

from pramana.load.manifest import BUILT_IN_SUITES_FOLDER
from pramana.load.problems import Problems
from pramana.load.scenario import Scenario, read_scenarios

FOLDER = BUILT_IN_SUITES_FOLDER.parent / "scenarios"
RECOMMENDED = {
    "task-completion": ["booking", "ordering", "settings"],
    "information-retrieval": ["factual", "technical", "comparison"],
    "conversation-flow": ["customer-support", "technical-support", "emotional-support"],
    "multilingual": ["spanish", "arabic", "japanese"],
}


def load_library() -> dict[str, list[Scenario]]:
    """Every scenario, by the file's path within the library."""
    files = {}
    for path in sorted(FOLDER.rglob("*.yaml")):
        problems = Problems()
        located = read_scenarios(path.read_bytes(), problems, str(path))
        assert list(problems) == []
        files[path.relative_to(FOLDER).with_suffix("").as_posix()] = [each.scenario for each in located]
    return files


FILES = load_library()
ALL = [scenario for scenarios in FILES.values() for scenario in scenarios]


def test_the_library_has_its_size_languages_types_and_difficulties() -> None:
    assert len(ALL) >= 120
    languages = Counter(scenario.language for scenario in ALL)
    assert languages["en"] >= 60
    assert len(languages) >= 8
    assert {scenario.type for scenario in ALL} == set(RECOMMENDED) - {"multilingual"}
    assert {scenario.difficulty for scenario in ALL} == {"easy", "medium", "hard"}


def test_the_recommended_folders_and_files_exist() -> None:
    assert {f"{folder}/{name}" for folder, names in RECOMMENDED.items() for name in names} <= FILES.keys()
    for name, scenarios in FILES.items():
        folder = name.partition("/")[0]
        if folder != "multilingual":
            assert {scenario.type for scenario in scenarios} == {folder}, name


def test_the_three_named_files_have_the_promised_sizes() -> None:
    assert len(FILES["conversation-flow/customer-support-basics"]) == 10
    assert len(FILES["information-retrieval/general-knowledge"]) == 15
    languages = Counter(scenario.language for scenario in FILES["multilingual/multilingual"])
    assert sorted(languages.values()) == [5, 5, 5, 5]


def test_ids_are_unique_across_the_library() -> None:
    assert [each for each, count in Counter(scenario.id for scenario in ALL).items() if count > 1] == []


def test_tags_share_one_hierarchical_style() -> None:
    assert [
        tag for scenario in ALL for tag in scenario.tags if not re.fullmatch(r"(domain|task|skill):[a-z0-9-]+", tag)
    ] == []
    assert [scenario.id for scenario in ALL if not 2 <= len(scenario.tags) <= 4] == []


def test_every_expected_outcome_can_state_two_facts() -> None:
    # Whether a fact can be checked is a reader's judgement; that there is room for two, a test can say.
    assert [scenario.id for scenario in ALL if len(scenario.expected_outcome.split()) < 12] == []


def split_shingles(text: str) -> set[str]:
    folded = text.casefold()
    return {folded[start : start + 5] for start in range(len(folded) - 4)}


def measure_similarity(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b)


@pytest.mark.parametrize("field", ["prompt", "expected_outcome"])
def test_no_scenario_outside_the_multilingual_set_is_a_template_of_another(field: str) -> None:
    texts = [
        (scenario.id, split_shingles(getattr(scenario, field)))
        for name, scenarios in FILES.items()
        if name != "multilingual/multilingual"
        for scenario in scenarios
    ]
    alike = [(first, second) for (first, a), (second, b) in combinations(texts, 2) if measure_similarity(a, b) > 0.25]
    assert alike == []


def test_template_copies_are_detected() -> None:
    a, b = "Book me a table for two at eight tonight, please", "Book me a table for six at seven tonight, please"
    assert measure_similarity(split_shingles(a), split_shingles(b)) > 0.25


SCRIPTS = {
    "ar": r"[\u0600-\u06ff]",
    "hi": r"[\u0900-\u097f]",
    "ja": r"[\u3040-\u30ff\u4e00-\u9fff]",
    "zh": r"[\u4e00-\u9fff]",
}


@pytest.mark.parametrize("language", sorted(SCRIPTS))
def test_prompts_use_the_script_of_their_language(language: str) -> None:
    prompts = [
        scenario.prompt
        for name, scenarios in FILES.items()
        for scenario in scenarios
        if scenario.language == language and "code-switching" not in name
    ]
    assert prompts
    assert [
        prompt for prompt in prompts if not re.search(SCRIPTS[language], prompt) or re.search("[A-Za-z]", prompt)
    ] == []
