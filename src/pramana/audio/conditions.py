"""What befalls the caller's sound on its way: words go in, conditions come out, and conditions are put on a sound.

`noise=10dB,phone` is noise 10 dB below the speech, then the telephone. However they are written they act in the order
of nature: room, noise, microphone, line, network; and have one spelling, which is part of a variant's name. The same
conditions, sound and seed give the same samples; each condition rolls its own dice, so that one more changes no other.
A sound keeps its length and its speech its place, so that where the clean speech ends is where the disturbed one does.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import NamedTuple

from pramana.errors import InvalidInput, quote_text, suggest_similar

VERSION = 1
"""Of the sounds that are made here: another one disturbs otherwise."""
NOISES = ("babble", "street", "music")
CLEAN = "clean"
"""How no condition at all is spelt."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What befalls a sound; what is None does not. The order of the fields is the order they act in."""

    reverb: float | None = None
    """Seconds until an echo has lost 60 dB."""
    noise: float | None = None
    """Decibels of the speech's active level above the noise."""
    noise_kind: str = NOISES[0]
    gain: float | None = None
    """Decibels."""
    phone: bool = False
    """The telephone: 300 to 3,400 Hz, 8,000 samples a second, mu-law."""
    loss: float | None = None
    """Percent of the packets of 20 ms that do not arrive."""

    def __str__(self) -> str:
        said = []
        for name, part in CONDITIONS_BY_NAME.items():
            value = getattr(self, name)
            if part is None:
                said += [name] if value else []
            elif value is not None:
                kind = f":{self.noise_kind}" if name == "noise" and self.noise_kind != NOISES[0] else ""
                said.append(f"{name}={value:g}{part.unit}{kind}")
        return ",".join(said) or CLEAN

    def __bool__(self) -> bool:
        return str(self) != CLEAN


class NumberedCondition(NamedTuple):
    """A condition with a number."""

    unit: str
    least: float
    most: float
    example: str


CONDITIONS_BY_NAME: dict[str, NumberedCondition | None] = {
    "reverb": NumberedCondition("s", 0.1, 3, "reverb=0.4s"),
    "noise": NumberedCondition("dB", -20, 40, "noise=10dB"),
    "gain": NumberedCondition("dB", -60, 40, "gain=-12dB"),
    "phone": None,
    "loss": NumberedCondition("%", 0.1, 50, "loss=5%"),
}
_ALLOWED_CONDITIONS = (
    "allowed: noise=10dB, noise=10dB:street, noise=10dB:music, phone, loss=5%, gain=-12dB, reverb=0.4s"
)
_NUMBER = re.compile(r"([+-]?\d{1,3}(?:\.\d{1,2})?)\s*([a-z%]*)", re.IGNORECASE | re.ASCII)


def parse_conditions(text: str) -> Conditions:
    """Return the conditions a text names, separated by commas."""
    if text.strip().lower() == CLEAN:
        return Conditions()
    found: dict[str, float | bool | str] = {}
    for part in text.split(","):
        name, _, value = (each.strip().lower() for each in part.partition("="))
        if name not in CONDITIONS_BY_NAME:
            raise InvalidInput(
                f"condition {quote_text(part.strip())} is not known{suggest_similar(name, CONDITIONS_BY_NAME)}; "
                f"{_ALLOWED_CONDITIONS}"
            )
        if name in found:
            raise InvalidInput(f'condition "{name}" is given twice in {quote_text(text)}; remove one')
        rule = CONDITIONS_BY_NAME[name]
        if rule is None:
            if "=" in part:
                raise InvalidInput(f'condition {quote_text(part.strip())} takes no value: write "{name}"')
            found[name] = True
            continue
        if name == "noise":
            value, colon, kind = (each.strip() for each in value.partition(":"))
            if colon and kind not in NOISES:
                raise InvalidInput(
                    f"noise {quote_text(kind)} in {quote_text(part.strip())} is not "
                    f"known{suggest_similar(kind, NOISES)}; "
                    f"allowed: {', '.join(NOISES)}"
                )
            found["noise_kind"] = kind or NOISES[0]
        found[name] = _parse_number(part.strip(), value, rule)
    return Conditions(**found)  # type: ignore[arg-type] # each name has its own kind of value


def _parse_number(part: str, value: str, rule: NumberedCondition) -> float:
    match = _NUMBER.fullmatch(value)
    if match is None or match[2] != rule.unit.lower():
        raise InvalidInput(
            f"condition {quote_text(part)} needs a number and its unit, {rule.unit}: write {rule.example}"
        )
    number = float(match[1]) + 0.0
    if not rule.least <= number <= rule.most:
        raise InvalidInput(
            f"condition {quote_text(part)} is out of range: "
            f"{rule.least:g}{rule.unit} to {rule.most:g}{rule.unit} are allowed"
        )
    return number


def conditions_digest(conditions: Conditions, seed: int) -> str:
    """Return the identity of what befalls a sound: the conditions, the seed, and how noises are made here."""
    said = f"pramana conditions {VERSION}\n{conditions}\n{seed}"
    return "sha256:" + hashlib.sha256(said.encode()).hexdigest()
