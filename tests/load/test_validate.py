"""Validation of files and folders: all problems, in order, once."""

import time
from pathlib import Path

import pytest

from pramana import load
from pramana.errors import InvalidInput, NotFound
from pramana.load import cases_of, find_case_files, validate
from pramana.load.manifest import BUILT_IN_SUITES_FOLDER
from pramana.load.scenario import read_bounded_file

SCENARIO = """\
id: {id}
name: A name
type: task-completion
prompt: Say hello
expected_outcome: Greets the caller and asks what is wanted
"""
CASE = (
    '{"id": "coding-001", "category": "coding", "input": "x", "ideal": "y", "assertion": {"type": "contains"},'
    ' "metadata": {"difficulty": "easy", "tokens_est": 2}}\n'
)


def write_files(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_folders_are_searched_recursively_in_order(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        b_dot_yaml=SCENARIO.format(id="b-b"),
        a__z_dot_yml=SCENARIO.format(id="a-z"),
        a__deep__c_dot_jsonl=CASE,
        note_dot_txt="no",
        _dot_hidden__x_dot_yaml="no",
    )
    found = [path.relative_to(tmp_path).as_posix() for path in find_case_files([tmp_path])]
    assert found == ["b.yaml", "a/z.yml", "a/deep/c.jsonl"]
    report = validate([tmp_path, tmp_path / "b.yaml"])
    assert report.ok
    assert (report.files, report.scenarios, report.test_cases) == (3, 2, 1)
    assert list(report.hashes) == [str(tmp_path / "a" / "deep" / "c.jsonl")]


def test_circular_links_are_followed_once(tmp_path: Path) -> None:
    write_files(tmp_path, a__b_dot_yaml=SCENARIO.format(id="b-b"))
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    (tmp_path / "a" / "same.yaml").symlink_to(tmp_path / "a" / "b.yaml")
    (tmp_path / "a" / "gone.yaml").symlink_to(tmp_path / "nowhere")
    assert validate([tmp_path]).files == 1


def test_missing_and_unsupported_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        validate([tmp_path / "x.yaml"])
    with pytest.raises(NotFound, match="contains no"):
        validate([tmp_path])
    (tmp_path / "a.txt").touch()
    with pytest.raises(InvalidInput, match="neither a suite"):
        validate([tmp_path / "a.txt"])
    with pytest.raises(InvalidInput, match="neither a file nor a folder"):
        validate(["/dev/null"])


def test_an_unreadable_file_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, a_dot_yaml=SCENARIO.format(id="a-a"), b_dot_yaml=SCENARIO.format(id="b-b"))

    def read(path: Path) -> bytes:
        if path.name == "a.yaml":
            raise PermissionError(13, "Permission denied", str(path))
        return read_bounded_file(path)

    monkeypatch.setattr("pramana.load.read_bounded_file", read)
    report = validate([tmp_path])
    assert [each.message for each in report.problems] == ["cannot be read: Permission denied"]
    assert report.scenarios == 1


def test_an_id_in_two_files_is_a_warning(tmp_path: Path) -> None:
    write_files(tmp_path, a_dot_yaml=SCENARIO.format(id="same"), b_dot_yaml=SCENARIO.format(id="same"))
    report = validate([tmp_path])
    assert report.ok
    assert [(each.severity, each.path, each.line) for each in report.problems] == [("warning", "id", 1)]
    assert f"{tmp_path / 'a.yaml'}:1" in report.problems.kept[0].message


def test_problems_are_in_file_order(tmp_path: Path) -> None:
    write_files(tmp_path, a_dot_yaml="prompt: p\nid: A\nunknown: x\ntype: y\n")
    lines = [each.line for each in validate([tmp_path]).problems]
    assert lines == sorted(lines) == [1, 1, 2, 3, 4]


def test_lint_warns_and_never_fails(tmp_path: Path) -> None:
    vague = SCENARIO.format(id="test1").replace("Greets the caller and asks what is wanted", "Greeting")
    write_files(tmp_path, a_dot_yaml=vague + "tags: [booking, 'domain:travel', 'task:x', urgent]\n")
    assert list(validate([tmp_path]).problems) == []
    report = validate([tmp_path], lint=True)
    assert report.ok
    assert [(each.path, each.line, each.column, each.severity) for each in report.problems] == [
        ("id", 1, 1, "warning"),
        ("expected_outcome", 5, 1, "warning"),
        ("tags", 6, 1, "warning"),
    ]
    assert [each.source.partition(":")[0] for each in report.problems] == ["id", "expected_outcome", "tags"]


@pytest.mark.parametrize(
    ("name", "vague"),
    [
        ("test1", True), ("test-2", True), ("my-scenario", True), ("x", True), ("123", True), ("example-case-3", True),
        ("new-test", True), ("booking-flight-oneway", False), ("test-drive-booking", False), ("contest-rules", False),
        ("sample-return-label", False), ("wifi", False),
    ],
)  # fmt: skip
def test_vague_ids_are_recognised(tmp_path: Path, name: str, *, vague: bool) -> None:
    write_files(tmp_path, a_dot_yaml=SCENARIO.format(id=name))
    warned = [each.path for each in validate([tmp_path], lint=True).problems]
    assert warned == (["id"] if vague else [])


