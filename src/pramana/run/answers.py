"""Which answer a sound or a word belongs to: lines, sound, words and ends come in, the answer to each line goes out.

Agents do not say what they answer. Until a line is over, what is heard is no answer to it unless it goes on behind the
line's end; while an answer is talked into, sound and words that still come are its own; who only says that they listen
is not answered at all. All of these rules are here, and none of them knows how long anybody waits.
"""

from msgspec import Struct, field

from pramana.providers.voice.vocabulary import CORRECTION_KEY, Event
from pramana.run.sound import Playout, SoundPiece

MAX_PAUSE_IN_SPEECH_S = 0.2
"""Silence up to here is part of speech, as between two words."""


class Answer(Struct):
    """What the agent says to one line."""

    asked: float
    """Where the last audible sample of the line ends."""
    first: float | None = None
    """When its first sound arrived."""
    audible: float | None = None
    """When its first audible sound is played."""
    until: float = 0.0
    """When its last audible sound has been."""
    done: bool = False
    """The agent has said that it is over."""
    cut: bool = False
    """It was talked into, and some of it was never heard."""
    last_arrival: float = 0.0
    """Of sound that is audible."""
    final: str = ""
    parts: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    """Words of what was heard within the line, and was no answer to it."""
    settled: bool = False
    """The line is over, and it is known whether what was heard until then is an answer."""

    @property
    def text(self) -> str:
        return _join_surrogates(self.final or "".join(self.parts))

    def reset(self) -> None:
        """Begin again: what was heard until now is no answer."""
        self.aside += filter(None, [self.text])
        self.first = self.audible = None
        self.until, self.done, self.final, self.parts = 0.0, False, "", []


def _join_surrogates(text: str) -> str:
    """Return text in which halves of a character that came in two pieces are one, and a half alone is none.

    >>> _join_surrogates("nine \\ud83d" + "\\ude00") == "nine \\U0001f600"
    True
    """
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Interruption(Struct, frozen=True):
    """What became of the agent's word that it was interrupted."""

    dropped_s: float
    """Of sound that had arrived and will never be played."""
    played_s: float | None
    """Of the answer that was cut off; None where nothing was to be heard any more, and it was no interruption."""


class Answers:
    """The answers of one call. Positions are seconds since its first frame."""

    def __init__(self, playout: Playout, *, says_interrupted: bool | None) -> None:
        """`says_interrupted`: the agent's format has a word for it; None where that is not known."""
        self._playout, self._says_interrupted = playout, says_interrupted
        self.all: list[Answer] = []
        """One for each line that was begun."""
        self.current = Answer(asked=0.0, settled=True)
        """To nothing yet: a greeting."""
        self._interrupted_answer: Answer | None = None
        """The answer before, of which something was left when the line at hand began."""
        self._continues = False
        """More of it comes: what is heard is no answer to the new line."""
        self._is_backchannel = False
        """The line at hand says only that somebody listens: the agent goes on with what it says."""

    # ── The caller ──

    def is_sounding(self, now: float) -> bool:
        """Tell whether the agent is in the middle of something, be it between two words."""
        return self._playout.audible_end > now or self._sending(self.current, now)

    def silent_s(self, now: float) -> float | None:
        """Return for how long the answer at hand is silent; None while it is heard, and before."""
        self._settle(now)
        if self.current.audible is None or now < self._playout.audible_end:
            return None
        return now - max(self._playout.audible_end, self.current.last_arrival)

    def begin_line(self, now: float, ends: float, *, is_backchannel: bool) -> None:
        """Begin a line whose last audible sample ends at a position."""
        self._settle(now)
        self._is_backchannel = is_backchannel
        answer = Answer(ends)
        self.all.append(answer)
        if is_backchannel:
            return
        before = self.current
        self._interrupted_answer = before if self.is_sounding(now) else None
        self._continues = self._interrupted_answer is not None and not before.done
        if self._continues:
            before.cut = True  # unless it turns out that it went on to its end
        self.current = answer

    # ── The agent ──

    def add_sound(self, data: bytes, now: float) -> SoundPiece:
        """Let sound be played, and count it to the answer it is of."""
        self._settle(now)
        if self._continues and now > self._playout.audible_end + MAX_PAUSE_IN_SPEECH_S:
            self._continues = False  # it had run out
        answer = self._interrupted_answer if self._continues and self._interrupted_answer else self.current
        if answer is self.current and answer.first is None:
            self._playout.begin_answer()
        elif answer is self.current and answer.done and now < answer.asked and self._playout.audible_end <= now:
            answer.reset()  # it said something into the line, and now something else
            self._playout.begin_answer()
        piece = self._playout.add(data, now)
        answer.first = now if answer.first is None else answer.first
        if piece.audible:
            answer.audible = piece.audible[0] if answer.audible is None else answer.audible
            answer.until, answer.last_arrival = piece.audible[1], now
        return piece

    def add_words(self, event: Event, now: float) -> None:
        """Count words to the answer they are of; what corrects others takes their place."""
        self._settle(now)
        if (original := event.detail.get(CORRECTION_KEY)) is not None:
            self._correct_words(str(original), event.text)
            return
        answer = self._answer_of_words(now)
        if event.final:
            answer.final = f"{answer.final} {event.text}".strip()
        else:
            answer.parts.append(event.text)

    def end_answer(self, now: float) -> None:
        """Count the agent's word that its answer is over."""
        self._settle(now)
        if self._continues and self._interrupted_answer:
            self._interrupted_answer.done, self._continues = True, False
            if self._says_interrupted:
                self._interrupted_answer.cut = False  # it was not interrupted, or it had said so
        elif self.current.audible is not None:
            self.current.done = True

    def interrupt(self, now: float) -> Interruption:
        """Drop what was not played; it is an interruption only where something was still to be heard."""
        self._settle(now)
        speaking = self._interrupted_answer if self._continues and self._interrupted_answer else self.current
        sending, left = self._sending(speaking, now), self._playout.audible_end > now
        played = self._playout.played_s(now)
        dropped = self._playout.drop(now)
        if not sending and not left:
            return Interruption(dropped, None)
        self._playout.begin_answer()
        self._continues = False
        for answer in (self._interrupted_answer, self.current):
            if answer and (answer.until > now or (answer is speaking and sending)):
                answer.cut, answer.until = True, min(answer.until, now)
        if self._is_backchannel:
            self.current.done = False  # it may go on with what it said
        elif self.current.audible is not None:
            self.current.cut = False
            self.current.reset()
        return Interruption(dropped, played)

    def _settle(self, now: float) -> None:
        """Put aside what was heard while the line was said, once that is over, unless it is heard beyond its end."""
        answer = self.current
        if answer.settled or now < answer.asked:
            return
        answer.settled = True
        if answer.audible is not None and answer.until <= answer.asked:
            answer.reset()

    def _sending(self, answer: Answer, now: float) -> bool:
        return (
            answer.audible is not None and not answer.done and self._playout.audible_end > now - MAX_PAUSE_IN_SPEECH_S
        )

    def _answer_of_words(self, now: float) -> Answer:
        """Return whose words come now: until a line is over, they are of the answer that it was said into."""
        before, answer = self._interrupted_answer, self.current
        if before and (self._continues or (now < answer.asked and answer.audible is None)):
            return before
        return answer

    def _correct_words(self, original: str, corrected: str) -> None:
        for answer in (self.current, *reversed(self.all)):
            if original and original in answer.text:
                answer.final, answer.parts = answer.text.replace(original, corrected), []
                return
