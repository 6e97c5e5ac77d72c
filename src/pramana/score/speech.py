"""Measures a call: its recording and log in; times, words, sound and the evidence guard's result out, as one check.

Everything comes from the stereo recording and the event log, so that a stored call can be measured again: the same
speech recognition and detectors give the same numbers to the last digit. Words are compared only if there is a text to
compare them with: what the provider recognised with the caller's lines, the recording with a scenario's reference, and,
for the guard, with the agent's own transcript; never with the description of an expected outcome. What cannot be
measured is None, with the reason. Nothing here accesses a network.

`CallScorer` reads both by their digests, so that a call can be scored again later, or with other speech recognition,
from stored data only. It works in a thread, because transcription takes longer than the event loop may block, and not
during a call of an embedded agent, whose times it would lengthen. If speech recognition fails, only measurements that
need words are lost, never the times.
"""

import asyncio
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pramana import audio
from pramana.errors import InvalidInput, PramanaError, WeightsMissing
from pramana.model import Case, Check, Outcome, RecordedCall, Reply
from pramana.providers.voice.embedded import process_slots
from pramana.providers.voice.vocabulary import SpeechRecognition
from pramana.score.evidence import EVIDENCE_GUARD_VERSION, GuardResult, check_evidence, trim_silences
from pramana.score.log import CallLog
from pramana.score.timing import (
    TIMING_VERSION,
    CallTimes,
    DetectSpeech,
    LineTimes,
    find_audible_spans,
    measure_times,
    split_tracks,
)
from pramana.score.words import (
    Entity,
    Errors,
    count_character_errors,
    count_word_errors,
    count_words,
    find_missed_entities,
    get_primary_language,
    make_normaliser_name,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.int16]


CHECK_NAME: Final = "call"
_NORMALISER_NAMES = " ".join(map(make_normaliser_name, ("en", "fr", "ja")))
"""The names for all languages, so that calls in different languages are measured by one version."""
SPEECH_MARGIN_S = 0.25
"""Margin kept around speech for speech recognition."""

Transcribe = Callable[["Samples"], str]
"""Returns the transcript of samples at 16 kHz."""
EstimateQuality = Callable[["Samples"], Any]
"""Returns the quality of samples at 16 kHz: `overall`, `signal`, `background` and `p808`, from 1 to 5."""


class TextComparison(Struct, frozen=True):
    """A comparison of a text with its reference."""

    reference: str
    heard: str
    words: Errors
    characters: Errors
    wer: float | None
    cer: float | None
    count: int
    """Number of word errors."""
    missed: tuple[Entity, ...]
    """Numbers, names and dates of the reference that are missing in the other text."""


class CallTexts(Struct, frozen=True):
    """The transcripts of a call, compared."""

    normaliser: str
    heard: TextComparison | None = None
    """What the provider recognised, against the caller's lines; None if it does not report that."""
    transcript: TextComparison | None = None
    """The transcript of the recording, against the agent's own transcript."""
    references: tuple[TextComparison | None, ...] = ()
    """The transcript of each answer in the recording, against its reference; None for lines without one."""
    recorded: str | None = None
    """The transcript of the recording; None if there is no speech recognition for it."""
    why_not: str = ""
    """Why the recording was not transcribed."""


class QualityEstimate(Struct, frozen=True):
    """Estimated ratings by listeners, from 1 to 5: a diagnosis, never a score."""

    overall: float
    signal: float
    background: float
    p808: float


class SoundMeasurements(Struct, frozen=True):
    """How the agent sounds."""

    level_dbfs: float | None = None
    """Level of the audible part; None if nothing is audible."""
    clipped_share: float | None = None
    """Share of the agent's samples at full scale."""
    silence_share: float | None = None
    """Share of the answers that is not audible."""
    speaking_s: float | None = None
    """Duration of speech, by the detector if there is one, else by level."""
    words_a_minute: float | None = None
    """Words of the transcript per minute of speech; None without either, or if the agent was interrupted."""
    quality: QualityEstimate | None = None


class CallMeasurements(Struct, frozen=True):
    """All measurements of a call."""

    language: str
    times: CallTimes
    words: CallTexts
    sound: SoundMeasurements
    guard: GuardResult
    complete: bool = True
    """Whether all lines of the script were played."""
    conditions: str | None = None
    """The conditions of the caller's sound, from the variant and the case; None if the log does not state them."""


