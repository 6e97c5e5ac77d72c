"""Assigns the agent's sound and words to lines: lines, sound, words and ends come in, the answer to each line goes out.

Agents do not say which line they answer. Sound during a line is no answer to it unless it continues past the line's
end. After a barge-in, sound and words that still arrive belong to the interrupted answer. Backchannels get no answer.
All of these rules are here; timeouts are not.
"""

from msgspec import Struct, field

from pramana.providers.voice.vocabulary import CORRECTED_WORDS_KEY, Event
from pramana.run.sound import Playout, SoundPiece

MAX_PAUSE_IN_SPEECH_S = 0.2
"""Longer silence ends a stretch of speech; shorter silence occurs between words."""


class LineAnswer(Struct):
    """The agent's answer to one line."""

    line_end_s: float
    """Position of the end of the line's last audible sample."""
    first_arrival_s: float | None = None
    """When its first sound arrived."""
    first_audible_s: float | None = None
    """When its first audible sound is played."""
    last_audible_s: float = 0.0
    """When its last audible sound ends."""
    is_declared_over: bool = False
    """Whether the agent has declared its end."""
    was_interrupted: bool = False
    """Whether the caller interrupted it, so that some of it was never heard."""
    last_arrival_s: float = 0.0
    """When audible sound last arrived."""
    final_text: str = ""
    partial_texts: list[str] = field(default_factory=list)
    words_during_line: list[str] = field(default_factory=list)
    """Words of sound during the line, set aside because they are no answer to it."""
    is_sound_during_line_settled: bool = False
    """Whether the line is over and it is decided if sound during it is an answer."""

    @property
    def text(self) -> str:
        return _join_surrogates(self.final_text or "".join(self.partial_texts))

    def reset(self) -> None:
        """Start over: the sound so far is no answer."""
        self.words_during_line += filter(None, [self.text])
        self.first_arrival_s = self.first_audible_s = None
        self.last_audible_s, self.is_declared_over, self.final_text, self.partial_texts = 0.0, False, "", []


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs that arrived in two pieces, and replace lone surrogates.

    >>> _join_surrogates("nine \\ud83d" + "\\ude00") == "nine \\U0001f600"
    True
    """
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Interruption(Struct, frozen=True):
    """The effect of the agent's report that it was interrupted."""

    dropped_s: float
    """Seconds of sound that had arrived and will never be played."""
    played_s: float | None
    """Seconds played of the answer that was cut off; None if nothing was left to hear, so it was no interruption."""


