"""Compare two sides: two `ComparisonSource`s with their answers in, `ComparedSides` with the result out.

Cases are paired by digest; by id only if a file has no digests. Two sides have the same suite if their suite hashes are
equal, or the digests of all their cases; if neither is known, they count as different. Besides the verdicts, the result
has the times and misheard words as far as both sides have them, and the differences in how the two were requested.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from pramana.analyse.changes import CaseMeasurements, Change, measure_changes, merge_repeats
from pramana.analyse.comparison import MARGIN, Comparison, PreparedComparison, prepare_comparison
from pramana.analyse.engines import (
    EMBEDDED_PROVIDERS,
    EngineDifference,
    find_engine_differences,
    iterate_recorded_engine_lines,
    parse_distinct_engines,
)
from pramana.analyse.judges import canonical_judge_name, describe_calibration, find_verdict_source
from pramana.analyse.labels import TWO_RUN_LABELS, SideLabels, make_model_labels
from pramana.analyse.numbers import format_parameter, pluralise, shorten_name
from pramana.analyse.pairing import Pair, UnpairedAnswers, VerdictSource, split_variant
from pramana.analyse.replies import ComparableAnswer, ReplyChanges, compare_replies
from pramana.app.model_names import ModelNames
from pramana.embedded.engines import EngineInfo
from pramana.errors import Hint, InvalidInput, describe_value, quote_text
from pramana.model import Check, JudgeCalibration, Outcome, ToolCall

DEFAULT_MARGIN_POINTS = 100 * MARGIN


class ComparedAnswer(NamedTuple):
    """The parts of one result that are compared."""

    case_digest: str | None
    case_id: str
    repeat: int
    outcome: Outcome
    checks: tuple[Check, ...]
    variant: str = "text"
    total_s: float | None = None
    """Total latency, if the reply was text and timed; the same holds for `first_token_s`."""
    first_token_s: float | None = None
    result_number: int = 0
    """The number of the result in its run, or its place in a file."""
    fingerprint: str | None = None
    """The fingerprint that the provider or the embedded engine reported."""
    reply_text: str | None = None
    """Its text, the transcript of a call, or its tool calls in words; None if there is none or it was not recorded."""


class RecordedReply(NamedTuple):
    """A reply, as shown to the user."""

    prompt: str | None
    """None if it was not recorded; the same holds for `text`."""
    text: str | None
    outcome: Outcome
    reason: str | None
    tool_calls: tuple[ToolCall, ...] = ()


class ResultHashMismatch(NamedTuple):
    """Results of a file whose `result_hash` does not match their output."""

    file: str
    mismatch_count: int
    """How many results of the file do not match."""
    first_case: str
    """The ID of the case of the first of them."""

    @property
    def sentence(self) -> str:
        """Return the mismatch as a sentence.

        >>> print(ResultHashMismatch("old.json", 2, "peru").sentence)
        old.json: the result_hash of 2 results does not match their output (first: peru); check the origin of the file.
        """
        those = (
            "1 result does not match its"
            if self.mismatch_count == 1
            else f"{self.mismatch_count:,} results does not match their"
        )
        first = self.first_case if self.mismatch_count == 1 else f"first: {self.first_case}"
        return f"{self.file}: the result_hash of {those} output ({first}); check the origin of the file."


@dataclass(frozen=True, slots=True)
class ComparisonSource:
    """One side of a comparison, before it is read."""

    reference: str
    """The id of a run, or the path of a file."""
    title: str
    """Display name: the run or the file, and its date."""
    identity: str
    """Identifies the run or file; equal for two models of one run."""
    model: str
    """As it was typed."""
    suite_hash: str | None
    has_case_digests: bool
    """Whether every answer has the digest of its case."""
    read_case_digests: Callable[[], frozenset[str] | None]
    """Digests of all planned cases; None if not known."""
    iterate_answers: Callable[[], Iterable[ComparedAnswer]]
    read_replies: Callable[[Sequence[int]], Mapping[int, RecordedReply]]
    """Returns the replies at the given places."""
    planned_repeats: int | None = None
    """Planned repeats per case; None if not known."""
    variants: frozenset[str] = frozenset({"text"})
    voice: str | None = None
    """The caller's voice; None if nothing was spoken or it is not known."""
    stt: str | None = None
    """The speech-to-text model; None likewise."""
    provider: str | None = None
    engine_lines: tuple[str, ...] = ()
    """Descriptions of embedded engines that are recorded once for the run, not with each answer."""
    system_prompt: str | None = None
    """Empty if none was sent; None if not known."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The known parameters, sent with each case."""
    has_all_parameters: bool = False
    """Whether `parameters` holds every parameter that was sent."""
    find_case_positions: Callable[[Iterable[str]], Mapping[str, int]] | None = None
    """Returns the places of cases by digest; None if the answers come in the order of the cases."""
    read_calibrations: Callable[[], tuple[JudgeCalibration, ...]] = tuple
    """Returns how far judges agree with people; a judge that is not among them is uncalibrated."""
    is_stored_run: bool = False
    """Whether the places of answers are result numbers of a stored run."""
    find_result_hash_mismatch: Callable[[], ResultHashMismatch | None] = lambda: None
    """Returns the results whose hash does not match their output; None if all match."""

    @property
    def short_model_name(self) -> str:
        """The model's name for use in a sentence; of a Python function, only the function's name."""
        return ModelNames(self.model, self.model).short

    @property
    def reference_and_model(self) -> str:
        """What names the side in errors: the run or file as it was named, and the model."""
        return f"{self.reference} {self.model}"


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """One side of a comparison."""

    outcomes: Mapping[str, Sequence[Outcome]]
    verdict_sources: Mapping[str, frozenset[VerdictSource]]
    measurements: Mapping[str, CaseMeasurements]
    answers: Mapping[str, Sequence[ComparableAnswer]]
    """The answers to each case, in repeat order."""
    case_names: Mapping[str, str]
    """The display name of each case."""
    engines: tuple[EngineInfo, ...] = ()
    """The engines of its embedded models."""
    judge_sentences: tuple[str, ...] = ()
    """A sentence for each judge, which says how far it agrees with people."""
    is_stored_run: bool = False
    """Whether the places of answers are result numbers of a stored run."""

    def result_numbers(self, case: str) -> tuple[int, ...]:
        """Return the result numbers of a case; empty for a file."""
        return tuple(each.result_number for each in self.answers.get(case, ())) if self.is_stored_run else ()

    @property
    def pass_rate_of_all_answers(self) -> float | None:
        """The pass rate of all answers with a verdict, whether they were compared or not."""
        ended = Counter(outcome for given in self.outcomes.values() for outcome in given)
        scored = ended[Outcome.PASSED] + ended[Outcome.FAILED]
        return ended[Outcome.PASSED] / scored if scored else None


