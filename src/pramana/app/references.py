"""Choose the two sides of a comparison: runs, results.json files and model names in, two readable sides out.

Two models of one run can be the two sides; if it has exactly two, they need not be named. A model is never compared
with itself in the same run. A table of three and more sides has all models of one run, or one model of each run.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pramana.analyse.summary import explain_outcome
from pramana.analyse.voice import name_speech_recognition
from pramana.app.calibrations import calibrate_judges
from pramana.app.comparison_sides import ComparedAnswer, ComparisonSource, RecordedReply, ResultHashMismatch
from pramana.app.model_names import ModelNames, find_model_index, list_model_names
from pramana.errors import InvalidInput, NotFound, quote_text, suggest_similar
from pramana.hash import hash_case
from pramana.model import Run, Target
from pramana.replies import describe_reply
from pramana.store.store import Store

if TYPE_CHECKING:
    from pramana.load.results import ModelResults


ModelParameter = Literal["model", "new_model"]


@dataclass(frozen=True, slots=True)
class SideReference:
    """A run or a file, before one of its models is chosen."""

    typed_reference: str
    """As the user typed it."""
    title: str
    """Display name: the run or the file, and its date."""
    identity: str
    """Equal for two references to one run."""
    models: Sequence[ModelNames]
    make_source: Callable[[int], ComparisonSource]
    """Returns one of its models as a side, by index."""


class ModelUnclear(InvalidInput):
    """A side has several models, or lacks the one that was named."""

    def __init__(
        self, message: str, references: Sequence[str], models: Mapping[str, str], missing: ModelParameter
    ) -> None:
        """Set a valid choice in `models`, by `model` and `new_model`; `missing` is the one that the user must make."""
        self.message, self.references, self.models, self.missing = message, tuple(references), models, missing
        options = (f"--{name.replace('_', '-')} {shlex.quote(model)}" for name, model in models.items())
        command = " ".join(["pramana compare", *map(shlex.quote, references), *options])
        super().__init__(f"{message}; choose, for example: {command}")

    def explain_python_call(self) -> str:
        """Return the message with the Python call that fixes it."""
        given = [*map(repr, self.references), *(f"{name}={model!r}" for name, model in self.models.items())]
        return f"{self.message}; choose, for example: pramana.compare({', '.join(given)})"


def resolve_sides(
    base: SideReference, new: SideReference | None, model: str | None, new_model: str | None
) -> tuple[ComparisonSource, ComparisonSource]:
    """Return the two sides: models of two runs, or without `new` two models of one run."""
    if new is None or new.identity == base.identity:
        one, other = _find_two_models(base, model, new_model)
        return base.make_source(one), base.make_source(other)
    both = base.typed_reference, new.typed_reference
    first, second = _find_model_index(base, model), _find_model_index(new, new_model or model)
    if first is None:
        raise ModelUnclear(_explain_unclear_model(base, model), both, {"model": base.models[0].typed}, "model")
    if second is None:
        choice = {"model": base.models[first].typed, "new_model": new.models[0].typed}
        raise ModelUnclear(_explain_unclear_model(new, new_model or model), both, choice, "new_model")
    return base.make_source(first), new.make_source(second)


def _find_two_models(run: SideReference, model: str | None, new_model: str | None) -> tuple[int, int]:
    """Return the indexes of the two models to compare within one run; if it has exactly two, none need be named."""
    if len(run.models) == 1:
        raise InvalidInput(
            f"{run.title} has one model, {run.models[0].typed}; a comparison needs a second side: another run or "
            "results.json of the same cases, or a run of two models"
        )
    known: dict[ModelParameter, int] = {}
    wanted: tuple[tuple[ModelParameter, str | None], ...] = (("model", model), ("new_model", new_model))
    for name, each in wanted:
        if each is not None:
            place = find_model_index(run.models, each)
            if place is None:
                raise ModelUnclear(
                    _explain_unclear_model(run, each), [run.typed_reference], _suggest_two_models(run, known), name
                )
            known[name] = place
    if len(known) == 2 and known["model"] == known["new_model"]:
        itself = f"{run.models[known['model']].typed} cannot be compared with itself in {run.title}"
        raise ModelUnclear(
            itself, [run.typed_reference], _suggest_two_models(run, {"model": known["model"]}), "new_model"
        )
    if len(known) < 2 and len(run.models) > 2:
        missing: ModelParameter = "new_model" if "model" in known else "model"
        raise ModelUnclear(
            _explain_unclear_model(run, None), [run.typed_reference], _suggest_two_models(run, known), missing
        )
    both = _suggest_two_models(run, known)
    places = {each.typed: place for place, each in enumerate(run.models)}
    return places[both["model"]], places[both["new_model"]]


def _suggest_two_models(run: SideReference, known_indexes: Mapping[ModelParameter, int]) -> dict[str, str]:
    """Return two models of a run as `model` and `new_model`: the known ones, filled up with the first of the others."""
    rest = [place for place in range(len(run.models)) if place not in known_indexes.values()]
    names: tuple[ModelParameter, ...] = ("model", "new_model")
    return {name: run.models[known_indexes[name] if name in known_indexes else rest.pop(0)].typed for name in names}


def _find_model_index(run: SideReference, model: str | None) -> int | None:
    """Return the index of a model; a run's only model need not be named."""
    if model is None:
        return 0 if len(run.models) == 1 else None
    return find_model_index(run.models, model)


