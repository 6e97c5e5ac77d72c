"""The HTTP transport against byte-level servers: truncation at every place, every refusal, and no key shown."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pramana import clock
from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    InvalidInput,
    NotAnApi,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    UnknownModel,
)
from pramana.providers.accounts import Account
from pramana.providers.http import MAX_REPLY_BYTES, EventParser, HttpTransport
from pramana.providers.reading import ReplyReader

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-secret-0123456789"


class BytesServer:
    """A server that answers each connection's request with the same bytes, and keeps what it read."""

    def __init__(self, *pieces: bytes, stay: bool = False) -> None:
        self.pieces, self.stay = pieces, stay
        self.read: list[bytes] = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
                )
                self.read.append(head + await reader.readexactly(size))
                for piece in self.pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.002)  # so that each piece becomes a separate chunk
                if not self.stay:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def serving(*pieces: bytes, stay: bool = False) -> AsyncIterator[BytesServer]:
    served = BytesServer(*pieces, stay=stay)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield served
    finally:
        server.close()


def make_head(kind: str = "text/event-stream", status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Connection: close\r\n\r\n".encode()


def answer(body: Any, status: str = "200 OK", more: str = "", kind: str = "application/json") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return make_head(kind, status, f"{more}Content-Length: {len(content)}\r\n") + content


class Received(NamedTuple):
    event: str | None
    data: Any
    at: float
    whole: bool


class Collected(ReplyReader):
    """Keeps every event it is given."""

    def __init__(self, http: HttpTransport) -> None:
        super().__init__(http.failures)
        self.events: list[Received] = []

    def handle_event(self, event: str | None, data: Any) -> None:
        self.events.append(Received(event, data, self.at, self.is_whole))


async def post(http: HttpTransport, body: Mapping[str, Any], headers: Mapping[str, str], **more: Any) -> list[Received]:
    collected = Collected(http)
    await http.post("/chat", headers=headers, body=body, reader=collected, **more)
    return collected.events


async def ask(
    url: str, *, key: str | None = KEY, timeout_s: float = 20.0, headers: Mapping[str, str] | None = None
) -> list[Received]:
    http = HttpTransport("OpenAI", Account(url, key, timeout_s, headers or {}))
    try:
        return await post(http, {"a": 1}, {"Authorization": f"Bearer {key}"})
    finally:
        await http.close()


def ask_server(*pieces: bytes, **given: Any) -> list[Received]:
    async def go() -> list[Received]:
        async with serving(*pieces) as server:
            return await ask(server.url, **given)

    return asyncio.run(go())


def expect_refusal(*pieces: bytes, **given: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask_server(*pieces, **given)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    return caught.value


def test_events_arrive_in_order_with_their_arrival_times() -> None:
    before = clock.monotonic()
    got = ask_server(make_head(), b'data: {"n": 1}\n\n', b'event: more\ndata: {"n": 2}\n\n', b"data: [DONE]\n\n")
    assert [(each.event, each.data, each.whole) for each in got] == [(None, {"n": 1}, False), ("more", {"n": 2}, False)]
    assert before < got[0].at < got[1].at <= clock.monotonic()


def test_nothing_after_done_is_read() -> None:
    assert [each.data for each in ask_server(make_head(), b"data: 1\n\ndata: [DONE]\n\ndata: 2\n\n")] == [1]


def test_the_body_is_sent_once_as_json_with_both_headers() -> None:
    async def go() -> bytes:
        async with serving(answer({})) as server:
            await ask(server.url + "?api-version=7", headers={"authorization": "Bearer mine", "X-Team": "blue"})
            return server.read[0]

    sent = asyncio.run(go())
    assert sent.startswith(b"POST /v1/chat?api-version=7 HTTP/1.1\r\n")
    assert sent.endswith(b'\r\n\r\n{"a":1}')
    assert sent.lower().count(b"authorization:") == 1
    assert b"Bearer mine" in sent
    assert b"X-Team: blue" in sent


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_do_not_depend_on_chunk_boundaries(end: bytes) -> None:
    lines = [
        "\ufeff: a comment",
        "event: größe",
        "id: 7",
        'data: {"é":',
        "data:1}",
        "",
        "retry: 5",
        "data:  [2]",
        "",
        "",
        "event: none",
        "",
    ]
    stream = end.join(line.encode() for line in lines) + end
    expected = [("größe", '{"é":\n1}'.encode()), (None, b" [2]")]
    for size in range(1, len(stream) + 1):
        events = EventParser()
        chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert [each for chunk in chunks for each in events.feed(chunk)] + events.finish() == expected, size


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"))),
    st.lists(st.integers(0, 200)),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_any_text_survives_any_chunk_boundaries(texts: list[str], cuts: list[int], end: str) -> None:
    stream = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    events = EventParser()
    got = [each for start, stop in itertools.pairwise(places) for each in events.feed(stream[start:stop])]
    assert [data.decode() for _, data in got + events.finish()] == texts


def test_a_last_event_without_a_blank_line_counts() -> None:
    assert [each.data for each in ask_server(make_head(), b'data: {"n": 1}')] == [{"n": 1}]


def test_a_line_of_a_megabyte_and_split_characters_are_read() -> None:
    text = "é" * (1 << 19)
    line = f'data: {{"text": "{text}"}}\n\n'.encode()
    got = ask_server(make_head(), line[:-100_001], line[-100_001:])
    assert got[0].data == {"text": text}


def test_the_cost_of_a_long_line_is_linear() -> None:
    events, piece = EventParser(), b"a" * 100
    start = time.process_time()
    for _ in range(200_000):  # joining again for each piece would copy two terabytes
        events.feed(piece)
    (event,) = events.feed(b"\n\n") or [(None, b"")]
    assert time.process_time() - start < 20
    assert event == (None, b"")  # without `data:` it is an unknown field


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "text/plain", "application/octet-stream"]
)
def test_plain_json_answers_a_streaming_request(kind: str) -> None:
    (got,) = ask_server(answer(b' {"n": 1}', kind=kind))
    assert (got.data, got.whole, got.event) == ({"n": 1}, True, None)


