"""`pramana compare`: both replies of flipped cases, changed replies with the same verdict, and result hashes."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pramana as library
from pramana.report.terminal import count_columns
from pramana.show.cli import pramana

MODELS = """\
from pramana import Reply, ToolCall

LONG = "Well, that depends on how one looks at it. " * 40

def before(prompt):
    return {"0": "Paris", "1": "Paris", "2": "Paris", "3": "I do not know.", "4": "Rome", "5": LONG + "Paris"}[prompt[-2]]

def now(prompt):
    return {
        "0": "I am a chatty model.", "1": "The capital city is, of course, Paris!", "2": "Paris", "3": "Paris.",
        "4": "Madrid", "5": LONG + "Paris, that is",
    }[prompt[-2]]

def calls(prompt):
    return Reply("", tool_calls=(ToolCall("find", '{"number": %s}' % prompt[-2]),))

def long_calls(prompt):
    return Reply("", tool_calls=(ToolCall("find", '{"text": "%s", "city": "Rome"}' % ("a" * 300)),))

def other_long_calls(prompt):
    return Reply("", tool_calls=(ToolCall("find", '{"text": "%s", "city": "Oslo"}' % ("a" * 300)),))

def empty(prompt):
    if "0" in prompt:
        raise ValueError("no answer")
    return ""
