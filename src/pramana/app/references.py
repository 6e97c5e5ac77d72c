"""Choose the two sides of a comparison: runs, results.json files and model names in, two readable sides out.

Two models of one run can be the two sides; if it has exactly two, they need not be named. A model is never compared
with itself in the same run.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pramana.analyse.summary import explain_outcome
from pramana.analyse.voice import recognition_name
from pramana.app.comparison_sides import ComparedAnswer, HashMismatch, RecordedReply, Source
from pramana.app.model_names import ModelNames, find_model_index, list_model_names
from pramana.errors import InvalidInput, quote_text, suggest_similar
from pramana.hash import case_digest
from pramana.model import Run, Target
from pramana.replies import describe_reply
from pramana.store.store import Store

if TYPE_CHECKING:
    from pramana.load.results import ModelResults


Missing = Literal["model", "new_model"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A run or a file, before one of its models is chosen."""

    given: str
    """As the user typed it."""
    title: str
    """Display name: the run or the file, and its date."""
    identity: str
    """Equal for two references to one run."""
    models: Sequence[ModelNames]
    source: Callable[[int], Source]
    """Returns one of its models as a side, by index."""


class ModelUnclear(InvalidInput):
    """A side has several models, or lacks the one that was named."""

    def __init__(self, message: str, references: Sequence[str], models: Mapping[str, str], missing: Missing) -> None:
        """Set a valid choice in `models`, by `model` and `new_model`; `missing` is the one that the user must make."""
        self.message, self.references, self.models, self.missing = message, tuple(references), models, missing
        options = (f"--{name.replace('_', '-')} {shlex.quote(model)}" for name, model in models.items())
        command = " ".join(["pramana compare", *map(shlex.quote, references), *options])
        super().__init__(f"{message}; choose, for example: {command}")

    def explain_call(self) -> str:
        """Return the message with the Python call that fixes it."""
        given = [*map(repr, self.references), *(f"{name}={model!r}" for name, model in self.models.items())]
        return f"{self.message}; choose, for example: pramana.compare({', '.join(given)})"


def resolve_sides(
    base: Reference, new: Reference | None, model: str | None, new_model: str | None
) -> tuple[Source, Source]:
    """Return the two sides: models of two runs, or without `new` two models of one run."""
    if new is None or new.identity == base.identity:
        one, other = _find_two_models(base, model, new_model)
        return base.source(one), base.source(other)
    both = base.given, new.given
    first, second = _find_model_index(base, model), _find_model_index(new, new_model or model)
    if first is None:
        raise ModelUnclear(_explain_unclear_model(base, model), both, {"model": base.models[0].typed}, "model")
    if second is None:
        choice = {"model": base.models[first].typed, "new_model": new.models[0].typed}
        raise ModelUnclear(_explain_unclear_model(new, new_model or model), both, choice, "new_model")
    return base.source(first), new.source(second)


def _find_two_models(run: Reference, model: str | None, new_model: str | None) -> tuple[int, int]:
    """Return the indexes of the two models to compare within one run; if it has exactly two, none need be named."""
    if len(run.models) == 1:
        raise InvalidInput(
            f"{run.title} has one model, {run.models[0].typed}; a comparison needs a second side: another run or "
            "results.json of the same cases, or a run of two models"
        )
    known: dict[Missing, int] = {}
    wanted: tuple[tuple[Missing, str | None], ...] = (("model", model), ("new_model", new_model))
    for name, each in wanted:
        if each is not None:
            place = find_model_index(run.models, each)
            if place is None:
                raise ModelUnclear(
                    _explain_unclear_model(run, each), [run.given], _suggest_two_models(run, known), name
                )
            known[name] = place
    if len(known) == 2 and known["model"] == known["new_model"]:
        itself = f"{run.models[known['model']].typed} cannot be compared with itself in {run.title}"
        raise ModelUnclear(itself, [run.given], _suggest_two_models(run, {"model": known["model"]}), "new_model")
    if len(known) < 2 and len(run.models) > 2:
        missing: Missing = "new_model" if "model" in known else "model"
        raise ModelUnclear(_explain_unclear_model(run, None), [run.given], _suggest_two_models(run, known), missing)
    both = _suggest_two_models(run, known)
    places = {each.typed: place for place, each in enumerate(run.models)}
    return places[both["model"]], places[both["new_model"]]


def _suggest_two_models(run: Reference, known: Mapping[Missing, int]) -> dict[str, str]:
    """Return two models of a run as `model` and `new_model`: the known ones, filled up with the first of the others."""
    rest = [place for place in range(len(run.models)) if place not in known.values()]
    names: tuple[Missing, ...] = ("model", "new_model")
    return {name: run.models[known[name] if name in known else rest.pop(0)].typed for name in names}


def _find_model_index(run: Reference, model: str | None) -> int | None:
    """Return the index of a model; a run's only model need not be named."""
    if model is None:
        return 0 if len(run.models) == 1 else None
    return find_model_index(run.models, model)


