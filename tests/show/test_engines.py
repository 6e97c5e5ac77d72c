"""Runs of embedded models on two engines: compared, shown, exported and read back; also old runs without a record."""

import asyncio
import io
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from msgspec import structs

from pramana import settings
from pramana.analyse.summary import ResultTally
from pramana.app.comparisons import ComparisonView, EngineChangeView
from pramana.app.views import RunDetailView
from pramana.embedded.engines import EngineInfo
from pramana.hash import hash_case
from pramana.load.results import read_results
from pramana.model import Assertion, Case, Check, Facets, Outcome, Plan, Reply, Result, ResultKey, Target, Turn
from pramana.report import export, run_summary
from pramana.report.exports import make_results_schema
from pramana.show.cli import pramana
from pramana.show.web.pages import comparison_markup
from pramana.store import open_store

from ..views import make_view

OLD = "xllamacpp 2026.10; SmolLM2 Q4_1 sha256:b179c952…"
ENGINE_A, ENGINE_B = f"{OLD}; AVX AVX2 FMA; 1 thread", f"{OLD}; AVX AVX2 AVX512 FMA; 1 thread"
LINE = "Engine: SmolLM2 Q4_1 on xllamacpp 2026.10 (AVX2, 1 thread)"
DIFFERENT = (
    "Different engines: SmolLM2 Q4_1 previously ran on xllamacpp 2026.10 (AVX2, 1 thread), now on xllamacpp 2026.10 (AVX-512, "
    "1 thread). Embedded models round differently on different processors, so results can differ although the model "
    "has not changed."
)
CASE = Case("a-1", "test_case", (Turn("user", "Hi?"),), Facets("factual", "easy"), Assertion("contains"), ("x",))


def store_run(*fingerprints: str | None, provider: str = "local") -> str:
    """Store a run of one case, with a repeat for each fingerprint."""
    plan = Plan("mine", None, (Target("local", provider, "SmolLM2"),), len(fingerprints), runner_version="0.1.0")
    checks = (Check("contains", "1", Outcome.PASSED, "because"),)

    async def write(run_id: str) -> None:
        async with store.results.make_writer(run_id, lambda _: None) as writer:
            await writer.put([result(repeat, each) for repeat, each in enumerate(fingerprints)])

    def result(repeat: int, fingerprint: str | None) -> Result:
        reply = Reply("x", fingerprint=fingerprint, total_s=0.1)
        return Result(ResultKey(hash_case(CASE), "local", "text", repeat), CASE.id, reply, None, checks, None, None)

    with closing(open_store(settings.database_url())) as store:
        run = store.runs.create(plan, iter([CASE]))
        asyncio.run(write(run.id))
        store.queue.finish(run.id, None, "finished")
    return run.id


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(pramana, list(arguments), standalone_mode=False)
    assert done.exception is None, done.exception
    return done.stdout


def export_text(run_id: str, kind: Any) -> str:
    out = io.StringIO()
    with closing(open_store(settings.database_url())) as store:
        export(kind, store.runs.find(run_id), store.results.iterate_with_cases(run_id), out)
    return out.getvalue()


def save_results(run_id: str, path: Path, *, old: bool = False) -> str:
    """Write a run as results.json; a file of an old version has no engines."""
    blocks = json.loads(export_text(run_id, "json"))
    for block in blocks if old else ():
        del block["run_metadata"]["engines"]
    path.write_text(json.dumps(blocks), encoding="utf-8")
    return str(path)


def test_two_runs_on_different_engines_are_reported(tmp_path: Path) -> None:
    here, there = store_run(ENGINE_A), store_run(ENGINE_B)
    assert DIFFERENT in " ".join(invoke("compare", here, there).split())
    found = json.loads(invoke("compare", here, there, "--json"))
    (change,) = found["engine_changes"]
    assert (change["sentence"], change["model"]) == (DIFFERENT, "SmolLM2 Q4_1")
    assert change["base"] == [
        {
            "engine": "xllamacpp",
            "version": "2026.10",
            "model": "SmolLM2 Q4_1",
            "weights": "sha256:b179c952…",
            "processor": ["AVX", "AVX2", "FMA"],
            "threads": 1,
            "label": "xllamacpp 2026.10 (AVX2, 1 thread)",
        }
    ]
    files = save_results(here, tmp_path / "here.json"), save_results(there, tmp_path / "there.json")
    assert json.loads(invoke("compare", *files, "--json"))["engine_changes"] == found["engine_changes"]
    assert json.loads(invoke("compare", here, files[1], "--json"))["engine_changes"] == found["engine_changes"]


