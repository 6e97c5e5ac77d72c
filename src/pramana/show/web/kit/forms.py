"""Forms: filled in, sent by Enter or by their button, and told what is wrong at the field where it is.

A field for names suggests what is known, and takes anything else too. Files come singly or as a folder: only those with
the right endings are sent, the others are named. The browser sends them over HTTP, some at a time, to an address that
only this page of this visitor has.
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
from pramana.report.markup import render_foreign_text
from pramana.show.web.kit import parts
from pramana.show.web.kit.page_context import UseCaseRefused

BROWSER_TIMEOUT_S = 10.0
"""How long a browser may take to say what was typed."""
MAX_FILES = 500
MAX_BYTES = 64 << 20
"""Of all files of one choice: a page keeps them in memory."""
MAX_REQUEST_BYTES = 8 << 20


class Field(Protocol):
    """What can be told that it is wrong."""

    error: str | None

    @property
    def html_id(self) -> str: ...


class Form(ui.element):
    """A form on a page: `with Form(save) as form`, its fields, then `form.submit("Save")`."""

    def __init__(self, act: parts.Act) -> None:
        super().__init__("form")
        self.classes("stack form").props("novalidate")
        self.on("submit.prevent", js_handler="() => {}")  # its button is pressed instead, by Enter too
        self._act = act
        with self:
            self._trouble = ui.element("div").classes("trouble-box")

    def submit(self, words: str) -> ui.button:
        """Put the button that sends it."""
        return parts.add_button(words, self._act, "primary").props("type=submit")

    @contextmanager
    def show_errors_at(self, fields: Mapping[str, Field]) -> Iterator[None]:
        """Tell what the API refuses at the field it names, else above them all; one types on in the first wrong one."""
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
                    fields[path].error = message_of(fields[path], message)
            if not placed or not all(path for path, _ in placed):
                with self._trouble:
                    parts.show_refusal_page(error)
            if first := next((path for path, _ in placed if path), ""):
                ui.run_javascript(f"document.getElementById({fields[first].html_id!r})?.focus()")


def message_of(field: Any, message: str) -> str:
    """Return what is wrong with a field, after its label: an error is read out, and read, away from its field too."""
    label = str(field.props.get("label") or "").removesuffix(" (optional)")
    if message.startswith("expected "):
        message = f"enter {message.removeprefix('expected ').removesuffix(', found None')}"
        message = message.replace(", or null", " or leave it empty")
    return f"{label}: {message}" if label else message[:1].upper() + message[1:]


def find_field_path(path: str, fields: Mapping[str, Any]) -> str:
    """Return the path of the field that a path is about: `corsOrigins[2]` is about `corsOrigins`; none is empty."""
    while path and path not in fields:
        path = path.rpartition("[" if path.endswith("]") else ".")[0]
    return path


def add_number_field(label: str, value: float | None, hint: str) -> ui.number:
    """Put a field for a number: one that does not fit is told by the API, and not made another on the way."""
    return parts.add_number_field(label, value, hint=hint).props("step=any", remove="min")


class SecretField:
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
        """Return what was typed; `UseCaseRefused` where the browser does not say it in time."""
        asked = ui.run_javascript(f"return document.getElementById({self.html_id!r}).value", timeout=BROWSER_TIMEOUT_S)
        try:
            found: Any = await asked
        except TimeoutError:
            words = "nothing was saved: the browser did not answer in time; press the button again"
            raise UseCaseRefused(408, words, "timeout") from None
        return str(found or "")


# ── Names that people type ──


def add_suggestions(field: Any, texts: Iterable[str]) -> Callable[[Iterable[str]], None]:
    """Have the browser suggest texts while somebody fills in a field; return what makes it suggest others."""
    found = ui.element("datalist")
    found.props["id"] = f"{field.html_id}-datalist"  # where NiceGUI's field looks for one

    def replace(texts: Iterable[str]) -> None:
        with parts.redraw(found):
            for each in dict.fromkeys(texts):
                ui.element("option").props["value"] = each

    replace(texts)
    return replace


class NamesField:
    """Several names, typed one after another; each is shown, and can be taken away again."""

    def __init__(
        self, what: str, names: Iterable[str], changed: Callable[[], Awaitable[None]], known: Iterable[str] = ()
    ) -> None:
        self.names = list(dict.fromkeys(names))
        self._changed = changed
        with parts.open_box("stack"):
            self.field = parts.add_text_field(f"Add a {what}", hint="Press Enter to add it.")
            # The browser says that it changed on Enter, when one of its suggestions was taken, and when it is left.
            self.field.on("change", lambda event: parts.show_errors(self._add)(event.args))
            self.suggest = add_suggestions(self.field, known)
            self._list = ui.element("ul").classes("chosen")
            self._list.props["aria-label"] = f"Each {what} that was added"
        self._show()

    async def _add(self, typed: Any) -> None:
        name = str(typed or "").strip()
        self.field.set_value("")
        if name and name not in self.names:
            self.names.append(name)
            self._show()
            await self._changed()

    async def _remove(self, name: str) -> None:
        self.names.remove(name)
        self._show()
        self.field.run_method("focus")  # the button that had the focus is gone
        await self._changed()

    def _show(self) -> None:
        with parts.redraw(self._list):
            for name in self.names:
                with ui.element("li"):
                    parts.add_markup(render_foreign_text(name, 300))
                    label = f"Remove {escape_unprintable(name)[:200]}"
                    parts.add_button("Remove", partial(self._remove, name), "plain", small=True, label=label)
        self._list.set_visibility(bool(self.names))


# ── Files that somebody picks ──


@dataclass(frozen=True, slots=True)
class PickedFile:
    """A file, by its path within the folder that was chosen."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class FileSelection:
    """What somebody chose."""

    files: Sequence[PickedFile]
    ignored: Sequence[str]
    """Names of what was not sent: it has another ending."""
    failed: Sequence[tuple[str, str]]
    """Names of what could not be sent, and why."""


def add_file_picker(
    label: str, endings: Sequence[str], callback: Callable[[FileSelection], Awaitable[None]], *, folder: bool = False
) -> None:
    """Put a button that opens the browser's dialog for files, or for a folder."""
    arrived: list[FileUpload] = []
    inbox = ui.upload(multiple=True).classes("visually-hidden").props("inert aria-hidden=true")

    def on_upload(event: events.UploadEventArguments) -> None:
        weight = event.file.size() + sum(each.size() for each in arrived)
        # The script below says so; others may send what they like.
        if len(arrived) < MAX_FILES and weight <= MAX_BYTES:
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
    if folder:
        asking.props("webkitdirectory")
    else:
        asking.props["accept"] = ",".join(endings)
    limits = f"{list(endings)}, {MAX_FILES}, {MAX_BYTES}, {MAX_REQUEST_BYTES}"
    asking.on(
        "change",
        parts.show_errors(on_sent),
        js_handler=f"(event) => ({_SEND})(event, emit, '{inbox.props['url']}', {limits})",
    )


_SEND = """async (event, emit, url, endings, mostFiles, mostBytes, atOnce) => {
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