def test_a_stream_under_another_name_is_still_read() -> None:
    assert [each.data for each in ask_server(make_head("text/plain"), b"data: 1\n\n")] == [1]


def test_nan_becomes_null() -> None:
    assert ask_server(answer(b'{"n": NaN, "m": -Infinity}'))[0].data == {"n": None, "m": None}


@pytest.mark.parametrize("bad", [b"{", b"nonsense", b"\xff\xfe", b"[" * 100_000, b'{"n": 1} {"n": 2}'])
@pytest.mark.parametrize("streamed", [True, False])
def test_invalid_json_breaks_the_reply(bad: bytes, streamed: bool) -> None:
    error = expect_refusal(make_head(), b"data: " + bad + b"\n\n") if streamed else expect_refusal(answer(bad))
    assert isinstance(error, BrokenReply)
    assert "OpenAI (127.0.0.1:" in str(error)
    assert "is not JSON; it begins" in str(error)


@pytest.mark.parametrize(
    "pieces",
    [
        (make_head(more="Content-Length: 100\r\n"), b"data: 1\n\n"),
        (make_head(more="Transfer-Encoding: chunked\r\n"), b"9\r\ndata: 1\n\n\r\n"),
        (answer({"n": 1})[:-3],),
    ],
)
def test_a_lost_connection_breaks_the_reply(pieces: tuple[bytes, ...]) -> None:
    error = expect_refusal(*pieces)
    assert isinstance(error, BrokenReply)
    assert "was cut off before its end" in str(error)


def test_an_endless_answer_is_aborted() -> None:
    line = b": " + b"a" * (1 << 20) + b"\n"

    error = expect_refusal(make_head(), *[line] * ((MAX_REPLY_BYTES >> 20) + 1))
    assert isinstance(error, BrokenReply)
    assert "longer than 64 MB" in str(error)


def test_a_plain_answer_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.providers.http.MAX_REPLY_BYTES", 1 << 20)
    error = expect_refusal(answer(b'"' + b"a" * (1 << 20) + b'"'))
    assert isinstance(error, BrokenReply)
    assert "longer than 1 MB" in str(error)