class CallAnswers:
    """The answers of one call. Positions are seconds since the call's first frame."""

    def __init__(self, playout: Playout, *, says_interrupted: bool | None) -> None:
        """`says_interrupted`: whether the agent's wire format reports interruptions; None where that is not known."""
        self._playout, self._says_interrupted = playout, says_interrupted
        self.all: list[LineAnswer] = []
        """One for each line begun."""
        self.current = LineAnswer(line_end_s=0.0, is_sound_during_line_settled=True)
        """A greeting, which answers no line."""
        self._interrupted_answer: LineAnswer | None = None
        """The previous answer, if some of it was left to play when the current line began."""
        self._previous_continues = False
        """Whether it continues, so that sound is no answer to the current line."""
        self._is_backchannel = False
        """Whether the current line is a backchannel, so that the agent goes on with its answer."""

    # ── The caller ──

    def is_agent_speaking(self, now: float) -> bool:
        """Return whether the agent is speaking, pauses between words included."""
        return self._playout.audible_end > now or self._is_sending(self.current, now)

    def silence_s(self, now: float) -> float | None:
        """Return how long the current answer has been silent; None while it is audible, and before."""
        self._set_aside_sound_during_line(now)
        if self.current.first_audible_s is None or now < self._playout.audible_end:
            return None
        return now - max(self._playout.audible_end, self.current.last_arrival_s)

    def begin_line(self, now: float, line_end_s: float, *, is_backchannel: bool) -> None:
        """Begin a line; `line_end_s` is the position of the end of its last audible sample."""
        self._set_aside_sound_during_line(now)
        self._is_backchannel = is_backchannel
        answer = LineAnswer(line_end_s)
        self.all.append(answer)
        if is_backchannel:
            return
        before = self.current
        self._interrupted_answer = before if self.is_agent_speaking(now) else None
        self._previous_continues = self._interrupted_answer is not None and not before.is_declared_over
        if self._previous_continues:
            before.was_interrupted = True  # unless it later plays to its end
        self.current = answer

    # ── The agent ──

    def add_sound(self, data: bytes, now: float) -> SoundPiece:
        """Queue sound for playout and assign it to its answer."""
        self._set_aside_sound_during_line(now)
        if self._previous_continues and now > self._playout.audible_end + MAX_PAUSE_IN_SPEECH_S:
            self._previous_continues = False  # its sound had run out
        answer = self._interrupted_answer if self._previous_continues and self._interrupted_answer else self.current
        if answer is self.current and answer.first_arrival_s is None:
            self._playout.begin_answer()
        elif (
            answer is self.current
            and answer.is_declared_over
            and now < answer.line_end_s
            and self._playout.audible_end <= now
        ):
            answer.reset()  # the agent spoke during the line; this is something new
            self._playout.begin_answer()
        piece = self._playout.add(data, now)
        answer.first_arrival_s = now if answer.first_arrival_s is None else answer.first_arrival_s
        if piece.audible_range_s:
            answer.first_audible_s = (
                piece.audible_range_s[0] if answer.first_audible_s is None else answer.first_audible_s
            )
            answer.last_audible_s, answer.last_arrival_s = piece.audible_range_s[1], now
        return piece

    def add_words(self, event: Event, now: float) -> None:
        """Add words to the answer they belong to; corrections replace earlier words."""
        self._set_aside_sound_during_line(now)
        if (original := event.detail.get(CORRECTED_WORDS_KEY)) is not None:
            self._correct_words(str(original), event.text)
            return
        answer = self._find_answer_of_words(now)
        if event.final:
            answer.final_text = f"{answer.final_text} {event.text}".strip()
        else:
            answer.partial_texts.append(event.text)

    def record_answer_end(self, now: float) -> None:
        """Record the agent's report that its answer is over."""
        self._set_aside_sound_during_line(now)
        if self._previous_continues and self._interrupted_answer:
            self._interrupted_answer.is_declared_over, self._previous_continues = True, False
            if self._says_interrupted:
                self._interrupted_answer.was_interrupted = False  # it was not interrupted, or the report came first
        elif self.current.first_audible_s is not None:
            self.current.is_declared_over = True

    def record_interruption(self, now: float) -> Interruption:
        """Drop sound that was not played; it is an interruption only if something was left to hear."""
        self._set_aside_sound_during_line(now)
        speaking = self._interrupted_answer if self._previous_continues and self._interrupted_answer else self.current
        sending, left = self._is_sending(speaking, now), self._playout.audible_end > now
        played = self._playout.measure_played_answer_s(now)
        dropped = self._playout.drop_unplayed(now)
        if not sending and not left:
            return Interruption(dropped, None)
        self._playout.begin_answer()
        self._previous_continues = False
        for answer in (self._interrupted_answer, self.current):
            if answer and (answer.last_audible_s > now or (answer is speaking and sending)):
                answer.was_interrupted, answer.last_audible_s = True, min(answer.last_audible_s, now)
        if self._is_backchannel:
            self.current.is_declared_over = False  # the agent may continue the answer
        elif self.current.first_audible_s is not None:
            self.current.was_interrupted = False
            self.current.reset()
        return Interruption(dropped, played)

    def _set_aside_sound_during_line(self, now: float) -> None:
        """Set aside sound heard during the line, once the line is over, unless it continues past the line's end."""
        answer = self.current
        if answer.is_sound_during_line_settled or now < answer.line_end_s:
            return
        answer.is_sound_during_line_settled = True
        if answer.first_audible_s is not None and answer.last_audible_s <= answer.line_end_s:
            answer.reset()

    def _is_sending(self, answer: LineAnswer, now: float) -> bool:
        return (
            answer.first_audible_s is not None
            and not answer.is_declared_over
            and self._playout.audible_end > now - MAX_PAUSE_IN_SPEECH_S
        )

    def _find_answer_of_words(self, now: float) -> LineAnswer:
        """Return the answer to which words belong that arrive now: until a line is over, the one it interrupts."""
        before, answer = self._interrupted_answer, self.current
        if before and (self._previous_continues or (now < answer.line_end_s and answer.first_audible_s is None)):
            return before
        return answer

    def _correct_words(self, original: str, corrected: str) -> None:
        for answer in (self.current, *reversed(self.all)):
            if original and original in answer.text:
                answer.final_text, answer.partial_texts = answer.text.replace(original, corrected), []
                return
