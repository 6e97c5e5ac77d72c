"""Short labels for model names: each fits its width, and no two are equal."""

from hypothesis import given
from hypothesis import strategies as st

from pramana.analyse.labels import label_models, make_model_labels, shorten_middle, shorten_names

DATED = ["openai:gpt-5-mini-2025-08-07", "openai:gpt-5-mini-2025-10-01"]


def test_names_that_fit_are_unchanged() -> None:
    found = label_models(DATED, 28)
    assert (found.dropped_prefix, list(found.labels.values())) == ("", DATED)


def test_only_as_much_of_a_shared_prefix_is_dropped_as_necessary() -> None:
    assert [label_models(DATED, room).dropped_prefix for room in (27, 21, 15)] == [
        "openai:", "openai:gpt-", "openai:gpt-5-mini-",
    ]  # fmt: skip
    assert list(label_models(DATED, 8).labels.values()) == ["…08-07", "…10-01"]


def test_a_prefix_is_cut_at_a_word_boundary() -> None:
    found = label_models(["http://localhost:8080/v1#mistral-7b", "http://localhost:8080/v1#mixtral-8x7b"], 15)
    assert found.dropped_prefix == "http://localhost:8080/v1#"
    assert list(found.labels.values()) == ["…mistral-7b", "…mixtral-8x7b"]


def test_a_single_long_name_is_shortened_in_the_middle() -> None:
    found = label_models(["http://localhost:8080/v1#mistral-7b"], 21)
    assert (found.dropped_prefix, found["http://localhost:8080/v1#mistral-7b"]) == ("", "http://loc…mistral-7b")


def test_names_that_differ_in_the_middle_stay_distinct() -> None:
    names = [f"{'a' * 40}{letter}{'z' * 40}" for letter in "mn"]
    assert len(set(label_models(names, 20).labels.values())) == 2
    labels = make_model_labels(*names)
    assert labels.model_labels
    assert labels.model_labels[0] != labels.model_labels[1]
    assert max(map(len, labels.model_labels)) <= 48


def test_names_that_differ_only_in_unprintable_characters_are_numbered() -> None:
    assert list(label_models(["a\n", "a\\n"], 20).labels.values()) == ["1: a\\n", "2: a\\n"]


@given(
    st.text("ab-/", max_size=60),
    st.lists(st.text("ab-/日", min_size=1, max_size=60), min_size=1, max_size=50, unique=True),
    st.integers(12, 80),
)
def test_labels_of_any_names_fit_and_are_distinct(prefix: str, endings: list[str], room: int) -> None:
    def count_columns(text: str) -> int:
        return sum(2 if each == "日" else 1 for each in text)

    names = [f"{prefix}{each}" for each in endings]
    for found in (label_models(names, room, count_columns).labels, shorten_names(names, room, count_columns)):
        assert list(found) == names
        assert len(set(found.values())) == len(names)
        assert max(map(count_columns, found.values())) <= room


def test_wide_characters_take_two_columns() -> None:
    assert shorten_middle("日本語日本語", 7, lambda text: 2 * len(text.replace("…", "")) + text.count("…")) == "日…語"
