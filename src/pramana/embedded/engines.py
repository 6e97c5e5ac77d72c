"""What an embedded model was computed with: an engine goes in, one line that a reply keeps comes out, and the reverse.

Float arithmetic rounds differently with other instructions, and a rounding can change a word. So every reply of an
embedded model records engine and version, the weights, the processor features the engine uses and its threads. The
line has one fixed form, written and read here only (`str(info)` and `parse_engines`). It never holds a path, a host
name or a key. Lines of older versions have neither processor nor threads: they are read as "not recorded".
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
from pramana.installation import install_command

NOT_RECORDED = "processor and threads not recorded"
_SEPARATOR = " | "
"""Between the engines of one reply: an agent has several."""
_LINE_RE = re.compile(
    r"(?P<name>[\w.+-]+) (?P<version>[\w.+-]+); (?P<model>[^;|]+?) (?P<weights>sha256:[0-9a-f]{8}…|[\w.+-]+==[\w.+-]+)"
    r"(?:; (?P<processor>[\w.+ -]+); (?P<threads>\d{1,6}) threads?)?"
)
_IGNORED_FEATURES = frozenset({"OPENMP", "BMI2"})
"""What llama.cpp lists beside the features it computes with."""
_NUMPY_NAMES = {
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
"""numpy's names of processor features as llama.cpp calls them; others change no result of ours."""
_FEATURES_BY_WIDTH = ("AVX512", "AVX2", "AVX", "SSE3", "SVE", "NEON", "VSX", "RISCV_V", "WASM_SIMD")
_FEATURE_LABELS = {"AVX512": "AVX-512", "RISCV_V": "RISC-V vectors", "WASM_SIMD": "WebAssembly SIMD"}


class EngineInfo(Struct, frozen=True, order=True):
    """An engine as it computed a model.

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
    """What it computed, for people; no `;` or `|` in it."""
    weights: str
    """The beginning of their digest, or the package they come from: `sha256:b179c952…`, `whisper-models==1.0`."""
    processor: tuple[str, ...] = ()
    """Features it computes with, in alphabetical order; empty: not recorded."""
    threads: int = 0
    """0: not recorded."""

    def __str__(self) -> str:
        line = f"{self.name} {self.version}; {self.model} {self.weights}"
        return f"{line}; {' '.join(self.processor)}; {self._threads_label}" if self.is_complete else line

    @property
    def is_complete(self) -> bool:
        """Whether processor and threads were recorded."""
        return bool(self.processor and self.threads)

    @property
    def short_label(self) -> str:
        """Engine, version, instruction set and threads."""
        widest = next((each for each in _FEATURES_BY_WIDTH if each in self.processor), " ".join(self.processor))
        return self._label_with(_FEATURE_LABELS.get(widest, widest))

    @property
    def full_label(self) -> str:
        """The same with the weights and every feature, for two that would otherwise look alike."""
        return f"{self._label_with(' '.join(self.processor))}, weights {self.weights}"

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data; what was not recorded is None."""
        return {
            "engine": self.name,
            "version": self.version,
            "model": self.model,
            "weights": self.weights,
            "processor": list(self.processor) or None,
            "threads": self.threads or None,
            "label": self.short_label,
        }

    @property
    def _threads_label(self) -> str:
        return f"{self.threads} thread{'' if self.threads == 1 else 's'}"

    def _label_with(self, features: str) -> str:
        return (
            f"{self.name} {self.version} ({f'{features}, {self._threads_label}' if self.is_complete else NOT_RECORDED})"
        )


def format_engines(engines: Iterable[EngineInfo]) -> str | None:
    """Return the line that a reply keeps of its engines; None of none."""
    return _SEPARATOR.join(map(str, engines)) or None


@lru_cache(maxsize=256)
def parse_engines(line: str) -> tuple[EngineInfo, ...]:
    """Return the engines that a line names; none where it is something else, as the fingerprint of a vendor is.

    >>> parse_engines("fp_44709d6fcb"), parse_engines("xllamacpp 1.0; SmolLM2 sha256:b179c952…")[0].is_complete
    ((), False)
    """
    found = [_LINE_RE.fullmatch(each) for each in line.split(_SEPARATOR)] if len(line) < 2000 else []
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


# ── What this processor has ──


def parse_llama_features(system_info: str) -> tuple[str, ...]:
    """Return the features that llama.cpp was built to compute with, from what it says of itself.

    >>> parse_llama_features("CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 0 | OPENMP = 1 | ")
    ('AVX2', 'SSE3')
    """
    named = re.findall(r"(\w+) = ([1-9]\d*)", system_info)
    return tuple(sorted({name for name, _ in named} - _IGNORED_FEATURES)) or processor_features()


@cache
def processor_features() -> tuple[str, ...]:
    """Return the features of this processor that engines choose their arithmetic by; its architecture where unknown."""
    import platform

    try:
        from numpy._core._multiarray_umath import __cpu_features__ as found  # type: ignore[import-not-found]
    except ImportError:  # another numpy, or none
        found = {}
    features = sorted({ours for theirs, ours in _NUMPY_NAMES.items() if found.get(theirs)})
    return tuple(features) or (re.sub(r"[^\w.+-]", "", platform.machine()) or "unknown",)


@cache
def is_intel(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Tell whether the processor is Intel's, for which some engines have kernels of their own; False where unknown."""
    import platform

    try:
        said = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux; Windows names the vendor here
        said = platform.processor()
    return "GenuineIntel" in said


def open_onnx_session(model: Path, purpose: str) -> Any:
    """Open a model for onnxruntime on one thread: concurrent calls share the processor. `purpose` is for messages."""
    with explain_missing_library(purpose):
        import onnxruntime  # type: ignore[import-untyped]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # it writes warnings to standard error itself
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def find_package_folder(package: str, folder: str, purpose: str) -> Path:
    """Return a folder beside the code of an installed package, which is never imported; `purpose` lies there."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise EngineMissing(f"{purpose} are not installed: {install_command('voice')}")
    return Path(found.origin).with_name(folder)


def package_version(package: str) -> str:
    """Return the version of an installed package, `unknown` where there is none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
