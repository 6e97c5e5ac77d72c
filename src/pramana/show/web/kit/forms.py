"""Forms: filled in, sent by Enter or by their button, and told what is wrong at the field where it is."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from nicegui import ui

from pramana.show.web.kit import parts
from pramana.show.web.kit.desk import Refused

ANSWERED_S = 10.0
"""How long a browser may take to say what was typed."""


class Field(Protocol):
    """What can be told that it is wrong."""

    error: str | None

    @property
    def html_id(self) -> str: ...


class Form:
    """A form on a page: `with Form(save) as form`, its fields, then `form.submit("Save")`."""

    def __init__(self, act: parts.Act) -> None:
        self._act = act
        self._form = ui.element("form").classes("stack form").props("novalidate")
        self._form.on("submit.prevent", js_handler="() => {}")  # its button is pressed instead, by Enter too

    def __enter__(self) -> Self:
        self._form.__enter__()
        self._trouble = ui.element("div").classes("trouble-box")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._form.__exit__(kind, error, trace)

    def submit(self, words: str) -> ui.button:
        """Put the button that sends it."""
        return parts.button(words, self._act, "primary").props("type=submit")

    @contextmanager
    def told_at(self, fields: Mapping[str, Field]) -> Iterator[None]:
        """Tell what the API refuses at the field it names, else above them all; one types on in the first wrong one."""
        self._trouble.clear()
        for each in fields.values():
            each.error = None
        try:
            yield
        except Refused as error:
            if error.status == 401:
                raise
            self._tell(error, fields)

    def _tell(self, error: Refused, fields: Mapping[str, Field]) -> None:
        told: list[Field] = []
        elsewhere = not error.problems
        for problem in error.problems:
            found = _field_of(problem.path, fields)
            if found is None:
                elsewhere = True
            elif found.error is None:
                found.error = _sentence(problem.message)
                told.append(found)
        if elsewhere:
            with self._trouble:
                parts.trouble(error)
        if told:
            ui.run_javascript(f"document.getElementById({told[0].html_id!r})?.focus()")


def _field_of(path: str, fields: Mapping[str, Field]) -> Field | None:
    """Return the field that a path is about: `corsOrigins[2]` is about `corsOrigins`."""
    while path:
        if path in fields:
            return fields[path]
        path = path.rpartition("[" if path.endswith("]") else ".")[0]
    return None


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def number(label: str, value: float | None, hint: str) -> ui.number:
    """Put a field for a number: one that does not fit is told by the API, and not made another on the way."""
    return parts.number(label, value, hint=hint).props("step=any", remove="min")


class Secret:
    """A field for a key. What is typed stays in the browser until it is sent, and is never sent back."""

    def __init__(self, label: str, hint: str) -> None:
        self._field = ui.element("q-field").props("outlined dense stack-label")
        self._field.props["label"], self._field.props["hint"] = label, hint
        self._error: str | None = None
        with self._field.add_slot("control"):
            self._input = ui.element("input").classes("q-field__native")
        self._input.props("type=password autocomplete=new-password spellcheck=false")
        self._input.props["aria-label"] = label

    @property
    def html_id(self) -> str:
        return self._input.html_id

    @property
    def error(self) -> str | None:
        return self._error

    @error.setter
    def error(self, said: str | None) -> None:
        self._error = said
        self._field.props["error"], self._field.props["error-message"] = said is not None, said

    async def typed(self) -> str:
        """Return what was typed; `Refused` where the browser does not say it in time."""
        asked = ui.run_javascript(f"return document.getElementById({self.html_id!r}).value", timeout=ANSWERED_S)
        try:
            found: Any = await asked
        except TimeoutError:
            words = "nothing was saved: the browser did not answer in time; press the button again"
            raise Refused(408, words, "timeout") from None
        return str(found or "")