def _explain_unclear_model(run: SideReference, model: str | None) -> str:
    """Return the message that a model must be named, or that the named one is not in the run."""
    named = ", ".join(each.typed for each in run.models)
    if model is None:
        return f"{run.title} has {len(run.models)} models: {named}"
    hint = suggest_similar(model, [each.typed for each in run.models])
    return f"{run.title} has no model {quote_text(model)} (it has {named}){hint}"


# ── Three and more sides ──


class SeveralSides(NamedTuple):
    """The sides of a table."""

    sources: list[ComparisonSource]
    typed_references: list[str]
    """How the user names the run or file of each side."""
    reference_place: int | None
    """The index of the side that the others are compared with; None to compare every two."""


def resolve_several_sides(
    references: Sequence[SideReference],
    model: str | None = None,
    new_model: str | None = None,
    against: str | None = None,
    open_reference: Callable[[str], SideReference] | None = None,
) -> SeveralSides:
    """Return the sides of a table: all models of one run, or one model of each of several runs.

    `model` is the model of the first run, `new_model` that of the others, by default the same. `against` is a model of
    the only run, one of the runs, or another run, which `open_reference` opens.
    """
    if len(references) == 1 and len(references[0].models) > 1:
        run = references[0]
        if model is not None or new_model is not None:
            raise InvalidInput("all models of a run are compared: leave out the model, or name two models to compare")
        place = None if against is None else find_model_index(run.models, against)
        if against is not None and place is None:
            raise InvalidInput(_explain_unclear_model(run, against))
        count = len(run.models)
        return SeveralSides([run.make_source(at) for at in range(count)], [run.typed_reference] * count, place)
    chosen = [
        (each, _choose_model(each, model if number == 0 else new_model or model, references))
        for number, each in enumerate(references)
    ]
    place = None
    if against is not None:
        typed = [each.typed_reference for each in references]
        if against not in typed and open_reference is not None:
            other = open_reference(against)
            added = (other, _choose_model(other, model, [other, *references]))
            keys = [(each.identity, at) for each, at in chosen]
            key = (other.identity, added[1])
            chosen = chosen if key in keys else [added, *chosen]
            place = keys.index(key) if key in keys else 0
        else:
            place = typed.index(against)
    seen: set[tuple[str, int]] = set()
    for each, at in chosen:
        if (each.identity, at) in seen:
            raise InvalidInput(f"{each.title} is named twice with the model {each.models[at].typed}")
        seen.add((each.identity, at))
    if len(chosen) < 2:
        raise InvalidInput(
            f"{references[0].title} has one model, {references[0].models[0].typed}; a comparison needs a second side"
        )
    return SeveralSides(
        [each.make_source(at) for each, at in chosen], [each.typed_reference for each, _ in chosen], place
    )


def _choose_model(run: SideReference, model: str | None, references: Sequence[SideReference]) -> int:
    place = _find_model_index(run, model)
    if place is None:
        raise ModelUnclear(
            _explain_unclear_model(run, model),
            [each.typed_reference for each in references],
            {"model": run.models[0].typed},
            "model",
        )
    return place


# ── References ──


def make_file_reference(path: Path) -> SideReference:
    """Return the models of a results.json."""
    from pramana.load.results import read_results

    blocks = read_results(path)
    names = [ModelNames(each.model or each.model_id, each.model_id) for each in blocks]
    title = _name_with_date(str(path), blocks[0].timestamp)
    return SideReference(str(path), title, str(path.resolve()), names, lambda at: _make_file_source(path, blocks[at]))


