"""The example notebook, executed by a real Jupyter kernel."""

import re
from pathlib import Path
from typing import Any

import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode, reads

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "tutorial.ipynb"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run the notebook in; Jupyter keeps its own files there too."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    return tmp_path


def read_notebook() -> NotebookNode:
    found: NotebookNode = reads(NOTEBOOK.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    return found


def find_outputs(cell: Any, kind: str) -> list[Any]:
    return [each for each in cell.outputs if each.output_type == kind]


def join_printed_text(cell: Any) -> str:
    return "".join(each.text for each in find_outputs(cell, "stream"))


def test_the_notebook_is_stored_without_outputs() -> None:
    for cell in read_notebook().cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_the_notebook_shows_progress_reports_failures_and_the_comparison(folder: Path) -> None:
    notebook = read_notebook()
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(folder)}}).execute()
    cells = {cell.id: cell for cell in notebook.cells}

    for name in ("evaluate", "frame", "compare"):
        (bar,) = find_outputs(cells[name], "display_data")
        assert "<progress" in bar.data["text/html"]
        assert all(each.name == "stdout" for each in find_outputs(cells[name], "stream"))
    (bar,) = find_outputs(cells["evaluate"], "display_data")
    assert '<progress value="3" max="3">' in bar.data["text/html"]
    assert "3 of 3 2 passed, 1 failed" in bar.data["text/html"]

    (shown,) = find_outputs(cells["evaluate"], "execute_result")
    html = shown.data["text/html"]
    for said in ("2 of 3", "66.7 %", "1 failed", "opening", "I do not know.", "does not contain"):
        assert said in html
    assert shown.data["text/plain"].startswith("<Report of run ")

    assert join_printed_text(cells["failures"]) == (
        "opening: 'When do you open on Saturday?'\n  reply:  'I do not know.'\n  reason: does not contain \"10 am\"\n"
    )
    assert join_printed_text(cells["frame"]) == "0% passed (95 % interval 0% to 46%)\n"
    sentence, gained = join_printed_text(cells["compare"]).splitlines()
    assert sentence == (
        "Improvement between these two runs: of 6 cases, none that passed before fails now; 6 that failed before pass now."
    )
    assert len(re.findall("opening-", gained)) == 6
    (table,) = find_outputs(cells["pandas"], "execute_result")
    assert table.data["text/html"].count("<td>passed</td>") == 6
    assert "We open at 9 am." in table.data["text/html"]
    assert "better_bot" in (folder / "report.html").read_text(encoding="utf-8").replace("<wbr />", "")
