"""Export formats: built-in and installed ones, found by name and by file ending."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pramana
from pramana.errors import BrokenPlugin, InvalidInput, NotFound
from pramana.plugins import exporters
from pramana.report import export
from pramana.report.exporters import Exporter, exporter, find_exporter, find_exporter_for_path
from pramana.report.exports import FORMATS


def test_every_registered_format_is_documented_and_has_its_own_ending() -> None:
    assert sorted(exporters.builtin) == sorted(FORMATS)
    endings = {name: find_exporter(name).ending for name in FORMATS}
    assert len(set(endings.values())) == len(FORMATS)
    assert {name: find_exporter_for_path(Path(f"a{ending}")).name for name, ending in endings.items()} == {
        n: n for n in FORMATS
    }


@exporter("ids", ending=".IDS")
def export_ids(run: pramana.Run, results: Iterator[pramana.Result], out: io.StringIO) -> None:
    out.write(f"{run.plan.suite}\n")
    out.writelines(f"{each.seq} {each.case.turns[-1].text} {each.outcome}\n" for each in results)


@exporter("bytes", ending=".bin", binary=True)
def export_bytes(_: pramana.Run, results: Iterator[pramana.Result], out: io.BytesIO) -> None:
    out.write(b"\x00\xff" + bytes(len(list(results))))


@exporter("broken", ending=".broken")
def export_and_fail(_: pramana.Run, results: Iterator[pramana.Result], out: io.StringIO) -> None:
    out.write(next(results).no_such_field)  # type: ignore[attr-defined]


@pytest.fixture(name="report")
def _report(monkeypatch: pytest.MonkeyPatch) -> pramana.Report:
    for each in (export_ids, export_bytes, export_and_fail):
        monkeypatch.setitem(exporters._loaded, each.name, each)
        monkeypatch.setitem(exporters._installed_entry_points, each.name, each)
    return pramana.evaluate([{"input": "Yes?"}, {"input": "No?", "ideal": "no"}], model=str.lower, concurrency=1)


def test_an_exporter_function_writes_the_public_results_of_a_run(report: pramana.Report, tmp_path: Path) -> None:
    assert export_ids.ending == ".ids"
    assert report.save(tmp_path / "a.ids").read_text(encoding="utf-8") == "cases\n1 Yes? unscored\n2 No? passed\n"
    assert report.save(tmp_path / "a.txt", format="ids").read_bytes() == (tmp_path / "a.ids").read_bytes()
    assert report.save(tmp_path / "a.bin").read_bytes() == b"\x00\xff\x00\x00"


def test_a_failing_exporter_is_named_with_its_error(report: pramana.Report, tmp_path: Path) -> None:
    with pytest.raises(BrokenPlugin, match='the export format "broken" could not write the run: AttributeError'):
        report.save(tmp_path / "a.broken")


def test_an_export_file_is_replaced_only_by_a_complete_one(report: pramana.Report, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    old, link = folder / "old.txt", folder / "link.ids"
    old.write_text("the last report", encoding="utf-8")
    old.chmod(0o640)
    link.symlink_to(old)
    with pytest.raises(BrokenPlugin, match="could not write the run"):
        report.save(old, format="broken")
    assert old.read_text(encoding="utf-8") == "the last report"
    report.save(link)
    assert old.read_text(encoding="utf-8").startswith("cases\n")
    assert (link.is_symlink(), old.stat().st_mode & 0o777) == (True, 0o640)
    assert sorted(each.name for each in folder.iterdir()) == ["link.ids", "old.txt"]
    assert report.save(Path("/dev/null"), format="ids").is_char_device()
    with pytest.raises(InvalidInput, match=r"nowhere/a\.ids.* cannot be written: .*; create its folder first"):
        report.save(folder / "nowhere" / "a.ids")


@pytest.mark.parametrize(
    ("registered", "message"),
    [
        (len, 'the export format "mine" is a builtin_function_or_method, not an Exporter'),
        (export_ids, 'the export format registered as "mine" has the other name "ids"'),
    ],
)
def test_an_invalid_exporter_is_refused_by_name_and_skipped_by_ending(
    monkeypatch: pytest.MonkeyPatch, registered: Any, message: str
) -> None:
    monkeypatch.setitem(exporters._loaded, "mine", registered)
    monkeypatch.setitem(exporters._installed_entry_points, "mine", registered)
    with pytest.raises(BrokenPlugin, match=message):
        find_exporter("mine")
    with pytest.raises(
        InvalidInput,
        match=r'a.ids: unknown file ending "\.ids"; use \.html, \.md, \.json, \.jsonl, \.csv, \.parquet or \.xml$',
    ):
        find_exporter_for_path(Path("a.ids"))


def test_an_unknown_format_error_suggests_the_nearest_name(report: pramana.Report) -> None:
    with pytest.raises(NotFound, match='no export format is named "jsn"; did you mean "json"'):
        export("jsn", report.run, [], io.StringIO())
    with pytest.raises(InvalidInput, match=r"begins with a dot, such as"):
        exporter("sheet", ending="xlsx")
    assert isinstance(export_ids, Exporter)
