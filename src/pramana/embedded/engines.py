"""The engine of an embedded model as one line that is stored with each reply, written and parsed here only.

Floating-point results differ between processor instructions, and a rounding can change a word. So every reply of an
embedded model records the engine and its version, the weights, the processor features that the engine uses, and its
threads. The line has one fixed form (`str(info)` and `parse_engines`). It never holds a path, a host name or a key.
Lines of older versions have neither processor nor threads, which are then "not recorded".
"""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct

from pramana.audio.faults import explain_missing_library
from pramana.errors import EngineMissing
from pramana.installation import make_install_command

NOT_RECORDED = "processor and threads not recorded"
_ENGINE_SEPARATOR = " | "
"""Separates the engines of one reply: an agent has several."""
_ENGINE_RE = re.compile(
    r"(?P<name>[\w.+-]+) (?P<version>[\w.+-]+); (?P<model>[^;|]+?) (?P<weights>sha256:[0-9a-f]{8}…|[\w.+-]+==[\w.+-]+)"
    r"(?:; (?P<processor>[\w.+ -]+); (?P<threads>\d{1,6}) threads?)?"
)
_IGNORED_FEATURES = frozenset({"OPENMP", "BMI2"})
"""Entries of llama.cpp's list other than the features it computes with."""
_NUMPY_FEATURE_NAMES = {
    "SSE3": "SSE3",
    "AVX": "AVX",
    "F16C": "F16C",
    "FMA3": "FMA",
    "AVX2": "AVX2",
    "AVX512F": "AVX512",
    "AVX512VNNI": "AVX512_VNNI",
    "NEON": "NEON",
    "ASIMDHP": "FP16_VA",
    "ASIMDDP": "DOTPROD",
    "SVE": "SVE",
    "VSX": "VSX",
    "RVV": "RISCV_V",
}
"""numpy's processor features by llama.cpp's names; no other feature changes a result here."""
_FEATURES_BY_WIDTH = ("AVX512", "AVX2", "AVX", "SSE3", "SVE", "NEON", "VSX", "RISCV_V", "WASM_SIMD")
_FEATURE_LABELS = {"AVX512": "AVX-512", "RISCV_V": "RISC-V vectors", "WASM_SIMD": "WebAssembly SIMD"}


class EngineInfo(Struct, frozen=True, order=True):
    """An engine, and what it used to compute a model.

    >>> info = EngineInfo("xllamacpp", "2026.10", "SmolLM2", "sha256:b179c952…", ("AVX", "AVX2", "FMA"), 1)
    >>> str(info)
    'xllamacpp 2026.10; SmolLM2 sha256:b179c952…; AVX AVX2 FMA; 1 thread'
    >>> parse_engines(str(info)) == (info,)
    True
    >>> info.short_label
    'xllamacpp 2026.10 (AVX2, 1 thread)'
    """

    name: str
    version: str
    model: str
    """The model's name for display, without `;` or `|`."""
    weights: str
    """The beginning of the weights' digest, or their package: `sha256:b179c952…`, `whisper-models==1.0`."""
    processor_features: tuple[str, ...] = ()
    """Processor features in use, in alphabetical order; empty: not recorded."""
    threads: int = 0
    """0: not recorded."""

    def __str__(self) -> str:
        line = f"{self.name} {self.version}; {self.model} {self.weights}"
        return f"{line}; {' '.join(self.processor_features)}; {self._threads_label}" if self.is_complete else line

    @property
    def is_complete(self) -> bool:
        """Return whether processor and threads were recorded."""
        return bool(self.processor_features and self.threads)

    @property
    def short_label(self) -> str:
        """Return engine, version, instruction set and threads."""
        widest = next(
            (each for each in _FEATURES_BY_WIDTH if each in self.processor_features), " ".join(self.processor_features)
        )
        return self._format_label(_FEATURE_LABELS.get(widest, widest))

    @property
    def full_label(self) -> str:
        """Return the short label with the weights and every feature, to tell similar engines apart."""
        return f"{self._format_label(' '.join(self.processor_features))}, weights {self.weights}"

    def as_data(self) -> dict[str, Any]:
        """Return the engine as plain data; values not recorded are None."""
        return {
            "engine": self.name,
            "version": self.version,
            "model": self.model,
            "weights": self.weights,
            "processor": list(self.processor_features) or None,
            "threads": self.threads or None,
            "label": self.short_label,
        }

    @property
    def _threads_label(self) -> str:
        return f"{self.threads} thread{'' if self.threads == 1 else 's'}"

    def _format_label(self, features: str) -> str:
        return (
            f"{self.name} {self.version} ({f'{features}, {self._threads_label}' if self.is_complete else NOT_RECORDED})"
        )


def format_engines(engines: Iterable[EngineInfo]) -> str | None:
    """Return the line to store with a reply; None if there are no engines."""
    return _ENGINE_SEPARATOR.join(map(str, engines)) or None


@lru_cache(maxsize=256)
def parse_engines(line: str) -> tuple[EngineInfo, ...]:
    """Return the engines in a line; an empty tuple for anything else, such as a vendor's fingerprint.

    >>> parse_engines("fp_44709d6fcb"), parse_engines("xllamacpp 1.0; SmolLM2 sha256:b179c952…")[0].is_complete
    ((), False)
    """
    found = [_ENGINE_RE.fullmatch(each) for each in line.split(_ENGINE_SEPARATOR)] if len(line) < 2000 else []
    if not all(found):
        return ()
    return tuple(
        EngineInfo(
            each["name"],
            each["version"],
            each["model"],
            each["weights"],
            tuple((each["processor"] or "").split()),
            int(each["threads"] or 0),
        )
        for each in found
        if each
    )


# ── Processor features ──


def parse_llama_features(system_info: str) -> tuple[str, ...]:
    """Return the features that llama.cpp was built to use, from its own report.

    >>> parse_llama_features("CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 0 | OPENMP = 1 | ")
    ('AVX2', 'SSE3')
    """
    named = re.findall(r"(\w+) = ([1-9]\d*)", system_info)
    return tuple(sorted({name for name, _ in named} - _IGNORED_FEATURES)) or processor_features()


@cache
def processor_features() -> tuple[str, ...]:
    """Return the processor features that affect how engines compute; the architecture where they are unknown."""
    import platform

    try:
        from numpy._core._multiarray_umath import __cpu_features__ as found  # type: ignore[import-not-found]
    except ImportError:  # a different numpy, or none
        found = {}
    features = sorted({ours for theirs, ours in _NUMPY_FEATURE_NAMES.items() if found.get(theirs)})
    return tuple(features) or (re.sub(r"[^\w.+-]", "", platform.machine()) or "unknown",)


@cache
def is_intel(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the processor is Intel's, for which some engines have special kernels; False where unknown."""
    import platform

    try:
        said = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux; Windows reports the vendor here
        said = platform.processor()
    return "GenuineIntel" in said


def open_onnx_session(model: Path, purpose: str) -> Any:
    """Open a model in onnxruntime with one thread: concurrent calls share the processor. `purpose` is for messages."""
    with explain_missing_library(purpose):
        import onnxruntime  # type: ignore[import-untyped]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # onnxruntime writes warnings to standard error
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def find_package_folder(package: str, folder: str, purpose: str) -> Path:
    """Return a folder inside an installed package, without importing the package; `purpose` is for messages."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise EngineMissing(f"{purpose} are not installed: {make_install_command('voice')}")
    return Path(found.origin).with_name(folder)


def package_version(package: str) -> str:
    """Return the version of an installed package, or `unknown`."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
