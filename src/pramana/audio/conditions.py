"""Conditions on the caller's sound: their text goes in, parsed conditions come out.

`noise=10dB,phone` is noise 10 dB below the speech, then the telephone. In whatever order they are written, conditions
apply in the physical order: room, noise, microphone, line, network. Each has one spelling, which is part of a variant's
name. The same conditions, sound and seed give the same samples; each condition has its own random numbers, so that
adding one changes no other. The sound keeps its length and the speech its position, so that the clean and the disturbed
speech end at the same time.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import NamedTuple

from pramana.errors import InvalidInput, quote_text, suggest_similar

CONDITIONS_VERSION = 1
"""The version of the generated sounds: another one disturbs differently."""
NOISE_KINDS = ("babble", "street", "music")
NO_CONDITIONS = "clean"
"""The spelling of no condition."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The effects on a sound, named as in a condition such as `loss=5%`; None means no effect.

    The fields are in the order in which they apply.
    """

    reverb: float | None = None
    """Seconds until an echo has lost 60 dB."""
    noise: float | None = None
    """The signal-to-noise ratio: the speech's active level above the noise, in decibels."""
    noise_kind: str = NOISE_KINDS[0]
    gain: float | None = None
    """The change of the level, in decibels."""
    phone: bool = False
    """Telephone: 300 to 3,400 Hz, 8,000 samples per second, mu-law."""
    loss: float | None = None
    """The share of 20 ms packets lost, in percent: 5 is one packet in twenty."""

    def __str__(self) -> str:
        said = []
        for name, part in NUMBER_RULE_BY_CONDITION.items():
            value = getattr(self, name)
            if part is None:
                said += [name] if value else []
            elif value is not None:
                kind = f":{self.noise_kind}" if name == "noise" and self.noise_kind != NOISE_KINDS[0] else ""
                said.append(f"{name}={value:g}{part.unit}{kind}")
        return ",".join(said) or NO_CONDITIONS

    def __bool__(self) -> bool:
        return str(self) != NO_CONDITIONS


class NumberRule(NamedTuple):
    """A condition with a number."""

    unit: str
    minimum: float
    maximum: float
    example: str


NUMBER_RULE_BY_CONDITION: dict[str, NumberRule | None] = {
    "reverb": NumberRule("s", 0.1, 3, "reverb=0.4s"),
    "noise": NumberRule("dB", -20, 40, "noise=10dB"),
    "gain": NumberRule("dB", -60, 40, "gain=-12dB"),
    "phone": None,
    "loss": NumberRule("%", 0.1, 50, "loss=5%"),
}
_ALLOWED_CONDITIONS = (
    "allowed: noise=10dB, noise=10dB:street, noise=10dB:music, phone, loss=5%, gain=-12dB, reverb=0.4s"
)
_NUMBER_WITH_UNIT_RE = re.compile(r"([+-]?\d{1,3}(?:\.\d{1,2})?)\s*([a-z%]*)", re.IGNORECASE | re.ASCII)


def parse_conditions(text: str) -> Conditions:
    """Parse conditions separated by commas."""
    if text.strip().lower() == NO_CONDITIONS:
        return Conditions()
    found: dict[str, float | bool | str] = {}
    for part in text.split(","):
        name, _, value = (each.strip().lower() for each in part.partition("="))
        if name not in NUMBER_RULE_BY_CONDITION:
            raise InvalidInput(
                f"condition {quote_text(part.strip())} is not known{suggest_similar(name, NUMBER_RULE_BY_CONDITION)}; "
                f"{_ALLOWED_CONDITIONS}"
            )
        if name in found:
            raise InvalidInput(f'condition "{name}" appears twice in {quote_text(text)}; remove one')
        rule = NUMBER_RULE_BY_CONDITION[name]
        if rule is None:
            if "=" in part:
                raise InvalidInput(f'condition {quote_text(part.strip())} takes no value: write "{name}"')
            found[name] = True
            continue
        if name == "noise":
            value, colon, kind = (each.strip() for each in value.partition(":"))
            if colon and kind not in NOISE_KINDS:
                raise InvalidInput(
                    f"noise {quote_text(kind)} in {quote_text(part.strip())} is not "
                    f"known{suggest_similar(kind, NOISE_KINDS)}; "
                    f"allowed: {', '.join(NOISE_KINDS)}"
                )
            found["noise_kind"] = kind or NOISE_KINDS[0]
        found[name] = _parse_number(part.strip(), value, rule)
    return Conditions(**found)  # type: ignore[arg-type] # each name has its own kind of value


def _parse_number(part: str, value: str, rule: NumberRule) -> float:
    match = _NUMBER_WITH_UNIT_RE.fullmatch(value)
    if match is None or match[2] != rule.unit.lower():
        raise InvalidInput(
            f"condition {quote_text(part)} needs a number and its unit, {rule.unit}: write {rule.example}"
        )
    number = float(match[1]) + 0.0
    if not rule.minimum <= number <= rule.maximum:
        raise InvalidInput(
            f"condition {quote_text(part)} is out of range: "
            f"{rule.minimum:g}{rule.unit} to {rule.maximum:g}{rule.unit} are allowed"
        )
    return number


def conditions_digest(conditions: Conditions, seed: int) -> str:
    """Return the digest of a sound's effects: the conditions, the seed, and the version of the noises."""
    said = f"pramana conditions {CONDITIONS_VERSION}\n{conditions}\n{seed}"
    return "sha256:" + hashlib.sha256(said.encode()).hexdigest()