class RequestDifference(NamedTuple):
    """One difference between the requests of the two sides."""

    setting: str
    base_value: str
    new_value: str
    labels: SideLabels = TWO_RUN_LABELS

    @property
    def detail(self) -> str:
        """Return the difference in words; a long value is shortened.

        >>> prompt = RequestDifference("system prompt", "Be brief.", "Be kind.")
        >>> RequestDifference("temperature", "0", "1").detail, prompt.detail
        ('temperature 0 before, 1 now', 'another system prompt')
        """
        before, now = self.labels.base, self.labels.new
        if self.setting == SYSTEM_PROMPT_SETTING:
            if self.base_value and self.new_value:
                return "another system prompt"
            return (
                f"a system prompt {before}, none {now}" if self.base_value else f"no system prompt {before}, one {now}"
            )
        base, new = shorten_name(self.base_value), shorten_name(self.new_value)
        return f"another {self.setting}" if base == new else f"{self.setting} {base} {before}, {new} {now}"


SYSTEM_PROMPT_SETTING = "system prompt"


def describe_request_differences(details: Iterable[str]) -> str:
    """Return one sentence with all differences between the requests of two sides; empty if there are none.

    >>> describe_request_differences(["another system prompt", "temperature 0 before, 1 now"])
    'The requests differ: another system prompt; temperature 0 before, 1 now; this may explain the difference.'
    """
    named = "; ".join(details)
    return f"The requests differ: {named}; this may explain the difference." if named else ""


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """The result of a comparison, with display names for its cases."""

    comparison: Comparison
    measured_changes: Sequence[Change]
    """Changes in times and misheard words, as far as both sides have them."""
    request_differences: Sequence[RequestDifference]
    sides: tuple[ComparisonSide, ComparisonSide]
    sources: tuple[ComparisonSource, ComparisonSource]
    reply_changes: ReplyChanges
    """Replies that changed while their verdict stayed the same."""
    result_hash_mismatches: Sequence[ResultHashMismatch] = ()
    """Files with results whose hash does not match their output."""
    engine_differences: Sequence[EngineDifference] = ()
    """Embedded models that the two sides ran on different engines or processors."""
    heading: str = ""
    """The two sides that were compared, in one or two lines."""

    def find_case_name(self, case: str) -> str:
        """Return the display name of a case."""
        before, after = self.sides
        return before.case_names.get(case) or after.case_names.get(case, case)


