"""Models, judges and scorers as Python callers pass them: names or functions in; stored names and functions out.

Nothing here calls a function or resolves a name.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pramana.errors import InvalidInput, describe_value
from pramana.providers.text.function import function_path
from pramana.score.scorers import Scorer, make_scorer, make_stored_name

_FUNCTION_NAME_RE = re.compile(r"[A-Za-z_][\w.-]{0,63}")


def read_judges(judge: Any, functions: dict[str, Callable[..., Any]]) -> tuple[str, ...]:
    """Return the stored names of one judge, of several that form a panel, or of none; add functions to `functions`."""
    if judge is None:
        return ()
    if isinstance(judge, list | tuple):
        if not judge:
            raise InvalidInput("judge is an empty list; leave it out, and each model judges its own replies")
        return tuple(_read_model(each, functions, None, f"judge[{number}]") for number, each in enumerate(judge))
    return (_read_model(judge, functions, argument="judge"),)


def read_models(model: Any, models: Any, functions: dict[str, Callable[..., Any]]) -> tuple[str, ...]:
    """Return the stored names of models; add functions to `functions` by name."""
    if isinstance(model, list | tuple | dict):
        raise InvalidInput(f"model is one model; for several write models={type(model).__name__}(…)")
    if isinstance(models, str) or not isinstance(models, Sequence | Mapping):
        raise InvalidInput(f"models is a list or a dictionary; for one model write model={describe_argument(models)}")
    if model is not None and models:
        raise InvalidInput("pass model or models, not both")
    if isinstance(models, Mapping):
        if unnamed := [each for each in models if not isinstance(each, str)]:
            raise InvalidInput(f"models: the name of a function is text, found {describe_value(unnamed[0])}")
        return tuple(_read_model(each, functions, name, f"models[{name!r}]") for name, each in models.items())
    if model is not None:
        return (_read_model(model, functions),)
    return tuple(_read_model(each, functions, None, f"models[{number}]") for number, each in enumerate(models))


def _read_model(
    model: Any, functions: dict[str, Callable[..., Any]], name: str | None = None, argument: str = "model"
) -> str:
    """Return the stored name of a model; add a function to `functions` by that name."""
    if isinstance(model, str):
        if name is not None:
            raise InvalidInput(
                f"the model {model} cannot be renamed; a dictionary names functions only: pass models=[…]"
            )
        return model
    if not callable(model):
        raise InvalidInput(f"{argument}: expected a model's name or a function, found {describe_value(model)}")
    path = function_path(model)
    if name is not None:
        if not _FUNCTION_NAME_RE.fullmatch(name):
            raise InvalidInput(
                f"a function cannot be called {name!r:.80}: a name is 1 to 64 letters, digits, _ . and -"
            )
        path = f"{path.partition(':')[0]}:{name}"
    if not _are_same_callable(functions.setdefault(path, model), model):
        remedy = (
            "define each with a name of its own"
            if argument.startswith("judge")
            else 'name them: models={"before": first, "after": second}'
        )
        raise InvalidInput(f"two functions have the same name {path}, and results are stored by that name; {remedy}")
    return f"python:{path}"


def _are_same_callable(one: Any, other: Any) -> bool:
    """Return whether two callables are the same; bound methods are equal without being identical."""
    try:
        return one is other or bool(one == other)
    except Exception:  # noqa: BLE001 - the comparison is the user's code
        return False


def describe_argument(given: Any) -> str:
    """Return the argument as it would be typed, if it has a name."""
    name = None if isinstance(given, Path) else getattr(given, "name", None) or getattr(given, "__name__", None)
    return str(name or describe_value(given))


def read_scorers(given: Any) -> tuple[tuple[str, ...], dict[str, Scorer]]:
    """Return the stored names of scorers, and the functions among them by name."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput(f"scorers is a list; for one scorer write scorers=[{describe_argument(given)}]")
    made = [each if isinstance(each, str) else make_scorer(each) for each in given]
    named = tuple(each if isinstance(each, str) else make_stored_name(each) for each in made)
    functions: dict[str, Scorer] = {}
    for path, each in zip(named, made, strict=True):
        if isinstance(each, Scorer) and functions.setdefault(path, each) != each:
            raise InvalidInput(
                f"two scorers have the same name {path}, and scores are stored by that name; give each a name: "
                '@pramana.scorer(name="politeness")'
            )
    return named, functions