def measure_call(
    samples: "Samples",
    sample_rate: int,
    events: Sequence[Mapping[str, Any]],
    *,
    transcribe: Transcribe | None,
    transcribable_languages: Collection[str],
    language: str,
    references: Sequence[str | None] = (),
    detect_speech: DetectSpeech | None = None,
    vad_label: str = "",
    estimate_quality: EstimateQuality | None = None,
    line_count: int | None = None,
) -> CallMeasurements:
    """Measure a call from its recording and its log.

    `transcribe` supports the `transcribable_languages`; `references` are the expected words of each answer, if stated;
    `detect_speech` and `vad_label` are a voice activity detector and its settings; `line_count` is the number of lines
    in the script.
    """
    times = measure_times(samples, sample_rate, events, detect_speech=detect_speech, vad_label=vad_label)
    log, (_, agent) = CallLog(events), split_tracks(samples, sample_rate)
    audible = find_audible_spans(agent, sample_rate)
    ear = _AgentTranscriber(agent, sample_rate, transcribe, transcribable_languages, language)
    said = " ".join(filter(None, log.list_transcripts("agent_text")))
    speech = trim_silences(agent, sample_rate, audible, margin_s=0)
    words = _compare_words(
        log, times, ear, said, references, trim_silences(agent, sample_rate, audible, SPEECH_MARGIN_S)
    )
    return CallMeasurements(
        language=language,
        times=times,
        words=words,
        sound=_measure_sound(speech, sample_rate, log, times, language, audible, estimate_quality),
        guard=check_evidence(
            speech,
            said,
            words.recorded,
            language,
            sample_rate=sample_rate,
            interruption_count=log.interruption_count,
            no_transcript_reason=words.why_not,
            synthesised_here=log.synthesised_here,
        ),
        complete=line_count is None or len(times.lines) >= line_count,
        conditions=log.conditions,
    )


# ── Words ──


class _AgentTranscriber:
    """Transcribes the agent's channel, or holds the reason why that is not possible."""

    def __init__(
        self,
        agent: "Samples",
        sample_rate: int,
        transcribe: Transcribe | None,
        languages: Collection[str],
        language: str,
    ) -> None:
        self.agent, self.rate, self.language, self._transcribe = agent, sample_rate, language, transcribe
        covered = transcribe is not None and get_primary_language(language) in {
            get_primary_language(each) for each in languages
        }
        self.reason_unavailable = "" if covered else f"no STT for {language}"

    def transcribe(self, samples: "Samples") -> str | None:
        if self.reason_unavailable or self._transcribe is None:
            return None
        return self._transcribe(audio.resample(samples, self.rate, audio.CALLER_SAMPLE_RATE)) if samples.size else ""

    def transcribe_answer(self, line: LineTimes) -> str | None:
        """Return the transcript of a line's answer; empty if there is no answer, None without speech recognition."""
        if line.first_audible_s is None or line.answer_end_s is None:
            return None if self.reason_unavailable else ""
        return self.transcribe(
            trim_silences(self.agent, self.rate, [(line.first_audible_s, line.answer_end_s)], SPEECH_MARGIN_S)
        )


def _compare_words(
    log: CallLog,
    times: CallTimes,
    transcriber: _AgentTranscriber,
    agent_transcript: str,
    references: Sequence[str | None],
    speech: "Samples",
) -> CallTexts:
    recorded = transcriber.transcribe(speech)
    heard = " ".join(filter(None, log.list_transcripts("user_text")))
    asked = " ".join(line.text for line in log.lines)
    stated = [*references, *[None] * len(times.lines)][: len(times.lines)]
    return CallTexts(
        normaliser=make_normaliser_name(transcriber.language),
        heard=_compare_texts(asked, heard, transcriber.language) if heard else None,
        transcript=_compare_texts(agent_transcript, recorded, transcriber.language)
        if agent_transcript and recorded is not None
        else None,
        references=tuple(
            None if reference is None or (answer := transcriber.transcribe_answer(line)) is None
            else _compare_texts(reference, answer, transcriber.language)
            for reference, line in zip(stated, times.lines, strict=True)
        ),
        recorded=recorded,
        why_not=transcriber.reason_unavailable,
    )  # fmt: skip


def _compare_texts(reference: str, recognised: str, language: str) -> TextComparison | None:
    """Return the comparison; None if the texts are too long to compare."""
    try:
        words, characters = (
            count_word_errors(reference, recognised, language),
            count_character_errors(reference, recognised, language),
        )
        missed = tuple(find_missed_entities(reference, recognised, language))
    except InvalidInput:
        return None
    return TextComparison(reference, recognised, words, characters, words.rate, characters.rate, words.count, missed)