@pytest.mark.parametrize("garbage", [b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x00" * 100])
def test_a_non_http_answer_breaks_the_reply(garbage: bytes) -> None:
    error = expect_refusal(garbage)
    assert isinstance(error, BrokenReply)
    assert str(error).endswith("is not HTTP")


def test_a_truncated_refusal_is_classified_by_its_status() -> None:
    error = expect_refusal(answer({"error": {"message": "no"}}, "429 Odd", "Retry-After: 3\r\n")[:-4])
    assert isinstance(error, RateLimited)
    assert error.retry_after == 3.0


@pytest.mark.parametrize("host", ["a..b", "a" * 70, "xn--", "-", "1.2.3", "exa_mple.invalid"])
def test_an_impossible_host_is_our_own_error(host: str) -> None:
    with pytest.raises((Unavailable, InvalidInput)):
        asyncio.run(ask(f"http://{host}/v1", timeout_s=2))


def test_no_answer_in_time_is_unavailable() -> None:
    async def go() -> None:
        async with serving(make_head(), stay=True) as server:
            await ask(server.url, timeout_s=0.2)

    with pytest.raises(Unavailable, match=r"no complete reply from OpenAI \(127.0.0.1:\d+\) within 0.2 s"):
        asyncio.run(go())


def test_no_connection_is_unavailable_and_names_the_host() -> None:
    async def go() -> None:
        async with serving() as server:
            url = server.url
        await ask(url)

    with pytest.raises(Unavailable, match=r"cannot reach OpenAI \(127.0.0.1:\d+\): Connection refused$"):
        asyncio.run(go())
    with pytest.raises(Unavailable, match=r"cannot reach OpenAI \(nowhere.invalid\)"):
        asyncio.run(ask("https://nowhere.invalid/v1"))


def test_a_server_that_hangs_up_at_once_is_unavailable() -> None:
    assert isinstance(expect_refusal(), Unavailable)


def test_a_plain_server_under_https_is_unavailable() -> None:
    async def answer_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def go() -> None:
        async with await asyncio.start_server(answer_plainly, "127.0.0.1", 0) as server:
            await ask(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")

    with pytest.raises(Unavailable, match="cannot reach OpenAI"):
        asyncio.run(go())


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (400, Rejected, "rejected the request (400): no"),
        (401, AuthenticationFailed, "rejected the API key (401): no; set OPENAI_API_KEY"),
        (403, AuthenticationFailed, "rejected the API key (403): no; set OPENAI_API_KEY"),
        (404, NotAnApi, "not found at this address (404): no; check the base URL"),
        (408, Unavailable, "is unavailable (408): no"),
        (409, Unavailable, "is unavailable (409): no"),
        (413, Rejected, "rejected the request (413): no"),
        (422, Rejected, "rejected the request (422): no"),
        (429, RateLimited, "rate limit exceeded (429): no"),
        (500, Unavailable, "is unavailable (500): no"),
        (503, Unavailable, "is unavailable (503): no"),
        (529, Unavailable, "is unavailable (529): no"),
    ],
)
def test_each_status_has_its_error(status: int, kind: type[ProviderError], says: str) -> None:
    error = expect_refusal(answer({"error": {"message": "no"}}, f"{status} Odd"))
    assert type(error) is kind
    assert str(error).endswith(says)
    assert error.status == status
    assert error.retry_after is None


@pytest.mark.parametrize("status", [429, 500, 503, 529])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("Retry-After: 7", 7.0),
        ("retry-after: 1.5", 1.5),
        ("Retry-After-Ms: 250\r\nRetry-After: 9", 0.25),
        ("Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Retry-After: soon", None),
        ("Retry-After: -3", None),
        ("Retry-After: inf", None),
        ("Retry-After-Ms: nan", None),
    ],
)
def test_retry_after_is_read(status: int, header: str, seconds: float | None) -> None:
    assert expect_refusal(answer({}, f"{status} Odd", f"{header}\r\n")).retry_after == seconds


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}),
        (403, {"error": {"message": "no access", "code": "model_not_found"}}),
        (404, {"error": "model 'x' not found, try pulling it first"}),
        (404, {"type": "error", "error": {"type": "not_found_error", "message": "model: x"}}),
        (404, {"object": "error", "message": "The model `x` does not exist.", "code": 404}),
    ],
)
def test_an_unknown_model_is_distinguished_from_a_wrong_address(status: int, body: Any) -> None:
    error = expect_refusal(answer(body, f"{status} Odd"))
    assert isinstance(error, UnknownModel)
    assert "has no such model" in str(error)
    assert str(error).endswith("; list the models on offer: pramana models")


