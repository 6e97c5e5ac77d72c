"""`pramana runs`: listing, filtering, renaming and deleting runs."""

import json
import os
import subprocess
import sys
from contextlib import closing

import pytest
from click.testing import CliRunner, Result

from pramana import settings
from pramana.errors import AlreadyRunning, NotFound
from pramana.model import Target
from pramana.request import RunEdit
from pramana.show.cli import pramana
from pramana.store import open_store
from pramana.store.queue import make_process_name

from .test_compare import F, P, make_cases, store_run


def invoke_runs(*arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(pramana, ["runs", *arguments], input=typed, standalone_mode=False)


def list_ids(*arguments: str) -> list[str]:
    return [each["id"] for each in json.loads(invoke_runs(*arguments, "--json").stdout)]


def test_each_run_is_listed_with_date_results_and_a_rate_per_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    both = (Target("good", "fake", "good"), Target("bad", "fake", "bad"))
    made = store_run(
        make_cases(4), models=both, outcomes_of=lambda model, number: [P if model == "good" or number else F]
    )
    head, first, second = invoke_runs().stdout.splitlines()
    assert " ".join(head.split()) == "Run Started Status Results Pass rate (95 % interval) Suite Model"
    with closing(open_store(settings.database_url())) as store:
        created = store.runs.read(made).created[:10]
    assert first.split() == [made, created, "finished", "8/8", "100", "%", "(39.8–100.0", "%)", "mine", "good"]
    assert second.split() == ["75.0", "%", "(19.4–99.4", "%)", "bad"]
    (found,) = json.loads(invoke_runs("--json").stdout)
    assert [(each["model"], each["pass_rate"]) for each in found["model_rates"]] == [("good", 1.0), ("bad", 0.75)]


def test_runs_are_filtered_by_model_suite_and_status() -> None:
    one = store_run(make_cases(1), models=[Target("a", "fake", "a")], suite="v1-cheap")
    two = store_run(
        make_cases(2),
        lambda number: [P] if number else [],
        models=[Target("openai:gpt-5", "fake", "b")],
        suite="v2-cheap",
    )
    assert list_ids() == [two, one]
    assert (list_ids("--model", "a"), list_ids("--suite", "v2"), list_ids("--status", "stopped")) == (
        [one],
        [two],
        [two],
    )
    assert invoke_runs("--model", "gpt-5").stdout == 'No run matches these filters; did you mean "openai:gpt-5"?\n'
    assert invoke_runs("--suite", "v3").stdout == "No run matches these filters.\n"


def test_runs_are_filtered_by_a_part_of_their_name() -> None:
    one, two = store_run(make_cases(1)), store_run(make_cases(1))
    with closing(open_store(settings.database_url())) as store:
        store.runs.edit(one, RunEdit(name="Short prompt"))
        store.runs.edit(two, RunEdit(name="50% off"))
    assert (list_ids("--name", "short"), list_ids("--name", "50%"), list_ids("--name", "%")) == ([one], [two], [two])
    assert invoke_runs("--name", "long").stdout == "No run matches these filters.\n"
    shown = CliRunner().invoke(pramana, ["show", "SHORT prompt"], standalone_mode=False)
    assert f"run {one}" in shown.stdout
    shown = CliRunner().invoke(pramana, ["show", "short"], standalone_mode=False)
    assert f'there is no run "short"; did you mean {one}, the run named "Short prompt"?' in str(shown.exception)


def test_json_lists_every_run_unless_limited() -> None:
    made = [store_run(make_cases(1)) for _ in range(24)]
    assert list_ids() == made[::-1]
    assert invoke_runs().stdout.splitlines()[-1] == "20 of 24 runs; --limit 24 lists all"
    limited = invoke_runs("--json", "--limit", "5")
    assert [each["id"] for each in json.loads(limited.stdout)] == made[:-6:-1]
    assert limited.stderr == "5 of 24 runs; without --limit all are printed\n"


def test_name_and_note_of_a_run_can_be_set_changed_and_shown() -> None:
    begun = ["run", "--model", "fake:echo", "--limit", "1", "--quiet", "--name", "nightly", "--note", "new\nprompt"]
    shown = CliRunner().invoke(pramana, begun, standalone_mode=False)
    assert "\n  name: nightly\n  note: new" in shown.stdout
    assert "    Name: nightly\n    Note: new prompt\n" in invoke_runs().stdout
    assert invoke_runs("edit", "latest", "--note", "").stdout.endswith(': name "nightly", no note\n')
    assert "Note" not in invoke_runs().stdout
    show = CliRunner().invoke(pramana, ["show", "--json"], standalone_mode=False)
    assert [json.loads(show.stdout)[each] for each in ("name", "note")] == ["nightly", None]
    assert "name: nightly" in CliRunner().invoke(pramana, ["show"], standalone_mode=False).stdout
    changed = json.loads(invoke_runs("edit", "latest", "--name", "weekly", "--json").stdout)
    assert (changed["name"], changed["note"]) == ("weekly", None)
    assert "nothing to change; add --name NAME" in str(invoke_runs("edit", "latest").exception)


def test_runs_are_deleted_only_after_confirmation() -> None:
    kept, one, two = (store_run(make_cases(1)) for _ in range(3))
    assert "2 runs with 2 results would be deleted; confirm it with --yes" in str(
        invoke_runs("delete", one, two).exception
    )
    assert list_ids() == [two, one, kept]
    assert isinstance(invoke_runs("delete", one, "nobody", "--yes").exception, NotFound)
    assert list_ids() == [two, one, kept]
    assert invoke_runs("delete", one, two, one, "--yes").stdout == "Deleted 2 runs with 2 results.\n"
    assert list_ids() == [kept]
    assert json.loads(invoke_runs("delete", kept, "--yes", "--json").stdout) == {"deleted": [kept]}
    assert list_ids() == []


def run_in_terminal(typed: bytes, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with a terminal as stdin, and type into it."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, typed)
        command = [sys.executable, "-m", "pramana", "runs", *arguments]
        return subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60, check=False)
    finally:
        os.close(ours)
        os.close(theirs)


def test_deleting_runs_at_a_terminal_asks_for_confirmation() -> None:
    made = store_run(make_cases(1))
    with closing(open_store(settings.database_url())) as store:
        store.runs.edit(made, RunEdit(name="nightly"))
    refused = run_in_terminal(b"n\n", "delete", made)
    assert f"{made}  nightly, 1 result\nDelete 1 run with 1 result? This cannot be undone. [y/N]:" in refused.stderr
    assert list_ids() == [made]
    assert run_in_terminal(b"y\n", "delete", made).stdout.strip() == "Deleted 1 run with 1 result."
    assert list_ids() == []


def test_a_running_run_is_not_deleted() -> None:
    other = store_run(make_cases(1))
    with closing(open_store(settings.database_url())) as store:
        made = store.runs.create(store.runs.read(other).plan, iter(make_cases(3))).id
        store.queue.claim(made, make_process_name())
        refused = invoke_runs("delete", other, made, "--yes").exception
        assert isinstance(refused, AlreadyRunning)
        assert str(refused) == f"run {made} is still running; cancel it or wait for its end, then delete it"
        assert set(list_ids()) == {other, made}