# ── Sound ──


def _measure_sound(
    speech: "Samples",
    sample_rate: int,
    log: CallLog,
    times: CallTimes,
    language: str,
    audible_spans_s: Sequence[tuple[float, float]],
    estimate_quality: EstimateQuality | None,
) -> SoundMeasurements:
    if not speech.size:
        return SoundMeasurements()
    answered = [
        (line.first_audible_s, line.answer_end_s)
        for line in times.lines
        if line.first_audible_s is not None and line.answer_end_s is not None
    ]
    lasted = math.fsum(end - start for start, end in answered)
    heard = math.fsum(
        max(0.0, min(end, last) - max(start, first)) for start, end in answered for first, last in audible_spans_s
    )
    found = [line.speech_s for line in times.lines if line.speech_s is not None]
    speaking = math.fsum(found) if found else heard
    answers = " ".join(log.list_transcripts("agent_text")[1:])
    said = None if log.cuts else count_words(answers, language)
    return SoundMeasurements(
        level_dbfs=audio.level_dbfs(speech),
        clipped_share=audio.clipped_share(speech),
        silence_share=max(0.0, 1 - heard / lasted) if lasted else None,
        speaking_s=speaking if answered else None,
        words_a_minute=60 * said / speaking if said and speaking else None,
        quality=_estimate_quality(audio.resample(speech, sample_rate, audio.CALLER_SAMPLE_RATE), estimate_quality),
    )


def _estimate_quality(speech: "Samples", estimate_quality: EstimateQuality | None) -> QualityEstimate | None:
    if estimate_quality is None:
        return None
    try:
        return msgspec.convert(estimate_quality(speech), QualityEstimate, from_attributes=True)
    except (WeightsMissing, InvalidInput):
        return None  # only a diagnosis, so a failure does not matter


# ── The check ──


def make_call_check(measurements: CallMeasurements) -> Check:
    """Return the check of a call: passed if it is usable as evidence, else errored with the reason."""
    times = measurements.times
    trouble = _find_evidence_problem(measurements)
    first = times.lines[0].voice_to_voice_s if times.lines else None
    after = "no time from voice to voice" if first is None else f"voice to voice in {first:.3f} s"
    return Check(
        CHECK_NAME,
        f"{TIMING_VERSION}.{EVIDENCE_GUARD_VERSION} {_NORMALISER_NAMES}; {times.vad or 'no VAD'}",
        Outcome.ERRORED if trouble else Outcome.PASSED,
        trouble or f"{after}{_describe_unreliable_times(times)}; {measurements.guard.reason}",
        first,
        _to_plain(msgspec.to_builtins(measurements)),
    )


def _describe_unreliable_times(times: CallTimes) -> str:
    """Return which times are unreliable because this machine was late, or an empty string."""
    late = [line for line in times.lines if line.reliable is False]
    if not late:
        return ""
    named = ", ".join(str(line.line + 1) for line in late)
    most = max(line.late_s for line in late)
    return f", unreliable: this machine was up to {most * 1000:.0f} ms late while line {named} was timed"


def _to_plain(data: Any) -> Any:
    """Return plain data in the form that a store returns: lists instead of tuples."""
    if isinstance(data, dict):
        return {key: _to_plain(value) for key, value in data.items()}
    return [_to_plain(value) for value in data] if isinstance(data, list | tuple) else data


def _find_evidence_problem(measurements: CallMeasurements) -> str:
    """Return why a call is not usable as evidence; empty if it is."""
    times = measurements.times
    if not times.lines:
        ended = times.trouble or times.reason or "its log has no `end` event"
        return f"the call ended before the caller's first line: {ended}"
    for line in times.lines:
        if line.speech_end_s is None:
            return f"line {line.line + 1} of the caller is not audible in the recording"
    last = times.lines[-1]
    if times.reason == "error" or (times.reason == "closed" and (not times.finished or last.first_audible_s is None)):
        return f"the call was cut off: {times.trouble or times.reason}"
    if times.reason == "done" and measurements.guard.state == "silent":
        return measurements.guard.reason
    for line in times.lines:
        if line.censored:
            return f"no answer to line {line.line + 1} within {line.waited_s or 0:.1f} s"
    ignored = times.reason == "no_answer" and last.backchannel and last.talked_into  # as expected for a backchannel
    if times.reason not in ("done", "closed") and not ignored:
        return f"the call was not completed: {times.reason or 'its log has no `end` event'}"
    if not measurements.complete:
        return f"the call ended early, after line {last.line + 1} of the script: {times.trouble or times.reason}"
    return measurements.guard.reason if measurements.guard.is_tripped else ""


