"""Scenario use cases without a front end: importing several documents, copies, and size limits."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pramana.app import App, RequestTooLarge
from pramana.app.access import Credential
from pramana.app.documents import Document, import_located_scenarios
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

OWN_ACCOUNT = Credential(is_from_server_account=True)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield App(store)


def make_document(*ids: str) -> str:
    entry = "    name: Test\n    type: task-completion\n    prompt: Hello\n    expected_outcome: Response\n"
    return "scenarios:\n" + "".join(f"  - id: {each}\n{entry}" for each in ids)


def import_all(app: App, *documents: Document, **given: Any) -> ImportedView:
    async def go() -> ImportedView:
        return await import_documents(app, OWN_ACCOUNT, documents, **given)

    return asyncio.run(go())


def list_ids(app: App) -> list[str]:
    async def go() -> list[str]:
        return [each.id for each in (await list_scenarios(app, OWN_ACCOUNT, ScenarioPage())).items]

    return asyncio.run(go())


def test_an_import_of_several_documents_is_atomic(app: App) -> None:
    both = Document("one.yaml", make_document("a", "b")), Document("two.yaml", make_document("c"))
    assert import_all(app, *both).imported == ("a", "b", "c")
    with pytest.raises(ScenarioIdsExist) as refused:
        import_all(
            app, Document("three.yaml", make_document("d")), Document("four.yaml", make_document("e", "b")), mode="fail"
        )
    assert [str(each) for each in refused.value.problems] == [
        'four.yaml:7:5: scenarios[1].id: id "b" already exists',
    ]
    assert list_ids(app) == ["a", "b", "c"]


def test_an_id_used_in_two_documents_is_refused(app: App) -> None:
    with pytest.raises(InvalidInput) as refused:
        import_all(
            app,
            Document("one.yaml", make_document("a")),
            Document("two.yaml", make_document("b", "a") + "    difficulty: no\n"),
        )
    assert [str(each) for each in refused.value.problems] == [
        'two.yaml:12:5: scenarios[1].difficulty: Invalid difficulty "no": expected easy, medium or hard',
    ]
    with pytest.raises(InvalidInput) as refused:
        import_all(app, Document("one.yaml", make_document("a")), Document("two.yaml", make_document("b", "a")))
    assert [str(each) for each in refused.value.problems] == [
        'two.yaml:7:5: scenarios[1].id: id "a" is also used at one.yaml:2; only one of them can be stored',
    ]
    assert list_ids(app) == []


def test_all_documents_together_must_fit_the_request_size_limit(app: App) -> None:
    app.set_preferences(app.store.preferences.write({"largest_body_mb": 1}))
    half = make_document("a") + f"    reference: {'ä' * (300 << 10)}\n"  # 600 KiB in UTF-8
    assert import_all(app, Document("one.yaml", half)).imported == ("a",)
    with pytest.raises(RequestTooLarge, match="a request may have at most 1 MB"):
        import_all(app, Document("one.yaml", half), Document("two.yaml", half.replace("id: a", "id: b")))

    async def check() -> None:
        await validate_document(app, OWN_ACCOUNT, half + half)

    with pytest.raises(RequestTooLarge):
        asyncio.run(check())


def test_a_scenario_with_the_longest_id_and_name_can_be_duplicated(app: App) -> None:
    import_all(app, Document("", make_document("x" * 1_000).replace("name: Test", f"name: {'n' * 255}")))

    async def copies() -> list[tuple[str, str]]:
        made = [await copy_scenario(app, OWN_ACCOUNT, "x" * 1_000) for _ in range(2)]
        return [(each.id, each.name) for each in made]

    name = f"{'n' * 248} (copy)"
    assert asyncio.run(copies()) == [(f"{'x' * 990}-copy", name), (f"{'x' * 990}-copy-2", name)]


def test_existing_ids_are_located_in_linear_time(app: App) -> None:
    def make_located_scenario(number: int) -> LocatedScenario:
        scenario = Scenario(id=f"scenario-{number}", name="n", type="task-completion", prompt="p", expected_outcome="o")
        key = cast("Any", SimpleNamespace(start_mark=SimpleNamespace(line=2 + 5 * number, column=4)))
        return LocatedScenario(scenario, f"scenarios[{number}]", 3 + 5 * number, {"id": key}, "many.yaml")

    every = [make_located_scenario(number) for number in range(20_000)]
    import_located_scenarios(app.store, every[19_900:], "skip")
    began = time.process_time()
    with pytest.raises(ScenarioIdsExist) as refused:
        import_located_scenarios(app.store, every, "fail")
    assert time.process_time() - began < 0.8
    assert [each.line for each in refused.value.problems] == [3 + 5 * number for number in range(19_900, 20_000)]
