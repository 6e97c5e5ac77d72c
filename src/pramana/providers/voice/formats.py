"""How sound travels, as vendors write it: their names of codecs and rates come in, a `Format` goes out.

What is no codec or rate that is known here raises `Rejected` with what was found. Nothing is decoded here.
"""

import re
from collections.abc import Mapping
from typing import Any

from pramana.errors import Rejected, quote
from pramana.providers.voice.description import LEAST_RATE, MOST_RATE, Announced
from pramana.providers.voice.templates import ABSENT, Hole, fill, find, parts_of, path_of
from pramana.providers.voice.vocabulary import Codec, Format

CODECS: Mapping[str, Codec] = {
    **dict.fromkeys(("pcm", "pcm16", "pcm_s16le", "s16le", "linear16", "l16", "audio/pcm", "audio/l16"), "pcm"),
    **dict.fromkeys(("mulaw", "ulaw", "pcmu", "g711_ulaw", "audio/pcmu", "audio/x-mulaw", "audio/mulaw"), "mulaw"),
    **dict.fromkeys(("alaw", "pcma", "g711_alaw", "audio/pcma", "audio/x-alaw", "audio/alaw"), "alaw"),
}
_PARTS = {"codec": r"(?P<codec>[\w./-]{1,40})", "rate": r"(?P<rate>[0-9]{1,7})"}


def stated(codec: Codec, rate: int | str, values: Mapping[str, Any]) -> Format:
    """Return what a description states; the rate may be a parameter's."""
    return Format(codec, rate if isinstance(rate, int) else _rate(fill(rate, values)))


def announced(was: Format, where: Announced, data: Any) -> Format:
    """Return what the other end announces; what it leaves open is as it was."""
    codec, rate = was.codec, was.rate
    if where.format is not None:
        found = _parts(_required(data, where.format), where.pattern)
        codec = _codec(found["codec"]) if "codec" in found else codec
        rate = _rate(found["rate"])
    if where.codec is not None:
        codec = _codec(_required(data, where.codec))
    if where.rate is not None:
        rate = _rate(_required(data, where.rate))
    return Format(codec, rate)


def bytes_a_second(form: Format) -> int:
    """Return how much of a format a second takes."""
    return form.rate * (2 if form.codec == "pcm" else 1)


def _parts(given: Any, pattern: str) -> dict[str, str]:
    expected = "".join(_PARTS[part.name] if isinstance(part, Hole) else re.escape(part) for part in parts_of(pattern))
    found = re.fullmatch(expected, given) if isinstance(given, str) else None
    if found is None:
        raise Rejected(f"a format of sound is {quote(str(given))}, expected one as in {pattern}")
    return found.groupdict()


def _codec(given: Any) -> Codec:
    if isinstance(given, str) and (known := CODECS.get(given.lower())):
        return known
    raise Rejected(f"sound would travel as {quote(str(given))}; what is known here is pcm, mulaw and alaw")


def _rate(given: Any) -> int:
    rate = int(given) if isinstance(given, str) and re.fullmatch(r"[0-9]{1,7}", given) else given
    if type(rate) is not int or not LEAST_RATE <= rate <= MOST_RATE:
        raise Rejected(f"a rate of sound is {quote(str(given))}, expected {LEAST_RATE} to {MOST_RATE} samples a second")
    return rate


def _required(data: Any, path: str) -> Any:
    if (found := find(data, path_of(path))) is ABSENT:
        raise Rejected(f"nothing stands at {path}, where the format of the sound is announced")
    return found
