"""Server-sent events: the bytes of a stream in, the name and the data of each event out, whoever cut them how.

Cut from raw chunks, because reading them by line costs several times more.
"""


class Events:
    """Chunks of bytes in, the events of a server-sent stream out, in one pass; a line may span any number of chunks."""

    __slots__ = ("_after_return", "_data", "_event", "_more", "_rest", "_started")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: bytes | None = None
        self._more: list[bytes] = []
        """The lines of data after the first: joined once, for there may be millions."""
        self._event: str | None = None
        self._after_return = self._started = False

    def feed(self, chunk: bytes) -> list[tuple[str | None, bytes]]:
        """Take the next bytes, return name and data of each event they complete."""
        if chunk[:6] == b"data: " and not self._rest and self._data is None and self._event is None:
            events = _plain_events(chunk)
            if events:
                self._started, self._after_return = True, False
                return events
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")  # the other half of a line's end
        if self._rest:
            self._rest.append(chunk)
            if b"\n" not in chunk and b"\r" not in chunk:
                return []
            chunk = b"".join(self._rest)
            self._rest = []
        lines = chunk.splitlines()
        if not lines:
            return []
        if chunk[-1] == 13:
            self._after_return = True
        elif chunk[-1] != 10:
            self._rest = [lines.pop()]
        if lines and not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        complete = []
        for line in lines:
            if not line:
                if self._data is not None:
                    if self._more:
                        self._data = b"\n".join([self._data, *self._more])
                        self._more = []
                    complete.append((self._event, self._data))
                self._data = self._event = None
            elif line[:5] == b"data:":
                data = line[6:] if line[5:6] == b" " else line[5:]
                if self._data is None:
                    self._data = data
                else:
                    self._more.append(data)
            elif line[:6] == b"event:":
                self._event = line[6:].removeprefix(b" ").decode("utf-8", "replace")
            # Comments, ids and waiting times are of no use to a request that is never repeated here.
        return complete

    def end(self) -> list[tuple[str | None, bytes]]:
        """Return what a server that forgets the last empty line has left."""
        return self.feed(b"\n\n" if self._rest else b"\n")


def _plain_events(chunk: bytes) -> list[tuple[str | None, bytes]]:
    """Return the events of a chunk in which each is one line of data, as nearly every server writes: half the time."""
    if chunk[-2:] != b"\n\n" or b"\r" in chunk:
        return []
    pieces = chunk[:-2].split(b"\n\n")
    if chunk.count(b"\n") != 2 * len(pieces):
        return []
    for piece in pieces:
        if piece[:6] != b"data: ":
            return []
    return [(None, piece[6:]) for piece in pieces]