def test_lint_is_fast_for_any_id(tmp_path: Path) -> None:
    start = time.process_time()
    for name in ("1" * 5000 + "-booking", "x" * 5000 + "-booking", "test-" * 2000 + "booking"):
        write_files(tmp_path, a_dot_yaml=SCENARIO.format(id=name))
        assert [each.path for each in validate([tmp_path], lint=True).problems] == []
    assert time.process_time() - start < 2


def test_cases_of_a_suite_are_returned_only_if_all_are_valid(tmp_path: Path) -> None:
    write_files(tmp_path, a_dot_jsonl=CASE + CASE + "{}\n", b_dot_jsonl="", c_dot_py="x = 1\n")
    with pytest.raises(InvalidInput, match=r"\(and 5 more\)") as caught:
        next(cases_of(tmp_path / "a.jsonl"))
    assert [each.line for each in caught.value.problems] == [2, 3, 3, 3, 3, 3]
    with pytest.raises(InvalidInput, match="the file is empty"):
        next(cases_of(tmp_path / "b.jsonl"))
    with pytest.raises(InvalidInput, match="neither a suite"):
        next(cases_of(tmp_path / "c.py"))


def test_cases_of_a_file_are_loaded(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        a_dot_yaml="scenarios:\n- " + SCENARIO.format(id="a-a").replace("\n", "\n  ").rstrip() + "\n",
        b_dot_jsonl=CASE,
    )
    (scenario,) = cases_of(tmp_path / "a.yaml")
    (case,) = cases_of(tmp_path / "b.jsonl")
    assert (scenario.kind, scenario.id, case.kind, case.id) == ("scenario", "a-a", "test_case", "coding-001")
    assert scenario.source is not None
    assert scenario.source.line == 2
    write_files(tmp_path, c_dot_yaml="id: A\n")
    with pytest.raises(InvalidInput, match=r"c.yaml:1:1.*\(and 4 more\)"):
        list(cases_of(tmp_path / "c.yaml"))


def test_built_in_files_are_valid_without_warnings() -> None:
    report = validate([BUILT_IN_SUITES_FOLDER, BUILT_IN_SUITES_FOLDER.parent / "scenarios"], lint=True)
    assert list(report.problems) == []
    assert report.test_cases == 110
    assert report.scenarios >= 120


def test_a_recording_is_found_from_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = "id: {0}\nname: N\ntype: task-completion\nprompt: Hello\nexpected_outcome: x\n"
    Path("typed.yaml").write_text(written.format("typed"))
    Path("recorded.yaml").write_text(written.format("recorded") + "prompt_audio_url: hello.wav\n")
    sources = [case.source for name in ("typed", "recorded") for case in cases_of(f"{name}.yaml")]
    assert [source and source.file for source in sources] == ["typed.yaml", str(tmp_path / "recorded.yaml")]


def test_the_built_in_scenarios_have_a_name() -> None:
    every = list(find_case_files(["library:"]))
    assert len(every) == 22
    assert [path.name for path in find_case_files(["library:task-completion/booking", "library:task-completion"])] == [
        "booking.yaml", "ordering.yaml", "settings.yaml",
    ]  # fmt: skip
    with pytest.raises(NotFound, match=r'no built-in scenarios are named "bookings"; there are .*task-completion'):
        list(find_case_files(["library:bookings"]))
    with pytest.raises(NotFound, match=r"scenarios does not exist; .*for the built-in scenarios, write library:"):
        list(find_case_files(["scenarios"]))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("nofile.jsonl", "check the path"),
        ("nowhere/scenarios", "check the path"),
        ("booking", "check the path; for the built-in scenarios, write library:"),
    ],
)
def test_a_missing_path_says_what_to_do(name: str, instead: str) -> None:
    with pytest.raises(NotFound) as caught:
        list(find_case_files([name]))
    assert str(caught.value) == f"{name} does not exist; {instead}"


def test_a_missing_recording_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "there.wav").write_bytes(b"x")
    text = SCENARIO + "prompt_audio_url: {}\nturns:\n  - say: x\n    audio_url: gone.wav\n"
    for name in ("lost", "there"):
        write_files(tmp_path, **{f"{name}_dot_yaml": text.format(f"{name}.wav", id=name)})
    found = validate(tmp_path)
    assert (found.ok, found.scenarios) == (True, 2)
    lost, of_a_turn, of_another = found.problems
    assert (lost.line, lost.path, lost.severity) == (6, "prompt_audio_url", "warning")
    assert f"the recording {tmp_path / 'lost.wav'}" in lost.message
    assert (of_a_turn.path, of_another.path, "gone.wav" in of_a_turn.message) == ("turns", "turns", True)


def test_an_agent_description_is_checked_as_an_agent(tmp_path: Path) -> None:
    ready = Path(load.__file__).parent.parent / "agents"
    assert (validate(ready).agents, validate(ready).ok) == (5, True)
    broken = (ready / "deepgram.yaml").read_text().replace("uplink:", "uplinks: 1\nuplink:")
    write_files(tmp_path, agent_dot_yaml=broken)
    found = validate(tmp_path)
    assert (found.agents, found.problems.errors, 'unknown key "uplinks"' in next(iter(found.problems)).message) == (
        0, 1, True,
    )  # fmt: skip
