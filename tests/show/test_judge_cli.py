"""`pramana judge`: labelling at a terminal and by file."""

import csv
import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from pramana.show.cli import pramana
from pramana.store import open_store

from ..judged_runs import add_judged_run
from ..stores import home_store


@pytest.fixture(name="run_id")
def _run_id() -> str:
    with closing(open_store(home_store())) as store:
        return add_judged_run(store, [True, False] * 6).id


def invoke(*arguments: str | Path, keys: str = "", code: int = 0) -> str:
    result = CliRunner().invoke(pramana, ["judge", *map(str, arguments)], input=keys, standalone_mode=False)
    if isinstance(result.exception, Exception):
        raise result.exception
    assert (result.return_value or 0) == code, result.output
    return result.stdout


def read_scoring_labels() -> list[tuple[str, str]]:
    return [(each["rater"], each["label"]) for each in json.loads(invoke("label", "--json"))]


def test_keys_label_skip_go_back_and_quit(run_id: str) -> None:
    shown = invoke("label", run_id, "--rater", "ann", keys="y\nn?u\nsbn q y")
    assert "Unknown key" in shown
    assert "Does the reply meet it?" in shown
    assert "4 of 12 replies labelled by ann, 1 of them unsure. Continue: pramana judge label" in " ".join(shown.split())
    assert sorted(label for _, label in read_scoring_labels()) == ["no", "no", "unsure", "yes"]
    shown = invoke("label", run_id, "--rater", "ann", keys="y" * 20)
    assert "12 of 12 replies labelled by ann" in " ".join(shown.split())
    assert len(read_scoring_labels()) == 12
    assert max(map(len, shown.splitlines())) <= 80


def test_going_back_replaces_a_label(run_id: str) -> None:
    shown = invoke("label", run_id, "--rater", "ann", keys="ybnq")
    assert "now labelled yes" in shown
    assert read_scoring_labels() == [("ann", "no")]


def test_replies_can_be_labelled_in_a_spreadsheet(run_id: str, tmp_path: Path) -> None:
    file = tmp_path / "replies.csv"
    invoke("label", run_id, "--export", file, "--count", "5")
    with file.open(encoding="utf-8", newline="") as read:
        rows = list(csv.DictReader(read))
    assert [*rows[0]] == ["task", "case", "prompt", "criterion", "ideals", "reply", "label", "note"]
    assert len(rows) == 5
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, [*rows[0]])
        writer.writeheader()
        writer.writerows(
            {**row, "label": label} for row, label in zip(rows, ["yes", "N", "Unsure", "", "y"], strict=True)
        )
    assert "4 labels stored" in invoke("label", run_id, "--import", file, "--rater", "bob")
    assert sorted(read_scoring_labels()) == [("bob", "no"), ("bob", "unsure"), ("bob", "yes"), ("bob", "yes")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task,verdict\n1.llm_judge,yes\n", "the column label is missing"),
        ("task,label\n1.llm_judge,perhaps\n", 'expected yes, no or unsure, found "perhaps"'),
        ("task,label\nnothing,yes\n", "expected the name of a reply such as 12.llm_judge"),
        ("task,label\n1.llm_judge,yes\n77.llm_judge,yes\n", "has no result 77"),
        ("\xff\xfe", "is not a CSV file in UTF-8"),
        ("task,label\n1.llm_judge,yes\n1.llm_judge,no\n", "labelled no here and yes in line 2; keep one of them"),
        ('task,label\n1.llm_judge,"yes\n2.llm_judge,no\n', "from line 2 on: a quote is opened and not closed"),
        ("task,label\n1.llm_judge\n2.llm_judge,\n", "none of its 2 rows has a label"),
        ("task,label,label\n1.llm_judge,yes,no\n", "there are several columns label"),
    ],
)
def test_a_broken_file_stores_no_label(run_id: str, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "labels.csv"
    file.write_bytes(text.encode("latin-1"))
    result = CliRunner().invoke(pramana, ["judge", "label", run_id, "--import", str(file)], standalone_mode=False)
    assert message in str(result.exception)
    assert read_scoring_labels() == []


def test_a_reply_longer_than_the_limit_of_the_csv_reader_is_read(run_id: str, tmp_path: Path) -> None:
    file = tmp_path / "long.csv"
    file.write_text(f'task,reply,label\n1.llm_judge,"{"long " * 40_000}",yes\n2.llm_judge,"",\n', encoding="utf-8")
    limit = csv.field_size_limit()
    assert "1 label stored. 1 row without a label." in invoke("label", run_id, "--import", file, "--rater", "bob")
    assert read_scoring_labels() == [("bob", "yes")]
    assert csv.field_size_limit() == limit


def test_the_same_label_twice_is_no_contradiction(run_id: str, tmp_path: Path) -> None:
    file = tmp_path / "twice.csv"
    file.write_text(
        "task,label,rater\n1.llm_judge,yes,ann\n1.llm_judge,yes,ann\n1.llm_judge,no,bob\n", encoding="utf-8"
    )
    invoke("label", run_id, "--import", file)
    assert read_scoring_labels() == [("ann", "yes"), ("bob", "no")]