def _make_file_source(path: Path, model_results: "ModelResults") -> ComparisonSource:
    from pramana.load.results import find_ids_with_wrong_hash

    digests = frozenset(each.case_digest for each in model_results.results if each.case_digest)
    has_outputs = any(each.output or each.tool_calls for each in model_results.results)

    def read(places: Sequence[int]) -> dict[int, RecordedReply]:
        chosen = ((place, model_results.results[place]) for place in places)
        return {
            place: RecordedReply(None, each.output if has_outputs else None, each.outcome, each.reason, each.tool_calls)
            for place, each in chosen
        }

    def find_result_hash_mismatch() -> ResultHashMismatch | None:
        found = find_ids_with_wrong_hash(model_results)
        return ResultHashMismatch(str(path), len(found), found[0]) if found else None

    return ComparisonSource(
        str(path),
        _name_with_date(str(path), model_results.timestamp),
        str(path.resolve()),
        model_results.model or model_results.model_id,
        model_results.suite_hash,
        model_results.has_digests,
        lambda: digests if model_results.has_digests and model_results.complete else None,
        lambda: (
            ComparedAnswer(
                each.case_digest,
                each.test_id,
                each.repeat,
                each.outcome,
                each.checks,
                each.variant,
                each.latency_ms / 1000 if each.latency_ms else None,  # 0 is written if there was no reply
                result_number=place,
                reply_text=describe_reply(each.output, each.tool_calls, max_tool_call_length=None)
                if has_outputs
                else None,
            )
            for place, each in enumerate(model_results.results)
        ),
        read,
        variants=frozenset(each.variant for each in model_results.results) or frozenset({"text"}),
        provider=model_results.provider,
        engine_lines=model_results.engines,
        system_prompt=model_results.system_prompt,
        # If the file records the prompt, null means that none was sent; in an older file it may mean anything.
        parameters={
            name: value
            for name, value in (("temperature", model_results.temperature), ("seed", model_results.seed))
            if value is not None or model_results.system_prompt is not None
        },
        find_result_hash_mismatch=find_result_hash_mismatch,
    )


def make_run_reference(store: Store, reference: str) -> SideReference:
    """Return the models of a stored run; `RUN@1` is the run by its scoring 1."""
    run = store.runs.find_as_of_scoring(reference)
    title, targets = _name_with_date(f"run {run.reference}", run.created), run.plan.targets
    return SideReference(
        reference,
        title,
        run.reference,
        list_model_names(run),
        lambda at: _make_run_source(store, run, targets[at], title),
    )


def make_baseline_reference(store: Store, reference: str, new_reference: str | None = None) -> SideReference:
    """Return the models of a stored run; of several with this name, of the newest finished one but `new_reference`."""
    other_than = None
    if new_reference is not None:
        with suppress(NotFound):
            other_than = store.runs.find_as_of_scoring(new_reference).id
    found = make_run_reference(store, store.runs.find_baseline(reference, other_than).reference)
    return replace(found, typed_reference=reference)


def make_earlier_run_reference(store: Store, reference: str, checked: Run | None) -> SideReference:
    """Return the models of the baseline of a run; without a run, of one that is yet to begin."""
    found = store.runs.find_earlier_baseline(reference, checked) if checked else store.runs.find_baseline(reference)
    return replace(make_run_reference(store, found.reference), typed_reference=reference)


def _name_with_date(name: str, created_at: str | None) -> str:
    return f"{name} of {created_at[:16].replace('T', ' ')}" if created_at else name


def _make_run_source(store: Store, run: Run, target: Target, title: str) -> ComparisonSource:
    typed = target.typed

    def answers() -> Iterator[ComparedAnswer]:
        for seq, result in store.results.iterate(run, with_raw=False, model=typed):
            key, reply = result.key, result.reply
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
                describe_reply(reply.text, reply.tool_calls, max_tool_call_length=None) if reply else None,
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
        return frozenset(map(hash_case, store.cases.iterate(run.id)))

    spoken = run.plan.variants != ("text",)
    return ComparisonSource(
        run.reference,
        title,
        run.reference,
        typed,
        run.plan.suite_hash,
        has_case_digests=True,
        read_case_digests=digests,
        iterate_answers=answers,
        read_replies=read,
        planned_repeats=run.plan.repeats,
        variants=frozenset(run.plan.variants),
        voice=run.plan.voice if spoken else None,
        stt=name_speech_recognition(run.plan) if spoken else None,
        provider=target.provider,
        system_prompt=run.plan.system_prompt or "",
        parameters=run.plan.parameters,
        has_all_parameters=True,
        find_case_positions=lambda wanted: store.cases.find_positions(run, wanted),
        read_calibrations=lambda: calibrate_judges(store, run),
        is_stored_run=True,
    )