@pytest.mark.parametrize(
    ("error", "parameter"),
    [
        ({"message": "no", "param": "temperature"}, "temperature"),
        ({"message": "Unsupported parameter: 'seed' is not supported with this model."}, "seed"),
        ({"message": "Unsupported value: 'temperature' does not support 0 with this model."}, "temperature"),
        ({"message": "Unknown parameter: 'foo'."}, "foo"),
        ({"message": "Unrecognized request argument supplied: `foo`"}, "foo"),
        ({"message": "top_k: Extra inputs are not permitted"}, "top_k"),
        ({"message": "`temperature` is deprecated for this model."}, "temperature"),
        ({"message": "Invalid JSON payload received. Unknown name \"seed\" at 'generation_config'"}, "seed"),
        ({"message": "The prompt is too long"}, None),
        ({"message": "no", "param": None}, None),
        ("Unknown parameter: 'foo'", "foo"),
    ],
)
@pytest.mark.parametrize("status", [400, 422])
def test_the_refused_parameter_is_named(status: int, error: Any, parameter: str | None) -> None:
    raised = expect_refusal(answer({"error": error}, f"{status} Odd"))
    assert isinstance(raised, Rejected)
    assert raised.parameter == parameter


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"3",
        b'{"error": 7}',
        b'{"error": {"message": {"a": 1}}}',
        b'{"detail": [1]}',
        b"\xff",
        b'[{"error": {"message": "x", "details": [1]}}]',
        b'{"error": {"details": 3}}',
    ],
)
def test_an_error_body_of_any_shape_becomes_our_own_error(body: bytes) -> None:
    assert isinstance(expect_refusal(answer(body, "500 Odd")), Unavailable)


def test_the_vendors_message_is_shortened_to_one_line() -> None:
    error = expect_refusal(answer({"error": {"message": "line\n" + "a" * 1000}}, "400 Odd"))
    assert "line\\naaa" in str(error)
    assert len(str(error)) < 400
    assert "<html>" not in str(expect_refusal(answer(b"<html>bad gateway</html>", "502 Odd", kind="text/html")))
    assert "plain words" in str(expect_refusal(answer(b"plain words", "502 Odd", kind="text/plain")))


def test_a_retry_delay_in_googles_body_is_read() -> None:
    body = [{"error": {"code": 429, "message": "slow", "details": [{"retryDelay": "17s"}]}}]
    assert expect_refusal(answer(body, "429 Odd")).retry_after == 17.0


def test_the_key_is_never_shown() -> None:
    account = Account("http://user:hunter22@host/v1?key=abc", KEY, headers={"X-Api-Key": KEY})
    assert repr(account) == "Account('http://host/v1', with a key)"
    echoed = f"you sent Bearer {KEY}"
    assert "you sent Bearer [key]" in str(expect_refusal(answer({"error": {"message": echoed}}, "400 Odd")))
    assert "[key]" in str(expect_refusal(answer(f"{KEY} is not JSON".encode())))
    assert "[key]" in str(expect_refusal(answer(b'{"cut": "' + KEY.replace("s", r"\u0073").encode())))
    own = expect_refusal(
        answer({"error": {"message": "token-of-mine?"}}, "400 Odd"), headers={"X-Token": "Bearer token-of-mine"}
    )
    assert str(own).endswith("[key]?")
    http = HttpTransport("OpenAI", Account("https://host/v1?key=in-the-address&api-version=7"))
    assert http.failures.secrets.redact_message("in-the-address at version 7") == "[key] at version 7"


@pytest.mark.parametrize("key", ["sk-line\n", "sk-two words ", "sk-ключ", "sk-\x00"])
def test_an_unsendable_key_is_refused_before_the_request(key: str) -> None:
    with pytest.raises(AuthenticationFailed, match="set OPENAI_API_KEY again") as caught:
        asyncio.run(ask("http://127.0.0.1:1/v1", key=key))
    assert key.strip() not in str(caught.value)


def test_no_redirect_is_followed() -> None:
    async def go() -> tuple[str, int]:
        async with serving(answer({})) as other:
            port = other.url.rsplit(":", 1)[1]
            moved = answer(b"", "307 Moved", f"Location: http://localhost:{port}\r\n")
            async with serving(moved) as server:
                with pytest.raises(Rejected) as caught:
                    await ask(server.url)
            return str(caught.value), other.connections

    message, reached = asyncio.run(go())
    assert (
        "redirects to localhost, and keys are never sent to another address; set the final address as the base URL"
        in message
    )
    assert reached == 0


@pytest.mark.parametrize("to", [f"https://{KEY}.example/v1", f"https://{KEY.upper()}/", f"https://u:{KEY}@example/"])
def test_a_redirect_does_not_show_the_key(to: str) -> None:
    said = str(expect_refusal(answer(b"", "307 Moved", f"Location: {to}\r\n")))
    assert KEY not in said.lower()
    assert "redirects to another address" in said or "redirects to example" in said


