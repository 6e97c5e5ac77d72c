"""Vapi's WebSocket transport as strict as the vendor: the request for a call is checked against what Vapi documents."""

import json
from typing import Any

from aiohttp import web

from pramana.loopback import declared
from pramana.loopback.declared import CODEC_BY_NAME
from pramana.loopback.voice import ReceivedRequest
from pramana.providers.voice.vocabulary import Message


class VapiAgent(declared.VapiAgent):
    """One call."""

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:  # noqa: ARG003 - the address is the proof
        if request.path.split("/")[1] not in cls._creation_body_by_call_id:
            return web.json_response(cls.make_error_body(404, "No such call"), status=404)
        return None

    @classmethod
    def answer_http(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response:
        if (request.method, request.path) != ("POST", "/call"):
            return web.json_response(cls.make_error_body(404, "Not found"), status=404)
        if accepted_key is not None and request.headers.get("Authorization") != f"Bearer {accepted_key}":
            return web.json_response(cls.make_error_body(401, "Invalid Key"), status=401)
        if wrong := find_request_problem(request.body):
            return web.json_response(cls.make_error_body(400, wrong), status=400)
        return super().answer_http(request, accepted_key)

    @classmethod
    def make_error_body(cls, status: int, message: str) -> Any:
        kinds = {400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}
        return {"message": message, "error": kinds.get(status, "Internal Server Error"), "statusCode": status}

    def handle_message(self, message: Message) -> list[Message]:
        if isinstance(message, str):
            try:
                kind = json.loads(message).get("type")
            except (AttributeError, ValueError):
                kind = None
            if kind not in ("hangup", "end-call"):
                self.hang_up(1008, f"unknown control message {kind}")
                return []
        return super().handle_message(message)


def find_request_problem(body: Any) -> str | None:
    """Return what is wrong with a request for a call, or None."""
    if not isinstance(body, dict) or not isinstance(body.get("assistantId"), str):
        return "assistantId must be a string"
    if extra := body.keys() - {"assistantId", "assistantOverrides", "transport"}:
        return f"property {min(extra)} should not exist"
    transport = body.get("transport")
    if not isinstance(transport, dict) or transport.get("provider") != "vapi.websocket":
        return "transport.provider must be vapi.websocket"
    form = transport.get("audioFormat")
    if not isinstance(form, dict) or form.get("format") not in CODEC_BY_NAME or form.get("container") != "raw":
        return "transport.audioFormat needs a format and the container raw"
    return None if type(form.get("sampleRate")) is int else "transport.audioFormat.sampleRate must be an integer"