"""


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "models_of_capitals", raising=False)
    (tmp_path / "models_of_capitals.py").write_text(MODELS, encoding="utf-8")
    cases = [
        {
            "id": f"capital-{number}",
            "category": "factual",
            "input": f"Which capital is number {number}?",
            "ideal": ["Paris"],
            "assertion": {"type": "contains"},
            "metadata": {"difficulty": "easy", "tokens_est": 8},
        }
        for number in range(6)
    ]
    (tmp_path / "capitals.jsonl").write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")


def run_models(*models: str, repeat: int = 1) -> str:
    """Run the models over the capitals; return the id."""
    named = [each for model in models for each in ("--model", f"python:models_of_capitals:{model}")]
    invoke("run", "capitals.jsonl", *named, "--quiet", "--repeat", str(repeat), "--id-file", "id")
    return Path("id").read_text(encoding="utf-8").strip()


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(pramana, [*arguments], standalone_mode=False)
    assert done.exception is None, done.output
    return done.stdout


def compare_as_json(*arguments: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(invoke("compare", *arguments, "--json"))
    return found


CHANGED = "3 of 4 replies changed while the verdict stayed the same."


def test_a_flipped_case_is_shown_with_prompt_both_replies_and_reasons() -> None:
    text = invoke("compare", run_models("before"), run_models("now"), "--show", "1")
    listed = text[text.index("1 passes less often now:") : text.index("1 passes more often now:")]
    assert listed.splitlines() == [
        "1 passes less often now:",
        "  capital-0",
        "    prompt: Which capital is number 0?",
        "    before, passed: Paris",
        '      reason: found "Paris" at character 1',
        "    now, failed: I am a chatty model.",
        '      reason: does not contain "Paris"',
        "",
    ]
    assert CHANGED in text
    assert "The capital city" not in text


def test_changed_replies_with_the_same_verdict_follow_the_flips_up_to_the_limit() -> None:
    base, new = run_models("before"), run_models("now")
    text = invoke("compare", base, new)
    alike = text[text.index("Replies that changed while the verdict stayed the same:") :]
    assert [line for line in alike.splitlines() if line.startswith("  capital")] == ["  capital-1"]
    assert "now, passed: The capital city is, of course, Paris!" in alike
    assert "  … and 2 more" in alike
    everything = invoke("compare", base, new, "--show", "9")
    assert "… and" not in everything[everything.index("Replies that changed") :].replace("…Well", "")
    nothing = invoke("compare", base, new, "--show", "0")
    assert CHANGED in nothing
    assert "prompt:" not in nothing


def test_long_replies_are_shortened_and_start_where_they_differ() -> None:
    text = invoke("compare", run_models("before"), run_models("now"), "--show", "9")
    shown = text[text.index("  capital-5") :].splitlines()
    assert max(map(count_columns, text.splitlines())) <= 80
    assert len(shown) <= 12
    assert any("Paris, that is" in line for line in shown)
    assert any(line.startswith("    before, passed: …") for line in shown)


def test_json_contains_both_complete_replies() -> None:
    base, new = run_models("before"), run_models("now")
    found = compare_as_json(base, new)
    flipped, gained, *alike = found["examples"]
    assert (flipped["case"], flipped["change"], flipped["prompt"]) == (
        "capital-0",
        "lost",
        "Which capital is number 0?",
    )
    assert (flipped["base"]["reply"], flipped["base"]["outcome"]) == ("Paris", "passed")
    assert (flipped["new"]["reply"], flipped["new"]["outcome"]) == ("I am a chatty model.", "failed")
    assert flipped["base"]["result"] in found["lost"][0]["base_results"]
    assert (gained["case"], gained["change"]) == ("capital-3", "gained")
    assert [(each["case"], each["change"]) for each in alike] == [
        ("capital-1", "same verdict"),
        ("capital-4", "same verdict"),
        ("capital-5", "same verdict"),
    ]
    assert alike[2]["new"]["reply"].endswith("Paris, that is")
    changes = found["reply_changes"]
    assert (changes["compared"], changes["changed"], changes["sentence"]) == (4, 3, CHANGED)
    assert len(compare_as_json(base, new, "--show", "2")["examples"]) == 2


def test_unchanged_replies_are_not_mentioned() -> None:
    base, new = run_models("before"), run_models("before")
    assert "repl" not in invoke("compare", base, new)
    assert compare_as_json(base, new)["reply_changes"] == {"compared": 6, "changed": 0, "sentence": "", "cases": []}


def test_replies_of_two_models_of_one_run_differ_rather_than_change() -> None:
    run = run_models("before", "now")
    text = invoke("compare", run)
    assert "3 of 4 replies differ between the models while the verdict is the same." in " ".join(text.split())
    assert "Replies that differ while the verdict is the same:" in text
    assert "    before, passed: Paris" in text


def test_a_reply_without_text_is_shown_by_its_tool_calls_or_as_empty() -> None:
    calls, empty = run_models("calls"), run_models("empty")
    text = " ".join(invoke("compare", calls, empty).split())
    assert 'before, failed: (no text; called find({"number": 1}))' in text
    assert "now, failed: (empty)" in text
    found = compare_as_json(calls, empty)
    first = found["examples"][0]["base"]
    assert (first["reply"], [each["name"] for each in first["tool_calls"]]) == ("", ["find"])
    assert (found["reply_changes"]["compared"], found["reply_changes"]["changed"]) == (5, 5)
    flipped = run_models("before")
    assert "(no text; called find" in invoke("compare", flipped, calls, "--show", "1")


def test_tool_calls_in_a_file_are_compared_with_those_of_a_run() -> None:
    run = run_models("calls")
    invoke("export", run, "--output", "calls.json")
    for sides in (("calls.json", run), (run, "calls.json")):
        changes = compare_as_json(*sides)["reply_changes"]
        assert (changes["compared"], changes["changed"]) == (6, 0)
    found = compare_as_json("calls.json", run_models("empty"))
    assert found["examples"][0]["base"]["tool_calls"] == [{"id": None, "name": "find", "arguments": '{"number": 1}'}]
    foreign = json.loads(Path("calls.json").read_text(encoding="utf-8"))
    for wrong, each in zip(("no list", [7, {"name": 7}], None), foreign[0]["results"], strict=False):
        each["tool_calls"] = wrong
    Path("calls.json").write_text(json.dumps(foreign), encoding="utf-8")
    assert compare_as_json("calls.json", run)["reply_changes"]["changed"] == 3


def test_tool_calls_are_compared_and_shown_beyond_the_beginning_of_their_arguments() -> None:
    base, new = run_models("long_calls"), run_models("other_long_calls")
    text = invoke("compare", base, new)
    assert "6 of 6 replies changed while the verdict stayed the same." in text
    assert "Rome" in text
    assert "Oslo" in text


def test_repeats_are_compared_one_by_one() -> None:
    changes = compare_as_json(run_models("before", repeat=3), run_models("now", repeat=2))["reply_changes"]
    assert (changes["compared"], changes["changed"]) == (8, 6)


def test_a_file_shows_its_replies_unless_it_has_no_outputs(tmp_path: Path) -> None:
    base, new = run_models("before"), run_models("now")
    files = [str(tmp_path / name) for name in ("base.json", "new.json")]
    for run, file in zip((base, new), files, strict=True):
        invoke("export", run, "--output", file)
    found = compare_as_json(*files)
    assert found["reply_changes"]["changed"] == 3
    assert found["examples"][0]["base"] == {
        "outcome": "passed",
        "reason": 'found "Paris" at character 1',
        "reply": "Paris",
        "tool_calls": [],
        "result": None,
    }
    assert compare_as_json(files[0], new)["examples"][0]["prompt"] == "Which capital is number 0?"
    blocks = json.loads(Path(files[0]).read_text(encoding="utf-8"))
    for each in blocks[0]["results"]:
        del each["output"], each["result_hash"]
    Path(files[0]).write_text(json.dumps(blocks), encoding="utf-8")
    silent = compare_as_json(*files)
    assert (silent["reply_changes"]["compared"], silent["reply_changes"]["sentence"]) == (0, "")
    assert silent["examples"][0]["base"]["reply"] is None
    assert "before, passed: (reply not recorded)" in invoke("compare", *files)


def test_a_file_with_a_wrong_result_hash_is_named_with_the_first_case(tmp_path: Path) -> None:
    base, new = run_models("before"), run_models("now")
    file = tmp_path / "results.json"
    invoke("export", new, "--output", str(file))
    assert compare_as_json(base, str(file))["hash_mismatches"] == []
    blocks = json.loads(file.read_text(encoding="utf-8"))
    for number in (1, 4):
        blocks[0]["results"][number]["output"] = "Paris, edited"
    file.write_text(json.dumps(blocks), encoding="utf-8")
    (mismatch,) = compare_as_json(base, str(file))["hash_mismatches"]
    assert (mismatch["file"], mismatch["count"], mismatch["first_case"]) == (str(file), 2, "capital-1")
    done = CliRunner().invoke(pramana, ["compare", base, str(file)], standalone_mode=False)
    warning = " ".join(done.stderr.split())
    assert "the result_hash of 2 results does not match their output (first: capital-1)" in warning
    assert "Warning" not in done.stdout
    (found,) = library.compare(base, str(file)).hash_mismatches
    assert (found.count, found.first_case) == (2, "capital-1")


def test_the_library_returns_both_replies() -> None:
    found = library.compare(run_models("before"), run_models("now"))
    assert (found.reply_changes.changed, found.reply_changes.cases[0].case_id) == (3, "capital-1")
    assert [each.case_id for each in found.examples][:2] == ["capital-0", "capital-3"]
    assert found.examples[0].new.reply == "I am a chatty model."
    assert CHANGED in found._repr_html_()
