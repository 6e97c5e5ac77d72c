"""A dictionary by model, with lookup by the name as passed or, if it is unambiguous, by the short name."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pramana.app.model_names import ModelNames, find_model_index
from pramana.errors import suggest_similar

_Value = TypeVar("_Value")


class ByModel(dict[str, _Value]):
    """A value for each model of a run.

    >>> rates = ByModel([ModelNames("python:shop:before", "shop:before")], {"python:shop:before": 0.5})
    >>> rates["before"], "before" in rates, rates.get("after"), list(rates)
    (0.5, True, None, ['python:shop:before'])
    """

    def __init__(self, models: Sequence[ModelNames], values: Mapping[str, _Value]) -> None:
        super().__init__(values)
        self._models = models

    def __missing__(self, name: str) -> _Value:
        place = find_model_index(self._models, name)
        if place is None:
            named = [each.typed for each in self._models]
            raise KeyError(f"no model {name!r}; this run has {', '.join(named)}{suggest_similar(str(name), named)}")
        return self[self._models[place].typed]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or find_model_index(self._models, str(name)) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a model, or the default if there is no such model."""
        try:
            return self[name]
        except KeyError:
            return default
