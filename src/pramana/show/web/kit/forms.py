"""Forms: submitted by Enter or by their button, with each error shown at its field.

A field for names suggests known ones and accepts any other. Files are picked one by one or as a folder: only those with
a supported extension are sent, the others are listed. The browser uploads them over HTTP in batches, to a URL that
belongs to one page of one visitor.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from urllib.parse import unquote

from nicegui import events, ui
from nicegui.elements.upload_files import FileUpload

from pramana.report.figures import escape_unprintable
from pramana.report.markup import render_untrusted_text
from pramana.show.web.kit import parts
from pramana.show.web.kit.page_context import UseCaseRefused

BROWSER_TIMEOUT_S = 10.0
"""How long to wait for the browser to return the value of a field."""
MAX_SELECTED_FILES = 500
MAX_SELECTION_BYTES = 64 << 20
"""Limit for all files of one selection: the page keeps them in memory."""
MAX_REQUEST_BYTES = 8 << 20


class Field(Protocol):
    """A form field that can show an error."""

    error: str | None

    @property
    def html_id(self) -> str: ...


class Form(ui.element):
    """A form on a page: `with Form(save) as form`, its fields, then `form.submit("Save")`."""

    def __init__(self, act: parts.ButtonHandler) -> None:
        super().__init__("form")
        self.classes("stack form").props("novalidate")
        self.on("submit.prevent", js_handler="() => {}")  # submitting, also by Enter, clicks the button instead
        self._act = act
        with self:
            self._trouble = ui.element("div").classes("trouble-box")

    def add_submit_button(self, label: str) -> ui.button:
        """Add the submit button."""
        return parts.add_button(label, self._act, "primary").props("type=submit")

    @contextmanager
    def show_errors_at(self, fields: Mapping[str, Field]) -> Iterator[None]:
        """Show validation errors at their fields, any others above the form; focus the first invalid field."""
        self._trouble.clear()
        for each in fields.values():
            each.error = None
        try:
            yield
        except UseCaseRefused as error:
            if error.status == 401:
                raise
            placed = [(find_field_path(each.path, fields), each.message) for each in error.problems]
            for path, message in placed:
                if path and fields[path].error is None:
                    fields[path].error = make_field_message(fields[path], message)
            if not placed or not all(path for path, _ in placed):
                with self._trouble:
                    parts.add_refusal_box(error)
            wrong = {path for path, _ in placed}
            if first := next((path for path in fields if path in wrong), ""):
                ui.run_javascript(f"document.getElementById({fields[first].html_id!r})?.focus()")


def make_field_message(field: Any, message: str) -> str:
    """Return an error message that begins with the field's label, as it is also read away from its field."""
    label = str(field.props.get("label") or "").removesuffix(" (optional)").replace(", optional)", ")")
    if message.startswith("expected "):
        message = f"enter {message.removeprefix('expected ').removesuffix(', found None')}"
        message = message.replace(", or null", " or leave the field empty")
    return f"{label}: {message}" if label else message[:1].upper() + message[1:]


def find_field_path(path: str, fields: Mapping[str, Any]) -> str:
    """Return the field that an error path belongs to: `corsOrigins` for `corsOrigins[2]`; empty if there is none."""
    while path and path not in fields:
        path = path.rpartition("[" if path.endswith("]") else ".")[0]
    return path


def add_unclamped_number_field(label: str, value: float | None, hint: str) -> ui.number:
    """Add a number field; its value is validated by the API, not rounded or clamped by the browser."""
    return parts.add_number_field(label, value, hint=hint).props("step=any", remove="min")


class SecretField:
    """A field for a key. Its value stays in the browser until submitted and is never sent back to it."""

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
    def props(self) -> Mapping[str, Any]:
        return self._field.props

    @property
    def error(self) -> str | None:
        return self._error

    @error.setter
    def error(self, message: str | None) -> None:
        self._error = message
        self._field.props["error"], self._field.props["error-message"] = message is not None, message

    async def read_value(self) -> str:
        """Return the value; raise `UseCaseRefused` if the browser does not answer in time."""
        asked = ui.run_javascript(f"return document.getElementById({self.html_id!r}).value", timeout=BROWSER_TIMEOUT_S)
        try:
            found: Any = await asked
        except TimeoutError:
            words = "not saved: the browser did not respond in time; press the button again"
            raise UseCaseRefused(408, words, "timeout") from None
        return str(found or "")


# ── Names, typed or suggested ──


def add_model_field(label: str, value: str = "", on_change: parts.ChangeHandler | None = None) -> ui.input:
    """Add a field for one model; Enter takes over what was typed and does not submit the form, which may cost money."""
    field = parts.add_text_field(label, value, on_change)
    # The browser submits on `keypress`; `keydown` has to go on working, as it picks a suggestion.
    field.on("keypress.enter.prevent", js_handler="() => {}")
    return field


def add_suggestions(field: Any, texts: Iterable[str]) -> Callable[[Iterable[str]], None]:
    """Attach a list of suggestions to a field; return a function that replaces them."""
    found = ui.element("datalist")
    found.props["id"] = f"{field.html_id}-datalist"  # the id that NiceGUI's field looks for

    def replace(texts: Iterable[str]) -> None:
        with parts.redraw(found):
            for each in dict.fromkeys(texts):
                ui.element("option").props["value"] = each

    replace(texts)
    return replace