class DifferentCasesError(InvalidInput):
    """The two sides are not known to have the same cases."""


class SideKeys(NamedTuple):
    """How the answers of two sides find each other."""

    is_paired_by_id: bool
    """Whether cases are paired by ID, since a side has no digests."""
    is_split_by_variant: bool
    """Whether each variant is compared with itself; with one variant on each side, spoken replies may be compared with
    typed ones."""


def choose_side_keys(before: ComparisonSource, after: ComparisonSource) -> SideKeys:
    """Return how the answers of two sides are paired."""
    return SideKeys(
        is_paired_by_id=not (before.has_case_digests and after.has_case_digests),
        is_split_by_variant=max(len(before.variants), len(after.variants)) > 1,
    )


def parse_margin(points: float) -> float:
    """Return a margin in points as a share; refuse what is not a number of points."""
    try:
        valid = 0 <= points <= 100
    except TypeError:  # from Python, anything may come
        valid = False
    if not valid:
        raise InvalidInput(f"margin is a number of points from 0 to 100, found {describe_value(points)}")
    return points / 100


def has_same_cases(before: ComparisonSource, after: ComparisonSource, *, any_suite: bool) -> bool:
    """Return whether both sides are known to have the same cases; without `any_suite`, refuse others."""
    same = is_same_suite(before, after)
    if not same and not any_suite:
        shared = _count_shared_cases(before, after)
        said = [
            f"  {each.reference_and_model}: {each.suite_hash or 'not a complete suite, so it has no hash'}\n"
            for each in (before, after)
        ]
        raise DifferentCasesError(
            f"the two sides are not known to have the same cases:\n{''.join(said).rstrip()}",
            hint=Hint(
                "any_suite",
                "the cases that both sides have"
                if shared is None
                else f"the {pluralise(shared, 'case')} that both sides have",
            ),
        )
    return same


def _count_shared_cases(before: ComparisonSource, after: ComparisonSource) -> int | None:
    """Return how many planned cases both sides share; None if not known."""
    known = before.read_case_digests(), after.read_case_digests()
    return None if known[0] is None or known[1] is None else len(known[0] & known[1])


def compare_sides(
    before: ComparisonSource,
    after: ComparisonSource,
    *,
    any_suite: bool,
    any_judge: bool,
    margin: float = DEFAULT_MARGIN_POINTS,
) -> ComparedSides:
    """Compare two sides case by case; `margin` is in points."""
    made = prepare_sides(before, after, any_suite=any_suite, any_judge=any_judge, margin=margin)
    return made.describe(made.prepared.decide())


@dataclass(frozen=True, slots=True)
class PreparedSides:
    """Two sides that were read, paired and tested; a level decides them."""

    sources: tuple[ComparisonSource, ComparisonSource]
    sides: tuple[ComparisonSide, ComparisonSide]
    prepared: PreparedComparison
    any_judge: bool

    def describe(self, comparison: Comparison) -> ComparedSides:
        """Return the comparison at the level that decided it, with everything that is measured beside it."""
        (before, after), (old, now), labels = self.sources, self.sides, comparison.labels
        one_run = _are_models_of_one_run(before, after)
        changed = [replace(each, labels=labels) for each in measure_changes(old.measurements, now.measurements)]
        embedded = all(each.provider in EMBEDDED_PROVIDERS for each in (before, after))
        engines = find_engine_differences(
            old.engines, now.engines, both_embedded=embedded and comparison.pairs > 0 and not one_run
        )
        left_out = (
            frozenset[str]() if self.any_judge else frozenset(each.case for each in comparison.differently_judged)
        )
        return ComparedSides(
            comparison,
            changed,
            [each._replace(labels=labels) for each in find_request_differences(before, after)],
            (old, now),
            (before, after),
            compare_replies(old.answers, now.answers, left_out),
            [mismatch for source in (before, after) if (mismatch := source.find_result_hash_mismatch())],
            [replace(each, side_labels=labels) for each in engines],
            _make_heading(before, after, one_run=one_run),
        )


