"""A partly rescored run: paid replies are kept, the judge of each verdict is named, and no cost disappears."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pramana import settings
from pramana.bench import add_scoring_to_run, execute
from pramana.errors import BudgetSpent
from pramana.planning import create_run
from pramana.report.summary import summarise_run
from pramana.request import Limits, RunRequest
from pramana.store import open_store

from ..loopback.openai import OpenAIWire
from ..loopback.server import Loopback
from ..stores import home_store
from .test_run import parse_json, run_pramana


def write_suite(path: Path, count: int) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            case = {
                "id": f"creative-{number:03}",
                "category": ("creative", "factual")[number % 2],
                "input": f"Write line {number}.",
                "assertion": {"type": "llm_judge", "judge_prompt": "Is it a line?"},
                "metadata": {"difficulty": "easy", "tokens_est": 8},
            }
            file.write(json.dumps(case) + "\n")
    return path


YES, NO = "fake:fixed=YES", "fake:fixed=NO"


def test_a_partly_rescored_run_names_the_judges_of_its_verdicts(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "judged.jsonl", 10)
    assert run_pramana("run", suite, "--model", "fake:echo", "--judge", YES, "--quiet").returncode == 0
    before = parse_json(run_pramana("show", "--json"))
    assert before["mixed_judges"] == []
    assert "judges:" in (text := run_pramana("show").stdout)
    assert "several judges" not in text
    again = run_pramana("rescore", "--category", "factual", "--judge", NO)
    assert again.returncode == 0
    assert "several judges" not in again.stdout, "what was selected was judged by one"
    sentence = f"llm_judge: 5 of 10 verdicts by {NO}, 5 by {YES}; uncalibrated"
    shown = parse_json(run_pramana("show", "--json"))
    assert (shown["overall"]["pass_rate"], shown["mixed_judges"]) == (0.5, [sentence])
    assert sentence in " ".join(run_pramana("show").stdout.split())
    (block,) = parse_json(run_pramana("export"))
    assert block["summary"]["mixed_judges"] == [sentence]
    for kind in ("markdown", "html"):
        assert "The verdicts come from several judges" in run_pramana("export", "--format", kind).stdout
    assert shown["judge_tokens"]["total"] > before["judge_tokens"]["total"] > 0
    assert (before["judged_again"], shown["judged_again"]) == (0, 5)
    assert run_pramana("rescore", "--judge", NO).returncode == 0
    assert parse_json(run_pramana("show", "--json"))["mixed_judges"] == []


def test_a_rescoring_stopped_by_its_budget_reports_mixed_judges(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "judged.jsonl", 10)
    assert run_pramana("run", suite, "--model", "fake:echo", "--judge", YES, "--quiet").returncode == 0
    ended = run_pramana("rescore", "--judge", NO, "--max-total-tokens", "300", "--concurrency", "1")
    assert ended.returncode == 3
    assert "Ended early: replies that were not scored again keep their earlier verdicts." in ended.stderr
    (sentence,) = parse_json(run_pramana("show", "--json"))["mixed_judges"]
    assert f"by {YES}" in sentence
    assert f"by {NO}" in sentence


def test_cost_and_tokens_match_the_budget_and_never_decrease(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "judged.jsonl", 6)
    settings.data_folder().mkdir(parents=True, exist_ok=True)
    names = ("first", "second", "asked")
    prices = [f'[prices."compatible:{name}"]\ninput_per_million = 1000\noutput_per_million = 1000\n' for name in names]
    settings.prices_file_path().write_text("\n".join(prices), encoding="utf-8")
    spent: list[Any] = []

    async def go() -> None:
        store = open_store(home_store())
        async with Loopback(OpenAIWire("It is so.\nYES")) as server:
            url = server.url
            run = create_run(store, RunRequest(paths=(suite,), models=(f"{url}#asked",), judge=f"{url}#first"))
            ended = await execute(store, run, Limits(), lambda progress: spent.append(progress.budget))
            summary, stated = summarise_run(store, ended), store.results.sum_spending(run.id)
            replies = (summary.input_tokens.known + summary.output_tokens.known, summary.judge_tokens.known)
            assert sum(replies) == spent[-1].tokens == stated.tokens
            assert summary.cost_usd.known == pytest.approx(spent[-1].cost_usd) == pytest.approx(stated.cost_usd)
            assert (summary.cost_usd.unknown, summary.judge_cost_usd.known > 0) == (0, True)
            await add_scoring_to_run(store, ended, f"{url}#second", Limits())
            later = summarise_run(store, ended)
            assert later.judge_tokens.known == pytest.approx(2 * summary.judge_tokens.known)
            assert later.cost_usd.known == pytest.approx(summary.cost_usd.known + summary.judge_cost_usd.known)
            assert later.judged_again == 6
            with pytest.raises(BudgetSpent):
                await add_scoring_to_run(store, ended, f"{url}#third", Limits(concurrency=1, max_total_tokens=50))
            assert summarise_run(store, ended).judge_tokens.known > later.judge_tokens.known
        store.close()

    asyncio.run(go())