# ── The scorer ──

MEASURING_THREADS = 2
_measuring_executor = ThreadPoolExecutor(MEASURING_THREADS, "pramana-measures")
"""Separate threads: each waits for speech recognition, which runs in the shared threads. In one pool, all threads could
be waiting, with none left to run it."""


class _RecognitionFailed(Exception):
    """Speech recognition failed, with the reason."""


class CallScorer:
    """Implements `CaseScorer` for calls."""

    def __init__(self, read_blob: Callable[[str], bytes], ears: SpeechRecognition, *, by_whisper: bool = False) -> None:
        """`by_whisper` is set if `ears` is the embedded speech recognition, whose engine is added to the evidence."""
        self._blob, self._ears, self._by_whisper = read_blob, ears, by_whisper

    async def score(self, case: Case, reply: Reply) -> Check:
        """Measure the call of a reply; damaged evidence makes an errored check and never ends a run."""
        assert reply.call is not None  # noqa: S101 - only calls come here
        loop = asyncio.get_running_loop()
        try:
            async with process_slots.engine_work:
                return await loop.run_in_executor(_measuring_executor, self._measure, case, reply.call, loop)
        except PramanaError as error:
            return _make_unmeasured_check(str(error))
        except RecursionError:
            return _make_unmeasured_check("its event log is nested too deep")
        except Exception as error:  # noqa: BLE001 - an internal error must not lose a reply that was paid for
            return _make_unmeasured_check(f"{type(error).__name__}: {error}")

    def _measure(self, case: Case, call: RecordedCall, loop: asyncio.AbstractEventLoop) -> Check:
        from pramana.embedded import activity, quality

        language = case.facets.language or "en"
        samples, rate = audio.read_wav(self._blob(call.recording))
        events = _parse_events(self._blob(call.log))

        def transcribe(clip: Any) -> str:
            try:
                return asyncio.run_coroutine_threadsafe(self._ears.transcribe(clip, language), loop).result()
            except Exception as error:
                why = str(error) if isinstance(error, PramanaError) else f"{type(error).__name__}: {error}"
                raise _RecognitionFailed(f"the recording could not be transcribed: {why}") from error

        def measure_as(*languages: str) -> CallMeasurements:
            return measure_call(
                samples,
                rate,
                events,
                transcribe=transcribe,
                transcribable_languages=languages,
                language=language,
                references=[line.reference for line in case.script],
                detect_speech=activity.find_speech_spans,
                vad_label=activity.DETECTOR_SETTINGS_TEXT,
                estimate_quality=quality.estimate_quality,
                line_count=max(1, len(case.script)),
            )

        try:
            found = measure_as(language) if self._ears.supports_language(language) else measure_as()
        except _RecognitionFailed as unheard:
            found = _add_no_transcript_reason(measure_as(), str(unheard))
        # The reason for missing words was recorded during the call; recognition today cannot know it better.
        told = [event["text"] for event in events if event.get("event") == "not_written_down" and event.get("text")]
        check = make_call_check(replace(found, words=replace(found.words, why_not=str(told[0]))) if told else found)
        if self._by_whisper and found.words.recorded is not None:
            from pramana.embedded.ears import engine_info

            check = replace(check, evidence={**check.evidence, "engine": str(engine_info())})
        return check


def _parse_events(log: bytes) -> list[Any]:
    """Return the events of a log; an invalid line raises an error with its number."""
    events = []
    for number, line in enumerate(log.splitlines(), 1):
        try:
            events.append(json.loads(line))
        except RecursionError:
            raise InvalidInput(f"line {number} of the event log is nested too deep") from None
        except ValueError:
            raise InvalidInput(f"line {number} of the event log is not JSON") from None
    return events


def _add_no_transcript_reason(measurements: CallMeasurements, reason: str) -> CallMeasurements:
    """Return the measurements of a call without a transcript, with this reason for it."""
    guard, before = measurements.guard, measurements.words.why_not
    guard = replace(guard, reason=guard.reason.replace(before, reason)) if guard.state == "not checked" else guard
    return replace(measurements, words=replace(measurements.words, why_not=reason), guard=guard)


def _make_unmeasured_check(reason: str) -> Check:
    return Check(CHECK_NAME, "1", Outcome.ERRORED, f"the call could not be measured: {reason}")