def prepare_sides(
    before: ComparisonSource, after: ComparisonSource, *, any_suite: bool, any_judge: bool, margin: float
) -> PreparedSides:
    """Read, pair and test two sides, to decide them together with others; parameters as those of `compare_sides`."""
    share = parse_margin(margin)
    same = has_same_cases(before, after, any_suite=any_suite)
    keys = choose_side_keys(before, after)
    old, now = read_side(before, keys), read_side(after, keys)
    prepared = prepare_comparison(
        old.outcomes,
        now.outcomes,
        same_cases=same,
        new_repeats=after.planned_repeats,
        base_judges=old.verdict_sources,
        new_judges=now.verdict_sources,
        any_judge=any_judge,
        margin=share,
        labels=make_model_labels(before.short_model_name, after.short_model_name)
        if _are_models_of_one_run(before, after)
        else TWO_RUN_LABELS,
    )
    return PreparedSides((before, after), (old, now), prepared, any_judge)


def _are_models_of_one_run(before: ComparisonSource, after: ComparisonSource) -> bool:
    return before.identity == after.identity and before.model != after.model


def _make_heading(before: ComparisonSource, after: ComparisonSource, *, one_run: bool) -> str:
    """Return the heading of a comparison: two models of one run, or two runs with their models and dates."""
    if one_run:
        return f"{before.model} and {after.model}, {before.title}"
    return f"before: {before.model}, {before.title}\nnow: {after.model}, {after.title}"


def describe_pass_counts(pair: Pair, labels: SideLabels = TWO_RUN_LABELS) -> str:
    """Return how many answers of a case passed, of how many; if a side has more than were compared, of all too.

    >>> from pramana.analyse.pairing import UnpairedAnswers, Pair
    >>> describe_pass_counts(Pair("a", 3, 1, 3))
    'passed 3 of 3 before, 1 of 3 now'
    >>> describe_pass_counts(Pair("a", 0, 1, 1, base_unpaired=UnpairedAnswers(2, 2)))
    'passed 0 of 1 compared before (2 of 3 in all), 1 of 1 now'
    """

    def describe_side(passed: int, over: UnpairedAnswers, when: str) -> str:
        if not over.answers:
            return f"{passed:,} of {pair.repeats:,} {when}"
        in_all = f"{passed + over.passed:,} of {pair.repeats + over.answers:,} in all"
        return f"{passed:,} of {pair.repeats:,} compared {when} ({in_all})"

    base = describe_side(pair.base_passed, pair.base_unpaired, labels.base)
    return f"passed {base}, {describe_side(pair.new_passed, pair.new_unpaired, labels.new)}"


def is_same_suite(base: ComparisonSource, new: ComparisonSource) -> bool:
    """Return whether both sides are known to have the same cases."""
    if base.suite_hash is not None and new.suite_hash is not None:
        return base.suite_hash == new.suite_hash
    if (before := base.read_case_digests()) is None:
        return False
    return before == new.read_case_digests()


def find_request_differences(base: ComparisonSource, new: ComparisonSource) -> list[RequestDifference]:
    """Return the differences between the requests of two sides, as far as both recorded them."""
    found = []
    if base.system_prompt is not None and new.system_prompt is not None:
        found.append(RequestDifference(SYSTEM_PROMPT_SETTING, base.system_prompt, new.system_prompt))
    found += _iterate_parameter_differences(base, new)
    before, now = (", ".join(sorted(each.variants)) for each in (base, new))
    found.append(RequestDifference("variants", before, now))
    found += [RequestDifference("voice", base.voice, new.voice)] if base.voice and new.voice else []
    found += [RequestDifference("speech recognition", base.stt, new.stt)] if base.stt and new.stt else []
    return [each for each in found if each.base_value != each.new_value]