def test_the_engine_changes_neither_the_verdict_nor_the_exit_code() -> None:
    here, again, there = store_run(ENGINE_A), store_run(ENGINE_A), store_run(ENGINE_B)
    same, other = (json.loads(invoke("compare", here, each, "--json")) for each in (again, there))
    assert same.pop("engine_changes") == []
    assert len(other.pop("engine_changes")) == 1
    assert same.pop("heading") != other.pop("heading")
    for each in (*same["measured"], *other["measured"]):
        each.clear()
    assert same == other


def test_runs_on_the_same_engine_or_on_vendors_are_not_reported() -> None:
    for base, new in (
        (store_run(ENGINE_A), store_run(ENGINE_A)),
        (store_run(OLD), store_run(OLD)),
        (store_run(None), store_run(None)),
        (store_run("fp_1", provider="openai"), store_run("fp_2", provider="openai")),
        (store_run(ENGINE_A), store_run("fp_2", provider="openai")),
    ):
        assert json.loads(invoke("compare", base, new, "--json"))["engine_changes"] == []
        assert "ngine" not in invoke("compare", base, new)


@pytest.mark.parametrize("old", [OLD, None])
def test_an_old_run_without_an_engine_differs_from_one_with_an_engine(old: str | None) -> None:
    before, now = store_run(old), store_run(ENGINE_A)
    for base, new in ((before, now), (now, before)):
        (change,) = json.loads(invoke("compare", base, new, "--json"))["engine_changes"]
        assert change["sentence"].startswith("Engines not known to be the same: SmolLM2 Q4_1 previously ran on ")
        assert "not recorded" in change["sentence"]


def test_an_old_file_without_engines_differs_from_a_run_with_them(tmp_path: Path) -> None:
    run = store_run(ENGINE_A)
    (change,) = json.loads(invoke("compare", save_results(run, tmp_path / "old.json", old=True), run, "--json"))[
        "engine_changes"
    ]
    assert change["base"] == []
    assert "previously ran on an engine that was not recorded, now on" in change["sentence"]


def test_every_format_shows_the_engine_of_a_run_once() -> None:
    run = store_run(ENGINE_A, ENGINE_A)
    assert invoke("show", run).count("Engine: ") == 1
    assert LINE in " ".join(invoke("show", run).split())
    (found,) = json.loads(invoke("show", run, "--json"))["engines"]
    assert (found["engine"], found["processor"], found["threads"]) == ("xllamacpp", ["AVX", "AVX2", "FMA"], 1)
    for kind in ("markdown", "html"):
        plain = re.sub(r"<[^>]+>|\\|&#?\w+;", "", export_text(run, kind))
        assert plain.count("Engine: SmolLM2") == 1, plain
    (block,) = json.loads(export_text(run, "json"))
    assert block["run_metadata"]["engines"] == [ENGINE_A]


def test_a_run_without_an_embedded_engine_shows_none() -> None:
    run = store_run("fp_1", provider="openai")
    assert "Engine" not in invoke("show", run)
    assert json.loads(invoke("show", run, "--json"))["engines"] == []
    assert "engines" not in json.loads(export_text(run, "json"))[0]["run_metadata"]
    assert "Engine" not in export_text(run, "markdown")


def test_a_run_resumed_on_another_machine_shows_both_engines() -> None:
    shown = " ".join(invoke("show", store_run(ENGINE_A, ENGINE_B)).split())
    there, here = (f"SmolLM2 Q4_1 on xllamacpp 2026.10 ({each}, 1 thread)" for each in ("AVX-512", "AVX2"))
    assert f"Engines: {there}; {here}" in shown


def test_engines_round_trip_through_results_json_and_are_in_its_schema(tmp_path: Path) -> None:
    path = Path(save_results(store_run(ENGINE_A), tmp_path / "r.json"))
    jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), make_results_schema())
    (block,) = read_results(path)
    assert (block.provider, block.engines) == ("local", (ENGINE_A,))
    (old,) = read_results(save_results(store_run(ENGINE_A), tmp_path / "old.json", old=True))
    assert old.engines == ()


def test_html_pages_show_the_engine_escaped() -> None:
    change = make_view(EngineChangeView, sentence="Different engines: <b>m</b> ran on …")
    drawn = str(comparison_markup.render_engine_changes(make_view(ComparisonView, engine_changes=(change,))))
    assert "Different engines: &lt;b&gt;m&lt;/b&gt;" in drawn
    assert str(comparison_markup.render_engine_changes(make_view(ComparisonView))) == ""
    engine = EngineInfo("xllamacpp", "1", "<i>", "sha256:1", ("AVX2",), 1)
    summary = structs.replace(ResultTally().summary(), engines=(engine,))
    (note,) = run_summary._render_notes(make_view(RunDetailView, status="finished"), summary)
    assert "Engine: &lt;i&gt; on xllamacpp 1 (AVX2, 1 thread)" in str(note)
