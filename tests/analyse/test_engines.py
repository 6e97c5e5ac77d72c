"""Differences between the engines of two runs, described without claiming more than is known."""

import pytest
from msgspec.structs import replace

from pramana.analyse.engines import find_engine_differences, iterate_recorded_engine_lines, parse_distinct_engines
from pramana.embedded.engines import EngineInfo
from pramana.model import Check, Outcome

SMOL = EngineInfo("xllamacpp", "2026.10", "SmolLM2", "sha256:b179c952…", ("AVX", "AVX2"), 1)
WHISPER = EngineInfo("ctranslate2", "4.8.4", "whisper", "w==1", ("AVX2",), 1)
OLD = replace(SMOL, processor_features=(), threads=0)
WIDE = replace(SMOL, processor_features=("AVX", "AVX2", "AVX512"))
UNCHANGED = ", so results can differ although the model has not changed."


def describe_change(base: EngineInfo, new: EngineInfo) -> str:
    (found,) = find_engine_differences([base], [new])
    return found.sentence


def test_identical_engines_are_no_change() -> None:
    assert find_engine_differences([SMOL, WHISPER], [WHISPER, SMOL]) == ()
    assert find_engine_differences([OLD], [OLD], both_embedded=True) == ()
    assert find_engine_differences([], [], both_embedded=True) == ()


def test_another_processor_is_described_in_plain_words() -> None:
    assert describe_change(SMOL, WIDE) == (
        "Different engines: SmolLM2 previously ran on xllamacpp 2026.10 (AVX2, 1 thread), now on xllamacpp 2026.10 (AVX-512, "
        f"1 thread). Embedded models round differently on different processors{UNCHANGED}"
    )


def test_processor_features_with_equal_labels_are_listed_in_full() -> None:
    found = describe_change(SMOL, replace(SMOL, processor_features=("AVX", "AVX2", "FMA")))
    assert "(AVX AVX2, 1 thread), weights sha256:b179c952…, now on xllamacpp 2026.10 (AVX AVX2 FMA, 1" in found


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (replace(SMOL, version="2026.11"), f"A different engine or version may round differently{UNCHANGED}"),
        (replace(SMOL, name="other"), f"A different engine or version may round differently{UNCHANGED}"),
        (replace(SMOL, threads=2), f"changes timings, and may change the rounding{UNCHANGED}"),
        (replace(SMOL, weights="sha256:00000000…"), "It is not the same model."),
    ],
)
def test_each_kind_of_difference_has_its_own_wording(other: EngineInfo, why: str) -> None:
    assert describe_change(SMOL, other).endswith(why)


def test_different_weights_are_a_different_model_whatever_else_differs() -> None:
    found = describe_change(SMOL, replace(WIDE, weights="sha256:00000000…"))
    assert found.startswith("Different weights: ")
    assert "sha256:b179c952…" in found
    assert "sha256:00000000…" in found
    assert "has not changed" not in found


def test_a_different_quantisation_counts_as_different_weights() -> None:
    coarse = replace(SMOL, model="SmolLM2 Q4_1")
    fine = replace(SMOL, model="SmolLM2 Q8_0", weights="sha256:aaaa…")
    (found,) = find_engine_differences([coarse], [fine])
    assert found.sentence.startswith("Different weights: SmolLM2 was ")


def test_fields_recorded_on_one_side_only_are_reported_as_not_recorded() -> None:
    assert describe_change(OLD, SMOL) == (
        "Engines not known to be the same: SmolLM2 previously ran on xllamacpp 2026.10 (processor and threads not recorded), "
        "now on xllamacpp 2026.10 (AVX2, 1 thread). Results can differ although the model has not changed."
    )
    (found,) = find_engine_differences([], [WHISPER], both_embedded=True)
    assert "whisper previously ran on an engine that was not recorded, now on ctranslate2" in found.sentence
    assert not found.are_engines_recorded


def test_a_model_used_on_one_side_only_is_no_engine_change() -> None:
    assert find_engine_differences([SMOL], [SMOL, WHISPER], both_embedded=True) == ()
    assert find_engine_differences([], [WHISPER]) == ()


def test_a_run_resumed_on_another_machine_names_both_engines() -> None:
    (found,) = find_engine_differences([SMOL, WIDE], [SMOL])
    assert (
        "(AVX2, 1 thread) and xllamacpp 2026.10 (AVX-512, 1 thread), now on xllamacpp 2026.10 (AVX2" in found.sentence
    )


def test_engine_lines_come_from_replies_and_calls_only() -> None:
    heard, embedded = (
        Check(name, "1", Outcome.PASSED, "", evidence={"engine": str(each)})
        for name, each in (("call", WHISPER), ("semantic_similarity", SMOL))
    )
    odd = Check("call", "1", Outcome.PASSED, "", evidence={"engine": {"name": "x"}})
    assert list(iterate_recorded_engine_lines(str(SMOL), [heard, embedded, odd])) == [str(SMOL), str(WHISPER)]
    assert list(iterate_recorded_engine_lines("fp_1", [])) == list(iterate_recorded_engine_lines(None, [])) == []
    assert parse_distinct_engines([str(SMOL), str(WHISPER), str(SMOL)]) == (WHISPER, SMOL)
