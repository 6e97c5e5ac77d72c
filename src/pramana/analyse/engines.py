"""Which engines computed the embedded models of a run, and where those of two runs differ: lines in, findings out.

A line is what a reply, or the check of a call, records of its engines (`embedded.engines`). Two runs differ in engines
if the same embedded model ran on another engine or version, or with other weights, processor features or number of
threads. Each similarity check records the engine of all-MiniLM-L6-v2, which is not compared: rounding differences are
far below the four decimals that are stored.
"""

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from pramana.analyse.labels import TWO_RUN_LABELS, SideLabels
from pramana.analyse.voice import CALL_CHECK
from pramana.embedded.engines import EngineInfo, parse_engines
from pramana.model import Check, Result

EMBEDDED_PROVIDERS = frozenset({"local", "local-voice"})
"""Providers whose replies always come from an embedded engine."""
ENGINE_EVIDENCE_KEY = "engine"
"""The key of the line in a check's evidence."""


class EngineDifference(Struct, frozen=True):
    """One embedded model whose engine differs between two runs."""

    model: str
    base_engines: tuple[EngineInfo, ...]
    """Several where a run was resumed on another machine; empty if not recorded."""
    new_engines: tuple[EngineInfo, ...]
    side_labels: SideLabels = TWO_RUN_LABELS

    @property
    def are_engines_recorded(self) -> bool:
        """Whether both sides recorded their engines completely, so that they are known to differ."""
        return all(side and all(each.is_complete for each in side) for side in (self.base_engines, self.new_engines))

    @property
    def sentence(self) -> str:
        """The difference and its consequence, in plain words."""
        before, now = self._side_engine_labels()
        both = f"{self.model} previously ran on {before}, now on {now}."
        if self.side_labels.model_labels:
            both = f"{self.model} ran on {before} {self.side_labels.base}, on {now} {self.side_labels.new}."
        if self.base_engines and self.new_engines and self._has_different("weights"):
            before, now = self._side_engine_labels(full=True)
            if self.side_labels.model_labels:
                base, new = self.side_labels.base, self.side_labels.new
                return f"Different weights: {self.model} was {before} {base}, {now} {new}."
            return f"Different weights: {self.model} was {before}, and is now {now}. It is not the same model."
        if not self.are_engines_recorded:
            return f"Engines not known to be the same: {both} Results can differ although the model has not changed."
        if self._has_different("processor_features"):
            why = "Embedded models round differently on different processors"
        elif self._has_different("name") or self._has_different("version"):
            why = "A different engine or version may round differently"
        else:
            why = "A different number of threads changes timings, and may change the rounding"
        return f"Different engines: {both} {why}, so results can differ although the model has not changed."

    def _has_different(self, field: str) -> bool:
        before, now = ({getattr(each, field) for each in side} for side in (self.base_engines, self.new_engines))
        return before != now

    def _side_engine_labels(self, *, full: bool = False) -> tuple[str, str]:
        before, now = ([each.short_label for each in side] for side in (self.base_engines, self.new_engines))
        if full or {*before} == {*now}:  # the difference is not part of a short label
            before, now = ([each.full_label for each in side] for side in (self.base_engines, self.new_engines))
        return _join_engine_labels(before), _join_engine_labels(now)


def iterate_recorded_engine_lines(fingerprint: str | None, checks: Iterable[Check]) -> Iterator[str]:
    """Yield the recorded lines of the engines that replied, and of the one that transcribed a call for its check."""
    if fingerprint and parse_engines(fingerprint):
        yield fingerprint
    for check in checks:
        if (
            check.name == CALL_CHECK
            and isinstance(line := check.evidence.get(ENGINE_EVIDENCE_KEY), str)
            and parse_engines(line)
        ):
            yield line


def iterate_engine_lines_of_result(result: Result) -> Iterator[str]:
    """Yield the recorded engine lines of a result."""
    return iterate_recorded_engine_lines(result.reply.fingerprint if result.reply else None, result.checks)


def parse_distinct_engines(engine_lines: Iterable[str]) -> tuple[EngineInfo, ...]:
    """Return the distinct engines that the lines name, in order.

    >>> lines = ["fp_1", "xllamacpp 1.0; SmolLM2 sha256:b179c952…; AVX2; 1 thread"]
    >>> [each.short_label for each in parse_distinct_engines(lines * 2)]
    ['xllamacpp 1.0 (AVX2, 1 thread)']
    """
    return tuple(sorted({info for line in set(engine_lines) for info in parse_engines(line)}))


def find_engine_differences(
    base: Collection[EngineInfo], new: Collection[EngineInfo], *, both_embedded: bool = False
) -> tuple[EngineDifference, ...]:
    """Return the differences between the engines of two runs.

    A model that only one side used is not a difference, unless both are runs of an embedded model (`both_embedded`)
    and one of them recorded no engine at all, as older versions did for calls.
    """
    found = []
    for family in sorted({_model_name_without_quantisation(each) for each in (*base, *new)}):
        before, now = (
            tuple(sorted(each for each in side if _model_name_without_quantisation(each) == family))
            for side in (base, new)
        )
        names = {each.model for each in (*before, *now)}
        model = names.pop() if len(names) == 1 else family
        unrecorded = both_embedded and not (base and new)
        if before != now and ((before and now) or unrecorded):
            found.append(EngineDifference(model, before, now))
    return tuple(found)


def _model_name_without_quantisation(info: EngineInfo) -> str:
    """Return a model's name without its quantisation, which counts as a difference of weights."""
    return info.model.partition(" ")[0]


def _join_engine_labels(engine_labels: list[str]) -> str:
    return " and ".join(dict.fromkeys(engine_labels)) or "an engine that was not recorded"
