"""Names of a run's models: the name that a user typed in, the index of the matching model out."""

from collections.abc import Sequence
from typing import NamedTuple

from pramana.model import Run


class ModelNames(NamedTuple):
    """The names of a model: as the user typed it, and as the provider names it."""

    typed: str
    name_at_provider: str

    @property
    def short(self) -> str:
        """The function's name alone for a Python function, otherwise the name as typed.

        >>> ModelNames("python:shop:before", "shop:before").short, ModelNames("gpt-5", "gpt-5").short
        ('before', 'gpt-5')
        """
        return self.typed.rpartition(":")[2] if self.typed.startswith("python:") else self.typed


def list_model_names(run: Run) -> list[ModelNames]:
    """Return the names of a run's models."""
    return [ModelNames(target.typed, target.model) for target in run.plan.targets]


def find_model_index(models: Sequence[ModelNames], model_name: str | None) -> int | None:
    """Return the index of a model by its name as typed, else by its provider's name, else by its short name.

    None if no model has that name, or several have.

    >>> models = [ModelNames("python:shop:before", "shop:before"), ModelNames("openai:gpt-5", "gpt-5")]
    >>> find_model_index(models, "before"), find_model_index(models, "gpt-5"), find_model_index(models, "gpt-4")
    (0, 1, None)
    """
    by_kind = zip(*((each.typed, each.name_at_provider, each.short) for each in models), strict=True)
    for names in by_kind:
        places = [place for place, name in enumerate(names) if name == model_name]
        if len(places) == 1:
            return places[0]
    return None
