"""What a comparison calls its two sides: before and now for two runs, the names of two models of one run. Pure text."""

from msgspec import Struct

LONGEST_MODEL = 48
"""Characters of a model's name in a sentence."""


class SideLabels(Struct, frozen=True):
    """What the two sides are called at the end of a phrase, such as "passed 3 of 3 before" or "passed 3 of 3 for A"."""

    base: str = "before"
    new: str = "now"
    models: tuple[str, str] | None = None
    """The names of two models of one run; None for two runs."""

    @property
    def ended_alike(self) -> str:
        """How a case ended that did not change."""
        return "alike" if self.models else "as before"

    @property
    def less_often(self) -> str:
        """What is said of cases that pass less often on the new side."""
        return f"more often {self.base}" if self.models else "less often now"

    @property
    def more_often(self) -> str:
        """What is said of cases that pass more often on the new side."""
        return f"more often {self.new}"


TWO_RUNS = SideLabels()


def model_labels(base: str, new: str) -> SideLabels:
    """Return what two models of one run are called.

    >>> model_labels("gpt-5", "opus").new
    'for opus'
    """
    short = shorten_middle(base), shorten_middle(new)
    models = (base, new) if short[0] == short[1] else short
    return SideLabels(f"for {models[0]}", f"for {models[1]}", models)


def shorten_middle(name: str, limit: int = LONGEST_MODEL) -> str:
    """Return a name without its middle where it is longer than the limit: models differ at either end.

    >>> shorten_middle("http://localhost:8080/v1#mistral-7b", 21)
    'http://loc…mistral-7b'
    """
    if len(name) <= limit:
        return name
    end = (limit - 1) // 2
    return f"{name[: limit - 1 - end]}…{name[-end:]}"
