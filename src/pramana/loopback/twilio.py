"""An agent's server as Twilio Media Streams meets it: whoever calls is Twilio, μ-law in base64 goes both ways.

After each answer it asks for a mark, and keeps those that came back. What comes is taken to be right: the servers
of our tests check it.
"""

import base64
import json
from typing import Any

from pramana import clock
from pramana.loopback.script import Script
from pramana.loopback.voice import Agent, Got
from pramana.providers.voice.vocabulary import Format, Message


class TwilioAgent(Agent):
    """One stream."""

    path = r"/.*"
    uplink = Format("mulaw", 8000)
    downlink = Format("mulaw", 8000)

    def __init__(self, script: Script, got: Got) -> None:
        super().__init__(script, got)
        self.asked = f"ws://{got.headers['Host']}{got.path}"
        self.downlink = Format("mulaw", script.wrong_rate or 8000)
        self.stream = ""
        self.marks: list[tuple[str, float]] = []
        """Those that came back, and when."""
        self.stopped = False
        self._asked_marks = 0

    def take(self, message: Message) -> list[Message]:
        data = json.loads(message)
        match data["event"]:
            case "start":
                self.stream = data["start"]["streamSid"]
                self.be_ready()
            case "media":
                self.hear(base64.b64decode(data["media"]["payload"]))
            case "mark":
                self.marks.append((data["mark"]["name"], clock.monotonic()))
            case "stop":
                self.stopped = True
        return []

    def sound(self, chunk: bytes) -> list[Message]:
        return [self._said(event="media", media={"payload": base64.b64encode(chunk).decode()})]

    def answer_ends(self) -> list[Message]:
        self._asked_marks += 1
        return [self._said(event="mark", mark={"name": f"answer {self._asked_marks}"})]

    def interrupted(self, *, sending: bool) -> list[Message]:  # noqa: ARG002
        return [self._said(event="clear")]

    def odd(self, filler: str) -> list[Message]:
        return [self._said(event="unheard-of", filler=filler)]

    def _said(self, **message: Any) -> str:
        return json.dumps({**message, "streamSid": self.stream})
