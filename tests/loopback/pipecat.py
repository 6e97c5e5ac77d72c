"""A Pipecat bot as strict as the vendor: anything but a frame or an RTVI message ends the call."""

import json

from aiohttp import web

from pramana.loopback import declared
from pramana.loopback.voice import ReceivedRequest
from pramana.providers.voice import pipecat
from pramana.providers.voice.vocabulary import Message


class PipecatAgent(declared.PipecatAgent):
    """One bot."""

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:  # noqa: ARG003 - a bot has no key
        return None

    def handle_message(self, message: Message) -> list[Message]:
        try:
            kind, fields = (
                pipecat.decode_frame(message) if isinstance(message, bytes) else ("message", {"data": message})
            )
            data = json.loads(str(fields.get("data", "null"))) if kind == "message" else None
        except ValueError as error:
            return self._refuse(f"no frame: {error}")
        if kind == "audio":
            if not self.ready or (fields.get("sample_rate"), fields.get("num_channels")) != (self.uplink.rate, 1):
                return self._refuse(
                    f"sound of {fields.get('sample_rate')!r} Hz does not fit, or came before client-ready"
                )
            return super().handle_message(message)
        if not isinstance(data, dict) or data.get("label") != "rtvi-ai" or not isinstance(data.get("id"), str):
            return self._refuse("no message of RTVI")
        if data.get("type") != "client-ready" or not isinstance(data.get("data", {}).get("version"), str):
            return [self._rtvi_message("error-response", {"error": f"Unsupported type {data.get('type')}"}, data["id"])]
        return super().handle_message(message)

    def _refuse(self, why: str) -> list[Message]:
        self.hang_up(1008, why[:120])
        return []