@pytest.mark.parametrize("kind", ["text/html", "text/plain"])
def test_an_html_page_with_status_200_is_reported_as_such(kind: str) -> None:
    page = f"<!doctype html><title>{KEY}</title><p>Please log in.</p>".encode()
    error = expect_refusal(answer(page, kind=kind))
    assert isinstance(error, BrokenReply)
    assert 'is not JSON or an event stream; it begins "<!doctype html><title>[key]' in str(error)


def test_the_cost_of_an_event_of_many_lines_is_linear() -> None:
    events, line = EventParser(), b"data: " + b"a" * 57 + b"\n"
    start = time.process_time()
    for _ in range(1_000):  # joining again for each line would copy 1.5 terabytes
        assert not events.feed(line * 250)
    (event,) = events.feed(b"\n")
    assert time.process_time() - start < 10
    assert event == (None, b"\n".join([b"a" * 57] * 250_000))
    assert events.feed(b"data: next\n\n") == [(None, b"next")]


@pytest.mark.parametrize(
    "url", ["localhost:8000/v1", "ftp://host/v1", "", "http://", "http://host:99999/v1", "http://[::1/v1"]
)
def test_an_invalid_base_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidInput, match="expected http://host:port/path"):
        HttpTransport("OpenAI", Account(url, KEY))


def test_a_user_in_the_url_cannot_be_combined_with_a_key() -> None:
    with pytest.raises(InvalidInput, match="set only one") as caught:
        HttpTransport("OpenAI", Account("http://ada:hunter22@host/v1", KEY))
    assert "hunter22" not in str(caught.value)


def test_a_request_that_json_cannot_represent_is_refused() -> None:
    async def go(value: Any) -> None:
        http = HttpTransport("OpenAI", Account("http://127.0.0.1:1/v1"))
        await post(http, {"top_p": value}, {})

    for value in (float("nan"), {1, 2}):
        with pytest.raises(Rejected, match="cannot be written as JSON"):
            asyncio.run(go(value))


@pytest.mark.parametrize("ending", ["[DONE]", "last", "whole"])
def test_connections_are_reused(ending: str) -> None:
    pieces = {
        "[DONE]": (b"data: 1\n\ndata: [DONE]\n\n",),
        "last": (b"event: end\ndata: 1\n\n",),
        "whole": (b"data: 1\n\n",),
    }[ending]
    chunked = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    start = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def go() -> int:
        async with serving(start, *chunked, b"0\r\n\r\n", stay=True) as server:
            http = HttpTransport("OpenAI", Account(server.url))
            for _ in range(3):
                assert [each.data for each in await post(http, {}, {}, final_events=("end",))] == [1]
            await http.close()
            return server.connections

    assert asyncio.run(go()) == 1


def test_a_complete_answer_is_kept_if_the_server_keeps_the_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.providers.http.STREAM_DRAIN_TIMEOUT_S", 0.05)

    async def go() -> list[Received]:
        async with serving(make_head(), b"data: 1\n\ndata: [DONE]\n\n", stay=True) as server:
            return await ask(server.url, timeout_s=10)

    assert [each.data for each in asyncio.run(go())] == [1]


def test_get_reads_json_and_maps_refusals() -> None:
    async def go(*pieces: bytes) -> Any:
        async with serving(*pieces) as server:
            http = HttpTransport("OpenAI", Account(server.url, KEY))
            try:
                return await http.get("/models", headers={})
            finally:
                await http.close()

    assert asyncio.run(go(answer({"data": []}))) == {"data": []}
    with pytest.raises(AuthenticationFailed):
        asyncio.run(go(answer({}, "401 Odd")))
    with pytest.raises(BrokenReply):
        asyncio.run(go(answer(b"{")))
    with pytest.raises(BrokenReply):
        asyncio.run(go(answer({"data": []})[:-2]))
    with pytest.raises(Unavailable):
        asyncio.run(go())


def test_closed_connections_are_reopened() -> None:
    async def go() -> int:
        async with serving(answer({})) as server:
            http = HttpTransport("OpenAI", Account(server.url))
            for _ in range(2):
                await http.get("/models", headers={})
                await http.close()
            await http.close()
            return server.connections

    assert asyncio.run(go()) == 2