class NameListField:
    """A list of names: each one typed is added and shown, with a button to remove it."""

    def __init__(
        self, what: str, names: Iterable[str], changed: Callable[[], Awaitable[None]], known: Iterable[str] = ()
    ) -> None:
        self.names = list(dict.fromkeys(names))
        self._changed = changed
        with parts.open_box("stack"):
            self.field = parts.add_text_field(f"Add a {what}", hint="Press Enter to add what you typed.")
            # The browser fires `change` on Enter, when a suggestion is picked, and on blur.
            self.field.on("change", lambda event: parts.notify_on_error(self._add_name)(event.args))
            self.suggest = add_suggestions(self.field, known)
            self._list = ui.element("ul").classes("chosen")
            self._list.props["aria-label"] = f"Added so far: {what}"
        self._redraw_names()

    async def _add_name(self, text: Any) -> None:
        name = str(text or "").strip()
        self.field.set_value("")
        if name and name not in self.names:
            self.names.append(name)
            self._redraw_names()
            await self._changed()

    async def _remove_name(self, name: str) -> None:
        self.names.remove(name)
        self._redraw_names()
        self.field.run_method("focus")  # the focused button has just been removed
        await self._changed()

    def _redraw_names(self) -> None:
        with parts.redraw(self._list):
            for name in self.names:
                with ui.element("li"):
                    parts.add_markup(render_untrusted_text(name, 300))
                    label = f"Remove {escape_unprintable(name)[:200]}"
                    parts.add_button(
                        "Remove", partial(self._remove_name, name), "plain", small=True, accessible_label=label
                    )
        self._list.set_visibility(bool(self.names))


# ── File picker ──


@dataclass(frozen=True, slots=True)
class PickedFile:
    """A picked file; its name is the path within the picked folder."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class FileSelection:
    """The outcome of one selection."""

    files: Sequence[PickedFile]
    ignored_names: Sequence[str]
    """Names of files that were not sent because of their extension."""
    failures: Sequence[tuple[str, str]]
    """Names of files that could not be sent, with the reason."""


def add_file_picker(
    label: str,
    extensions: Sequence[str],
    callback: Callable[[FileSelection], Awaitable[None]],
    *,
    picks_folder: bool = False,
) -> None:
    """Add a button that opens the browser's file dialog, or its folder dialog."""
    arrived: list[FileUpload] = []
    inbox = ui.upload(multiple=True).classes("visually-hidden").props("inert aria-hidden=true")

    def on_upload(event: events.UploadEventArguments) -> None:
        weight = event.file.size() + sum(each.size() for each in arrived)
        # The script below enforces these limits too, but other clients may send anything.
        if len(arrived) < MAX_SELECTED_FILES and weight <= MAX_SELECTION_BYTES:
            arrived.append(event.file)

    inbox.on_upload(on_upload)

    async def on_sent(event: events.GenericEventArguments) -> None:
        found = [PickedFile(unquote(each.name), await each.read()) for each in arrived]
        arrived.clear()
        told: dict[str, Any] = event.args
        failed = [(str(name), str(why)) for name, why in told["failed"]]
        await callback(FileSelection(sorted(found, key=lambda each: each.name), told["ignored"], failed))

    with ui.element("label").classes("btn pick"):
        asking = ui.element("input").props("type=file multiple").classes("visually-hidden")
        ui.label(label)
    if picks_folder:
        asking.props("webkitdirectory")
    else:
        asking.props["accept"] = ",".join(extensions)
    limits = f"{list(extensions)}, {MAX_SELECTED_FILES}, {MAX_SELECTION_BYTES}, {MAX_REQUEST_BYTES}"
    asking.on(
        "change",
        parts.notify_on_error(on_sent),
        js_handler=f"(event) => ({_UPLOAD_SCRIPT})(event, emit, '{inbox.props['url']}', {limits})",
    )


_UPLOAD_SCRIPT = """async (event, emit, url, endings, mostFiles, mostBytes, atOnce) => {
  const all = [...event.target.files].map((file) => [file.webkitRelativePath || file.name, file]);
  event.target.value = "";
  if (!all.length) return;
  const fits = ([name]) => endings.some((each) => name.toLowerCase().endsWith(each));
  const ignored = all.filter((each) => !fits(each)).map(([name]) => name).slice(0, 1000);
  const failed = [];
  let parcel = [], weight = 0, total = 0, count = 0;
  const send = async () => {
    const form = new FormData();
    parcel.forEach(([name, file], index) => form.append(`file ${index}`, file, encodeURIComponent(name)));
    let why = "";
    try {
      const said = await fetch(url, { method: "POST", body: form });
      if (!said.ok) why = (await said.json().catch(() => ({}))).error || `the server answered ${said.status}`;
    } catch { why = "the server did not answer"; }
    if (why) for (const [name] of parcel) failed.push([name, why]);
    parcel = []; weight = 0;
  };
  for (const each of all.filter(fits)) {
    total += each[1].size; count += 1;
    if (count > mostFiles) failed.push([each[0], `more than ${mostFiles} files at once`]);
    else if (total > mostBytes) failed.push([each[0], `more than ${mostBytes >> 20} MB at once`]);
    else {
      if (parcel.length && weight + each[1].size > atOnce) await send();
      parcel.push(each); weight += each[1].size;
    }
  }
  if (parcel.length) await send();
  emit({ ignored, failed });
}"""