def _explain_unclear_model(run: Reference, model: str | None) -> str:
    """Return the message that a model must be named, or that the named one is not in the run."""
    named = ", ".join(each.typed for each in run.models)
    if model is None:
        return f"{run.title} has {len(run.models)} models: {named}"
    hint = suggest_similar(model, [each.typed for each in run.models])
    return f"{run.title} has no model {quote_text(model)} (it has {named}){hint}"


# ── References ──


def reference_to_file(path: Path) -> Reference:
    """Return the models of a results.json."""
    from pramana.load.results import read_results

    blocks = read_results(path)
    names = [ModelNames(each.model or each.model_id, each.model_id) for each in blocks]
    title = _name_with_date(str(path), blocks[0].timestamp)
    return Reference(str(path), title, str(path.resolve()), names, lambda at: _make_file_source(path, blocks[at]))


def _make_file_source(path: Path, block: "ModelResults") -> Source:
    from pramana.load.results import mismatched_hashes

    digests = frozenset(each.case_digest for each in block.results if each.case_digest)
    has_outputs = any(each.output or each.tool_calls for each in block.results)

    def read(places: Sequence[int]) -> dict[int, RecordedReply]:
        chosen = ((place, block.results[place]) for place in places)
        return {
            place: RecordedReply(None, each.output if has_outputs else None, each.outcome, each.reason, each.tool_calls)
            for place, each in chosen
        }

    def hash_mismatch() -> HashMismatch | None:
        found = mismatched_hashes(block)
        return HashMismatch(str(path), len(found), found[0]) if found else None

    return Source(
        str(path),
        _name_with_date(str(path), block.timestamp),
        str(path.resolve()),
        block.model or block.model_id,
        block.suite_hash,
        block.has_digests,
        lambda: digests if block.has_digests and block.complete else None,
        lambda: (
            ComparedAnswer(
                each.case_digest,
                each.test_id,
                each.repeat,
                each.outcome,
                each.checks,
                each.variant,
                each.latency_ms / 1000 if each.latency_ms else None,  # 0 is written if there was no reply
                place=place,
                reply=describe_reply(each.output, each.tool_calls, longest=None) if has_outputs else None,
            )
            for place, each in enumerate(block.results)
        ),
        read,
        variants=frozenset(each.variant for each in block.results) or frozenset({"text"}),
        provider=block.provider,
        engines=block.engines,
        system_prompt=block.system_prompt,
        # If the file records the prompt, null means that none was sent; in an older file it may mean anything.
        parameters={
            name: value
            for name, value in (("temperature", block.temperature), ("seed", block.seed))
            if value is not None or block.system_prompt is not None
        },
        hash_mismatch=hash_mismatch,
    )


def reference_to_run(store: Store, reference: str) -> Reference:
    """Return the models of a stored run; `RUN@1` is the run by its scoring 1."""
    run = store.runs.find_scored(reference)
    title, targets = _name_with_date(f"run {run.reference}", run.created), run.plan.targets
    return Reference(
        reference,
        title,
        run.reference,
        list_model_names(run),
        lambda at: _make_run_source(store, run, targets[at], title),
    )


def _name_with_date(name: str, created: str | None) -> str:
    return f"{name} of {created[:16].replace('T', ' ')}" if created else name


def _make_run_source(store: Store, run: Run, target: Target, title: str) -> Source:
    typed = target.typed

    def answers() -> Iterator[ComparedAnswer]:
        for seq, result in store.results.iterate(run, raw=False):
            key, reply = result.key, result.reply
            if key.model != typed:
                continue
            # Without a request (no reply, or a cached one), or with a call, there is no latency to compare.
            timed = reply if reply and not reply.cached and reply.call is None else None
            yield ComparedAnswer(
                key.case,
                result.case_id,
                key.repeat,
                result.outcome,
                result.checks,
                key.variant,
                timed.total_s if timed else None,
                timed.first_token_s if timed else None,
                seq,
                reply.fingerprint if reply else None,
                describe_reply(reply.text, reply.tool_calls, longest=None) if reply else None,
            )

    def read(places: Sequence[int]) -> dict[int, RecordedReply]:
        found = {}
        for seq in places:
            case, result = store.results.read(run, seq)
            lines = [line.text for line in case.script] or [turn.text for turn in case.turns]
            text, calls = (result.reply.text, result.reply.tool_calls) if result.reply else (None, ())
            found[seq] = RecordedReply("\n\n".join(lines), text, result.outcome, explain_outcome(result), calls)
        return found

    def digests() -> frozenset[str]:
        return frozenset(map(case_digest, store.cases.iterate(run.id)))

    spoken = run.plan.variants != ("text",)
    return Source(
        run.reference,
        title,
        run.reference,
        typed,
        run.plan.suite_hash,
        by_digest=True,
        digests=digests,
        answers=answers,
        read=read,
        repeats=run.plan.repeats,
        variants=frozenset(run.plan.variants),
        voice=run.plan.voice if spoken else None,
        stt=recognition_name(run.plan) if spoken else None,
        provider=target.provider,
        system_prompt=run.plan.system_prompt or "",
        parameters=run.plan.parameters,
        all_parameters=True,
        positions=lambda wanted: store.cases.positions(run, wanted),
        stored=True,
    )
