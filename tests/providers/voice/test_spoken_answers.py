"""Answers of the embedded agent: plain sentences, within limits, and an apology when there is no answer."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest

from pramana.embedded import language
from pramana.embedded.speakable import (
    has_repetition,
    has_sentence_or_clause_end,
    make_speakable,
    remove_repetition,
    shorten_to_words,
    trim_to_last_sentence_or_clause,
)
from pramana.embedded.voice import speak
from pramana.errors import ProviderError
from pramana.model import Line, Provider, Reply, Request, Target, Turn, Utterance
from pramana.providers.text.fake import FakeProvider, parse_fake
from pramana.providers.text.local import MAX_SPOKEN_GENERATION_S, MAX_SPOKEN_TOKENS, SPOKEN_SAMPLING, LocalProvider
from pramana.providers.voice.cascade import (
    FITTING_TIMEOUT_S,
    MAX_ANSWER_S,
    NO_ANSWER_APOLOGY,
    NOT_UNDERSTOOD_APOLOGY,
    REPLY_TIMEOUT_S,
    TRANSCRIPTION_TIMEOUT_S,
    Cascade,
    FailureBehaviour,
    make_embedded_cascade,
)
from pramana.providers.voice.embedded import EmbeddedSynthesis
from pramana.providers.voice.vocabulary import CallSetup, SpeechRecognition
from pramana.run.call import Conversation, FinishedCall, Patience

from ...embedded_faults import FaultyServer, make_loader, use_fault

ASKED = "When do you open?"
GREEDY = {"temperature": 0, "seed": 42}


# ── Text ──


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("We open at nine.", "We open at nine."),
        ("**Nine** or _ten_, `maybe`.", "Nine or ten, maybe."),
        ("# Hours\n\n1. Nine\n2. Ten\n", "Hours. Nine. Ten."),
        ("* one\n* two", "one. two."),
        ("See [the page](https://a.b/c) 🙂", "See the page"),
        ("```python\nx\n```", "x"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a b. 1 2."),
        ("<b>Yes</b>,\x00 sir", "Yes , sir"),
        ("snake_case and 2 * 3", "snake_case and 2 3"),
        ("---", ""),
        ("🙂 ***", ""),
        ("", ""),
    ],
)
def test_markup_lists_and_pictures_are_not_spoken(written: str, spoken: str) -> None:
    assert make_speakable(written) == spoken
    assert make_speakable(spoken) == spoken


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("The answer is: The answer is: The answer is: The", "The answer is:"),
        ("It is the knight. It is the knight. It is the knight.", "It is the knight."),
        ("no no no no no no", "no"),
        ("I like the sea and the sky. I like the sea and the sky. Yes.", "I like the sea and the sky."),
        ("One cat is here now. A dog. One cat is here too. A bird. One cat is here again.", None),
        ("It is very, very big.", None),
        ("No, no, no!", None),
        ("", None),
    ],
)
def test_repetition_is_removed(text: str, kept: str | None) -> None:
    if kept is None and text.startswith("One cat"):
        kept = "One cat is here now. A dog."  # the same four words, a third time
    assert has_repetition(text) is (kept is not None)
    assert remove_repetition(text) == (text if kept is None else kept)


def test_a_long_answer_ends_at_a_sentence_clause_or_word() -> None:
    text = "It is big. It is blue, they say, and deep and wide and cold and old."
    assert shorten_to_words(text, 100) == text
    assert shorten_to_words(text, 9) == "It is big."
    assert shorten_to_words(text.removeprefix("It is big. "), 8) == "It is blue, they say."
    assert shorten_to_words("one two three four", 2) == "one two."
    assert shorten_to_words("one two", 0) == ""
    assert trim_to_last_sentence_or_clause("It costs 3.5 euros") == "It costs 3.5 euros."
    assert trim_to_last_sentence_or_clause("It is Dr. Smith, the") == "It is Dr. Smith."
    assert not has_sentence_or_clause_end("The answer is:")


# ── The model ──


def ask(provider: Provider, **parameters: Any) -> Reply:
    return asyncio.run(provider.ask(Request("local", (Turn("user", ASKED),), {**GREEDY, **parameters})))


def spoken_model() -> LocalProvider:
    return LocalProvider.open(Target("local", "local", "local", {}), None).for_speech()


class RecordingServer(FaultyServer):
    """A model server that records the body of its request."""

    def handle_chat_completions(self, body: Any, take: Any) -> None:
        self.body = body
        super().handle_chat_completions(body, take)


def test_a_spoken_answer_has_its_own_limits_and_sampling() -> None:
    server = RecordingServer("empty")
    with patch.object(language.Engine, "_load", make_loader(server)):
        ask(spoken_model())
        assert server.body["max_tokens"] == MAX_SPOKEN_TOKENS
        assert SPOKEN_SAMPLING.items() <= server.body.items()
        ask(spoken_model(), max_tokens=5, dry_multiplier=0)
        assert (server.body["max_tokens"], server.body["dry_multiplier"]) == (5, 0)
        ask(spoken_model(), max_tokens=500)
        assert server.body["max_tokens"] == MAX_SPOKEN_TOKENS
        ask(LocalProvider.open(Target("local", "local", "local", {}), None))
        assert server.body["max_tokens"] == language.MAX_REPLY_TOKENS
        assert not SPOKEN_SAMPLING.keys() & server.body.keys()


@pytest.mark.usefixtures("real_models")
def test_the_runtime_accepts_the_sampling_of_spoken_answers() -> None:
    reply = ask(spoken_model(), max_tokens=4)
    assert reply.usage.output_tokens is not None
    assert reply.usage.output_tokens <= 4


def test_a_looping_answer_is_stopped_and_marked() -> None:
    with use_fault("loop"):
        reply = ask(spoken_model())
    assert (reply.finish_reason, reply.text) == ("repetition", "")  # half a sentence is no answer
    assert (
        len(reply.response()["choices"][0]["message"]["content"].split()) < MAX_SPOKEN_TOKENS
    )  # what it did say is kept


@pytest.mark.usefixtures("virtual_time")
def test_a_slow_model_is_stopped_and_its_text_kept() -> None:
    with patch.object(language.Engine, "_load", make_loader(FaultyServer("long", MAX_SPOKEN_GENERATION_S / 4))):
        reply = ask(spoken_model())
    assert reply.finish_reason == "time"
    assert reply.text.startswith("word1, word2")
    assert reply.text.endswith(".")


# ── The call ──


class DeafRecognition:
    """Speech recognition that takes a while and recognises nothing."""

    def __init__(self, words: str = "", seconds: float = 0.0) -> None:
        self.words, self.seconds = words, seconds

    def supports_language(self, _language: str) -> bool:
        return True

    async def transcribe(self, _samples: Any, _language: str) -> str:
        await asyncio.sleep(self.seconds)
        return self.words


def hold_call(ears: SpeechRecognition, mind: str, manner: FailureBehaviour) -> FinishedCall:
    agent = Cascade(ears, FakeProvider(**parse_fake(mind)), EmbeddedSynthesis(), failure_behaviour=manner)
    said = [Utterance(Line(ASKED), speak(ASKED, "en"), "sha256:x")]

    async def call() -> FinishedCall:
        channel = await agent.dial(CallSetup("x"))
        return await Conversation(channel, said, {"rate": 24000}, Patience()).hold_call()

    return asyncio.run(call())


def find_texts(of: FinishedCall, kind: str) -> Sequence[str]:
    return [each["text"] for each in map(json.loads, of.log.splitlines()) if each["event"] == kind]


EMBEDDED = FailureBehaviour(
    apologises=True,
    recognition_timeout_s=TRANSCRIPTION_TIMEOUT_S,
    reply_timeout_s=REPLY_TIMEOUT_S,
    shortening_timeout_s=FITTING_TIMEOUT_S,
    max_answer_s=MAX_ANSWER_S,
)


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize(
    ("ears", "mind", "answer"),
    [
        (DeafRecognition(), "fixed=Nine.", NOT_UNDERSTOOD_APOLOGY),
        (DeafRecognition(ASKED, seconds=60), "fixed=Nine.", NOT_UNDERSTOOD_APOLOGY),
        (DeafRecognition(ASKED), "fixed=", NO_ANSWER_APOLOGY),
        (DeafRecognition(ASKED), "fixed=***", NO_ANSWER_APOLOGY),
        (DeafRecognition(ASKED), "fixed=日本", NO_ANSWER_APOLOGY),
        (DeafRecognition(ASKED), "latency=60,fixed=Nine.", NO_ANSWER_APOLOGY),
        (DeafRecognition(ASKED), "rejected=1,fixed=Nine.", NO_ANSWER_APOLOGY),
        (DeafRecognition(ASKED), "fixed=**Nine**.", "Nine."),
    ],
)
def test_an_agent_that_apologises_is_never_silent(ears: SpeechRecognition, mind: str, answer: str) -> None:
    call = hold_call(ears, mind, EMBEDDED)
    assert (call.end_reason, call.answers) == ("done", (answer,))
    assert find_texts(call, "turn_done") == ["completed"]


@pytest.mark.usefixtures("virtual_time")
def test_the_limits_of_an_answer_are_within_the_callers_patience() -> None:
    call = hold_call(
        DeafRecognition(ASKED, seconds=TRANSCRIPTION_TIMEOUT_S - 0.1),
        f"latency={REPLY_TIMEOUT_S - 0.1},fixed=Nine.",
        EMBEDDED,
    )
    assert (call.end_reason, call.answers) == ("done", ("Nine.",))
    endpointing_s, voice_s = 0.5, 1.5
    assert (
        Patience().answer_within_s
        > endpointing_s + TRANSCRIPTION_TIMEOUT_S + REPLY_TIMEOUT_S + FITTING_TIMEOUT_S + voice_s
    )


@pytest.mark.usefixtures("virtual_time")
def test_other_models_are_not_limited_in_time_or_length() -> None:
    long = "This is a long answer, and nobody cuts it short, however long it is going to take to say all of it. " * 3
    call = hold_call(DeafRecognition(ASKED), f"latency={REPLY_TIMEOUT_S + 2},fixed={long}", FailureBehaviour())
    assert call.answers == (" ".join(long.split()),)


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("answer", ["12. That is seven plus five.", "C# is > Java and 2*3*4 is 2^3 * 3.", "1. Tea"])
def test_other_models_are_spoken_verbatim(answer: str) -> None:
    assert hold_call(
        DeafRecognition(ASKED), f"fixed={answer}", make_embedded_cascade(FakeProvider()).failure_behaviour
    ).answers == (answer,)


@pytest.mark.usefixtures("virtual_time")
def test_other_models_get_no_substitute_answer() -> None:
    call = hold_call(DeafRecognition(ASKED), "fixed=", make_embedded_cascade(FakeProvider()).failure_behaviour)
    assert NO_ANSWER_APOLOGY not in call.answers
    assert find_texts(call, "turn_done") == ["empty"]


def test_only_the_embedded_model_is_limited() -> None:
    assert (
        make_embedded_cascade(LocalProvider.open(Target("local", "local", "local", {}), None)).failure_behaviour
        == EMBEDDED
    )
    assert make_embedded_cascade(FakeProvider()).failure_behaviour == FailureBehaviour(apologises=True)


def test_an_answer_may_use_its_whole_limit() -> None:
    text = "The sea is deep and the sky is wide, and so it goes. " * 20
    words = asyncio.run(EmbeddedSynthesis().fit_text(text, "en", 6.0))
    assert 3.0 < len(speak(words, "en")) / 16000 <= 6.0
    assert text.startswith(words)
    assert asyncio.run(EmbeddedSynthesis().fit_text("Nine.", "en", 6.0)) == "Nine."
    assert asyncio.run(EmbeddedSynthesis().fit_text(text, "en", 0.05)) == ""


def test_a_timeout_within_a_part_is_an_error_of_the_agent() -> None:
    class LateRecognition(DeafRecognition):
        async def transcribe(self, _samples: Any, _language: str) -> str:
            raise TimeoutError("no answer")

    with pytest.raises(ProviderError, match="the agent failed: TimeoutError: no answer"):
        hold_call(LateRecognition(), "fixed=Nine.", EMBEDDED)
