"""Every judged number says how far its judge agrees with people, in every front end."""

import asyncio
import html
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pramana as library
from pramana.app import App, Credential, runs
from pramana.app.judging import LabelRequest, draw_replies_to_label, save_labels
from pramana.show.cli import pramana
from pramana.store import open_store
from pramana.store.store import Store

from ..judged_runs import add_judged_run
from ..stores import home_store

CALIBRATED = "agrees with people 100 % ("


@pytest.fixture(name="store")
def _store() -> Iterator[Store]:
    with closing(open_store(home_store())) as store:
        yield store


def label_all(store: Store, run_id: str) -> None:
    run = store.runs.read(run_id)
    verdicts = {each.seq: each.checks[0].outcome.value for each in store.labels.iterate_checks(run)}
    requests = [
        LabelRequest(task=task, label="yes" if verdicts[int(task.partition(".")[0])] == "passed" else "no")
        for task in draw_replies_to_label(store, run, 40).tasks
    ]
    save_labels(store, run, requests, "ann")


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(pramana, [*arguments], standalone_mode=False)
    assert result.exception is None, result.output
    return " ".join(result.stdout.split())


def read_api_summary(store: Store, run_id: str) -> str:
    app = App(store)

    async def read() -> Any:
        return await runs.read_run(app, Credential(is_from_server_account=True), run_id)

    view = asyncio.run(read())
    return json.dumps(view.summary.as_data(), ensure_ascii=False)


def add_twin(store: Store, run_id: str) -> str:
    """Add a run with the same cases and verdicts; return its ID."""
    return add_judged_run(store, [True, False] * (store.runs.read(run_id).stored // 2)).id


READERS: dict[str, Callable[[Store, str], str]] = {
    "show": lambda _, run_id: invoke("show", run_id),
    "show --json": lambda _, run_id: invoke("show", run_id, "--json").encode().decode("unicode_escape"),
    "json": lambda _, run_id: invoke("export", run_id).encode().decode("unicode_escape"),
    "csv": lambda _, run_id: invoke("export", run_id, "--format", "csv"),
    "jsonl": lambda _, run_id: invoke("export", run_id, "--format", "jsonl").encode().decode("unicode_escape"),
    "junit": lambda _, run_id: invoke("export", run_id, "--format", "junit"),
    "markdown": lambda _, run_id: html.unescape(invoke("export", run_id, "--format", "markdown")),
    "html": lambda _, run_id: invoke("export", run_id, "--format", "html"),
    "library": lambda _, run_id: library.load_report(run_id).summary.judged_by,
    "str": lambda _, run_id: str(library.load_report(run_id)),
    "notebook": lambda _, run_id: html.unescape(library.load_report(run_id)._repr_html_()),
    "records": lambda _, run_id: str(library.load_report(run_id).to_records()[0]["judge_calibration"]),
    "api": read_api_summary,
    "compare": lambda store, run_id: invoke("compare", run_id, add_twin(store, run_id)),
    "compare --json": lambda store, run_id: "; ".join(
        json.loads(invoke("compare", run_id, add_twin(store, run_id), "--json"))["judges"]
    ),
    "compare in Python": lambda store, run_id: "; ".join(library.compare(run_id, add_twin(store, run_id)).judges),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_judged_number_says_how_far_its_judge_agrees_with_people(store: Store, reader: str) -> None:
    run_id = add_judged_run(store, [True, False] * 20).id
    assert "uncalibrated" in READERS[reader](store, run_id)
    label_all(store, run_id)
    shown = READERS[reader](store, run_id)
    assert CALIBRATED in shown
    assert "uncalibrated" not in shown
    other = add_judged_run(store, [True, False] * 2).id
    assert "40 labels of other runs" in READERS[reader](store, other)


def test_a_new_label_reaches_a_summary_that_was_cached(store: Store) -> None:
    app, run_id = App(store), add_judged_run(store, [True, False] * 20).id

    async def read() -> str:
        view = await runs.read_run(app, Credential(is_from_server_account=True), run_id)
        assert view.summary
        return view.summary.judged_by

    assert asyncio.run(read()) == "Judged by openai:gpt-5, uncalibrated."
    label_all(store, run_id)
    assert CALIBRATED in asyncio.run(read())


def test_a_run_without_a_judge_says_nothing_of_calibration(tmp_path: Path) -> None:
    report = library.evaluate([{"input": "Say yes.", "ideal": "yes"}], model="fake:fixed=yes")
    assert report.summary.calibrations == ()
    assert "calibrated" not in invoke("show", report.run_id)
    assert tmp_path.exists()
