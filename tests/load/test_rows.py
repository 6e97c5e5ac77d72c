"""Cases from Python: rows of data frames, and what is refused because no run could repeat it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import pramana
from pramana.errors import InvalidInput
from pramana.load.rows import read_rows


@pytest.mark.parametrize("empty", [None, float("nan"), np.float32("nan"), pd.NaT, pd.NA, np.datetime64("NaT", "s")])
def test_an_empty_cell_of_any_library_is_left_out(empty: object) -> None:
    (case,) = read_rows([{"input": "Hello", "ideal": empty, "language": empty}])
    assert (case.ideals, case.facets.language) == ((), None)


def test_numpy_numbers_and_arrays_become_python_values() -> None:
    rows = [
        {
            "input": np.str_("How many?"),
            "ideal": np.int64(3),
            "tokens_est": np.int32(7),
            "tags": np.array(["a", "b"]),
        },
        {"input": "Which?", "ideal": np.array(["one", "two"]), "tokens_est": np.array(4)},
    ]
    first, second = read_rows(rows)
    assert (first.ideals, first.tokens_est, first.facets.tags) == (("3",), 7, ("a", "b"))
    assert (second.ideals, second.tokens_est) == (("one", "two"), 4)
    assert type(first.tokens_est) is int


def test_a_data_frame_with_times_and_half_empty_columns_is_read() -> None:
    frame = pd.DataFrame(
        {"input": ["a", "b"], "ideal": ["1", pd.NaT], "tokens_est": pd.array([1, None], dtype="Int64")}
    )
    assert [(case.ideals, case.tokens_est) for case in read_rows(frame)] == [(("1",), 1), ((), None)]


@pytest.mark.parametrize("field", ["ideal", "tags"])
@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_is_refused_because_its_order_differs_between_processes(field: str, kind: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"found a set, which has no order; pass sorted\({field}\)") as refused:
        read_rows([{"input": "Which?", field: kind(["one", "two"])}])
    assert refused.value.problems[0].path == f"cases[0].{field}"


def answer_wrongly(prompt: str) -> str:
    return f"I do not know: {prompt}"


def test_cases_taken_from_results_keep_their_digests() -> None:
    cases = [pramana.Case("Name a capital.", ideal="Paris", tokens_est=9), pramana.Case("Name a river.", ideal="Seine")]
    report = pramana.evaluate(cases, models={"one": answer_wrongly, "two": answer_wrongly}, repeat=2)
    assert len(report.failures) == 8
    again = pramana.evaluate([each.case for each in report.failures], model=answer_wrongly)
    assert [each.case_digest for each in again.failures] == [each.case_digest for each in report.failures[:4:2]]
    (alone,) = pramana.evaluate(report.failures[0].case, model=answer_wrongly).failures
    assert alone.case_id == report.failures[0].case_id
    with pytest.raises(InvalidInput, match=r"cases\[1\]\.id: the id .* is also used by cases\[0\]"):
        read_rows([report.failures[0].case, pramana.Case("Another.", id=report.failures[0].case_id)])