def _iterate_parameter_differences(base: ComparisonSource, new: ComparisonSource) -> Iterator[RequestDifference]:
    """Yield each parameter of which both sides know the value, or that it was not sent."""
    for name in dict.fromkeys((*base.parameters, *new.parameters)):
        if all(name in each.parameters or each.has_all_parameters for each in (base, new)):
            yield RequestDifference(
                name, format_parameter(base.parameters.get(name)), format_parameter(new.parameters.get(name))
            )


def read_side(source: ComparisonSource, keys: SideKeys) -> ComparisonSide:
    """Read one side. If cases are paired by id, two cases with the same id are ambiguous and raise an error."""
    engines = set(source.engine_lines)
    answers: dict[str, list[tuple[int, Outcome, CaseMeasurements, ComparableAnswer]]] = {}
    judges: dict[str, frozenset[VerdictSource]] = {}
    ids: dict[str, str] = {}
    digests: dict[str, str] = {}
    for each in source.iterate_answers():
        case = each.case_id if keys.is_paired_by_id or each.case_digest is None else each.case_digest
        spoken = f" ({each.variant})" if keys.is_split_by_variant and each.variant != "text" else ""
        case += spoken
        known = digests.setdefault(case, each.case_digest or "")
        if each.case_digest and known not in ("", each.case_digest):
            raise InvalidInput(
                f"{source.reference_and_model} has two cases called {quote_text(each.case_id)}, and the other side "
                "identifies cases only by ID; compare runs, or files that have case_digest"
            )
        ids[case] = each.case_id + spoken
        engines.update(iterate_recorded_engine_lines(each.fingerprint, each.checks))
        text_hash = None if each.reply_text is None else hash(each.reply_text)  # 8 bytes each, instead of the text
        answered = ComparableAnswer(each.outcome, text_hash, each.result_number)
        answers.setdefault(case, []).append((each.repeat, each.outcome, _measure_answer(each), answered))
        if each.outcome in (Outcome.PASSED, Outcome.FAILED):
            judges[case] = judges.get(case, frozenset()) | _find_verdict_sources(each.checks)
    if source.find_case_positions:
        places = source.find_case_positions(set(digests.values()))
        answers = dict(sorted(answers.items(), key=lambda each: (places.get(digests[each[0]], 0), each[0])))
    shared = Counter(ids.values())
    for given in answers.values():
        given.sort(key=lambda each: each[:2])
    return ComparisonSide(
        outcomes={case: [outcome for _, outcome, _, _ in given] for case, given in answers.items()},
        verdict_sources=judges,
        measurements={case: merge_repeats(taken for _, _, taken, _ in given) for case, given in answers.items()},
        answers={case: [answered for *_, answered in given] for case, given in answers.items()},
        case_names={
            case: f"{name} ({split_variant(case)[0][-8:]})" if shared[name] > 1 else name for case, name in ids.items()
        },
        engines=parse_distinct_engines(engines),
        judge_sentences=_describe_judges(judges, source),
        is_stored_run=source.is_stored_run,
    )


def _describe_judges(
    sources_by_case: Mapping[str, frozenset[VerdictSource]], source: ComparisonSource
) -> tuple[str, ...]:
    """Return a sentence for each judge of a side."""
    keys = {(each.check, each.version, each.by) for some in sources_by_case.values() for each in some if each.by}
    known = {(each.check, each.version, each.judge): each for each in source.read_calibrations()} if keys else {}
    return tuple(
        f"Judge {shorten_name(key[2])} ({key[0]}): {describe_calibration(known.get(key, JudgeCalibration(*key)))}"
        for key in sorted(keys)
    )


def _measure_answer(answer: ComparedAnswer) -> CaseMeasurements:
    """Return the measurements of an answer."""
    found = CaseMeasurements()
    if answer.variant == "text":
        found.add_written_times(answer.total_s, answer.first_token_s)
    else:
        found.add_call_check(answer.checks)
    return found


def _find_verdict_sources(checks: Iterable[Check]) -> frozenset[VerdictSource]:
    """Return the sources of a verdict; a judge is identified by its provider's name for it, not by what was typed."""
    return frozenset(
        find_verdict_source(each, canonical_judge_name)
        for each in checks
        if each.outcome in (Outcome.PASSED, Outcome.FAILED)
    )
