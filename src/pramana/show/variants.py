"""How cases are asked, from what a user says about it: modalities and a condition in, variants out."""

from collections.abc import Sequence

from pramana.errors import InvalidInput, did_you_mean, quote

MODALITIES = ("text", "voice", "noisy")


def variants(
    modalities: Sequence[str] | None, condition: str | None, names: tuple[str, str] = ("modality", "condition")
) -> list[str] | None:
    """Return how each case is asked; None where nothing was said about it. `names` are what a user calls the two.

    >>> variants(["text", "noisy"], "phone")
    ['text', 'voice+noise=10dB,phone']
    """
    from pramana.run.speech import NOISY, PLAIN

    stated = _spelled(condition)
    if modalities is None:
        return [f"{PLAIN}+{stated}"] if stated else None
    found = []
    for each in (each.strip() for each in modalities):
        if each not in MODALITIES:
            hint = did_you_mean(each, MODALITIES)
            raise InvalidInput(f"{names[0]} {quote(each)} is none of {', '.join(MODALITIES)}{hint}")
        under = _spelled(",".join(part for part in (NOISY if each == "noisy" else "", stated) if part))
        found.append(each if each == "text" else f"{PLAIN}+{under}" if under else PLAIN)
    if condition is not None and set(found) == {"text"}:
        raise InvalidInput(f"{names[1]} is about speech, and nothing is spoken: add voice to {names[0]}")
    return found


def _spelled(condition: str | None) -> str:
    """Return conditions in their one spelling; nothing where there are none."""
    from pramana.audio import conditions

    found = conditions.parse(condition) if condition else None
    return str(found) if found else ""
