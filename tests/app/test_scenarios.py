"""Scenarios through use cases, without any front end: documents together, copies, and what is too large."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pramana.app import App, TooLarge
from pramana.app.access import Credential
from pramana.app.documents import Document, import_located
from pramana.app.scenarios import (
    ImportedView,
    ScenarioPage,
    copy_scenario,
    import_documents,
    list_scenarios,
    validate_document,
)
from pramana.errors import InvalidInput
from pramana.load.scenario import LocatedScenario, Scenario
from pramana.store import open_store
from pramana.store.scenarios import ScenarioIdsExist

from ..stores import sqlite_store

OWN = Credential(own_account=True)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield App(store)


def document(*ids: str) -> str:
    entry = "    name: Test\n    type: task-completion\n    prompt: Hello\n    expected_outcome: Response\n"
    return "scenarios:\n" + "".join(f"  - id: {each}\n{entry}" for each in ids)


def imported(app: App, *documents: Document, **given: Any) -> ImportedView:
    async def go() -> ImportedView:
        return await import_documents(app, OWN, documents, **given)

    return asyncio.run(go())


def ids_of(app: App) -> list[str]:
    async def go() -> list[str]:
        return [each.id for each in (await list_scenarios(app, OWN, ScenarioPage())).items]

    return asyncio.run(go())


def test_documents_are_imported_together_or_not_at_all(app: App) -> None:
    both = Document("one.yaml", document("a", "b")), Document("two.yaml", document("c"))
    assert imported(app, *both).imported == ("a", "b", "c")
    with pytest.raises(ScenarioIdsExist) as refused:
        imported(app, Document("three.yaml", document("d")), Document("four.yaml", document("e", "b")), mode="fail")
    assert [str(each) for each in refused.value.problems] == [
        'four.yaml:7:5: scenarios[1].id: id "b" already exists',
    ]
    assert ids_of(app) == ["a", "b", "c"]


def test_an_id_stands_once_in_all_documents(app: App) -> None:
    with pytest.raises(InvalidInput) as refused:
        imported(
            app, Document("one.yaml", document("a")), Document("two.yaml", document("b", "a") + "    difficulty: no\n")
        )
    assert [str(each) for each in refused.value.problems] == [
        'two.yaml:12:5: scenarios[1].difficulty: Invalid difficulty "no": expected easy, medium or hard',
    ]
    with pytest.raises(InvalidInput) as refused:
        imported(app, Document("one.yaml", document("a")), Document("two.yaml", document("b", "a")))
    assert [str(each) for each in refused.value.problems] == [
        'two.yaml:7:5: scenarios[1].id: id "a" is also used at one.yaml:2; only one of them can be stored',
    ]
    assert ids_of(app) == []


def test_documents_may_not_be_larger_together_than_one_request(app: App) -> None:
    app.set_preferences(app.store.preferences.write({"largest_body_mb": 1}))
    half = document("a") + f"    reference: {'ä' * (300 << 10)}\n"  # 600 KiB in UTF-8
    assert imported(app, Document("one.yaml", half)).imported == ("a",)
    with pytest.raises(TooLarge, match="a request may have at most 1 MB"):
        imported(app, Document("one.yaml", half), Document("two.yaml", half.replace("id: a", "id: b")))

    async def check() -> None:
        await validate_document(app, OWN, half + half)

    with pytest.raises(TooLarge):
        asyncio.run(check())


def test_a_copy_of_the_longest_id_and_name_can_be_kept(app: App) -> None:
    imported(app, Document("", document("x" * 1_000).replace("name: Test", f"name: {'n' * 255}")))

    async def copies() -> list[tuple[str, str]]:
        made = [await copy_scenario(app, OWN, "x" * 1_000) for _ in range(2)]
        return [(each.id, each.name) for each in made]

    name = f"{'n' * 248} (copy)"
    assert asyncio.run(copies()) == [(f"{'x' * 990}-copy", name), (f"{'x' * 990}-copy-2", name)]


def test_what_is_here_already_is_placed_without_comparing_all_scenarios(app: App) -> None:
    def placed(number: int) -> LocatedScenario:
        scenario = Scenario(id=f"scenario-{number}", name="n", type="task-completion", prompt="p", expected_outcome="o")
        key = cast("Any", SimpleNamespace(start_mark=SimpleNamespace(line=2 + 5 * number, column=4)))
        return LocatedScenario(scenario, f"scenarios[{number}]", 3 + 5 * number, {"id": key}, "many.yaml")

    every = [placed(number) for number in range(20_000)]
    import_located(app.store, every[19_900:], "skip")
    began = time.process_time()
    with pytest.raises(ScenarioIdsExist) as refused:
        import_located(app.store, every, "fail")
    assert time.process_time() - began < 0.8
    assert [each.line for each in refused.value.problems] == [3 + 5 * number for number in range(19_900, 20_000)]
