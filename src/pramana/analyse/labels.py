"""Short labels: names of models in, distinguishable labels out; and the two sides of a comparison. Pure text."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from pramana.errors import escape_control_characters

MAX_MODEL_LENGTH = 48
"""Characters of a model's name in a sentence."""
_WORD_BOUNDARY_RE = re.compile(r"[:/#@_-]")
"""Where a shared prefix may end: a new word begins after it."""
_MAX_PRINTED_LENGTH = 1_000
_MIN_PREFIX_LENGTH = 4
"""Shorter prefixes are kept: dropping them saves less than explaining that they were dropped."""


class ModelDisplayNames(Struct, frozen=True):
    """The names of models that are shown together, all within the same width."""

    labels: Mapping[str, str]
    """By full name; all labels are distinct."""
    dropped_prefix: str = ""
    """The prefix shared by all names if the labels omit it; show it once."""

    def __getitem__(self, name: str) -> str:
        return self.labels.get(name) or escape_control_characters(name)


class SideLabels(Struct, frozen=True):
    """The names of the two sides at the end of a phrase, such as "passed 3 of 3 before" or "passed 3 of 3 for A"."""

    base: str = "before"
    new: str = "now"
    model_labels: tuple[str, str] | None = None
    """The names of two models of one run; None for two runs."""

    @property
    def unchanged_phrase(self) -> str:
        """The phrase for a case with an unchanged outcome."""
        return "alike" if self.model_labels else "as before"

    @property
    def loss_phrase(self) -> str:
        """The phrase for cases that pass less often on the new side."""
        return f"more often {self.base}" if self.model_labels else "less often now"

    @property
    def gain_phrase(self) -> str:
        """The phrase for cases that pass more often on the new side."""
        return f"more often {self.new}"


TWO_RUN_LABELS = SideLabels()


def make_model_labels(base: str, new: str) -> SideLabels:
    """Return the labels for a comparison of two models of one run.

    >>> make_model_labels("gpt-5", "opus").new
    'for opus'
    """
    short = shorten_names([base, new], MAX_MODEL_LENGTH)
    models = (short[base], short[new])
    return SideLabels(f"for {models[0]}", f"for {models[1]}", models)


# ── Names ──


def label_models(names: Sequence[str], max_width: int, measure_width: Callable[[str], int] = len) -> ModelDisplayNames:
    """Return labels that fit into `max_width` columns and stay distinguishable.

    Names that fit stay unchanged. Otherwise a prefix shared by all is dropped, no more of it than necessary, and labels
    that are still too long lose their middle. An ellipsis marks both.

    >>> found = label_models(["openai:gpt-5-mini-2025-08-07", "openai:gpt-5-mini-2025-10-01"], 22)
    >>> found.dropped_prefix, list(found.labels.values())
    ('openai:', ['…gpt-5-mini-2025-08-07', '…gpt-5-mini-2025-10-01'])
    """
    plain = _make_printable(names)
    if len(set(plain.values())) == len(plain) and all(measure_width(each) <= max_width for each in plain.values()):
        return ModelDisplayNames(plain)
    prefix = ""
    for prefix in _shared_prefixes(list(plain.values())):
        if all(measure_width(each) - measure_width(prefix) < max_width for each in plain.values()):
            break
    rest = [f"…{each[len(prefix) :]}" if prefix else each for each in plain.values()]
    return ModelDisplayNames(dict(zip(plain, _shorten_all(rest, max_width, measure_width), strict=True)), prefix)


def shorten_names(names: Sequence[str], max_width: int, measure_width: Callable[[str], int] = len) -> Mapping[str, str]:
    """Shorten names to `max_width` columns for a sentence, distinguishable and each with its own beginning.

    >>> list(shorten_names(["http://localhost:8080/v1#mistral-7b", "gpt-5"], 21).values())
    ['http://loc…mistral-7b', 'gpt-5']
    """
    plain = _make_printable(names)
    return dict(zip(plain, _shorten_all(list(plain.values()), max_width, measure_width), strict=True))


def shorten_middle(name: str, max_width: int = MAX_MODEL_LENGTH, measure_width: Callable[[str], int] = len) -> str:
    """Drop the middle of a name that is longer than the limit: models differ at either end.

    >>> shorten_middle("http://localhost:8080/v1#mistral-7b", 21)
    'http://loc…mistral-7b'
    """
    if measure_width(name) <= max_width:
        return name
    end = (max_width - 1) // 2
    return f"{_keep_beginning(name, max_width - 1 - end, measure_width)}…{_keep_end(name, end, measure_width)}"


def _make_printable(names: Sequence[str]) -> dict[str, str]:
    """Return each name safe to print; of extremely long names only the two ends are used."""
    return {name: escape_control_characters(shorten_middle(name, _MAX_PRINTED_LENGTH)) for name in dict.fromkeys(names)}


def _shared_prefixes(names: Sequence[str]) -> Iterator[str]:
    """Yield the prefixes shared by all names, up to each boundary, shortest first."""
    first, last = min(names), max(names)
    if len(names) < 2:
        return
    same = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    end = min(same, len(first) - 1)
    least = max(_MIN_PREFIX_LENGTH, first.rfind("#", 0, end) + 1)  # a URL is dropped as a whole
    for found in _WORD_BOUNDARY_RE.finditer(first, 0, end):
        if found.end() >= least and not _WORD_BOUNDARY_RE.match(first, found.end()):
            yield first[: found.end()]


def _shorten_all(names: Sequence[str], max_width: int, measure_width: Callable[[str], int]) -> list[str]:
    """Shorten names by the first method that keeps them distinct; as a last resort, number them."""
    whole = set(names)

    def window(name: str) -> str:
        """Return a long name from just before the position where it differs from the most similar name."""
        start = max(
            0, max((_shared_prefix_length(name, other) for other in whole - {name}), default=0) - max_width // 4
        )
        head = f"{_keep_beginning(name, max(1, max_width // 4), measure_width)}…"
        rest, left = name[start:], max_width - measure_width(head)
        return head + (rest if measure_width(rest) <= left else f"{_keep_beginning(rest, left - 1, measure_width)}…")

    ways: list[Callable[[str], str]] = [
        lambda name: shorten_middle(name, max_width, measure_width),
        lambda name: f"…{_keep_end(name, max_width - 1, measure_width)}",
        window,
    ]
    for way in ways:
        found = [name if measure_width(name) <= max_width else way(name) for name in names]
        if len(set(found)) == len(names) and all(measure_width(each) <= max_width for each in found):
            return found
    marks = [f"{number}: " for number in range(1, len(names) + 1)]
    return [
        f"{mark}{shorten_middle(name, max_width - len(mark), measure_width)}"
        for mark, name in zip(marks, names, strict=True)
    ]


def _shared_prefix_length(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _keep_beginning(name: str, max_width: int, measure_width: Callable[[str], int]) -> str:
    found = name[: max(0, max_width)]
    while measure_width(found) > max_width:
        found = found[:-1]
    return found


def _keep_end(name: str, max_width: int, measure_width: Callable[[str], int]) -> str:
    found = name[-max_width:] if max_width > 0 else ""
    while measure_width(found) > max_width:
        found = found[1:]
    return found
