"""Controls and their labels: buttons, fields, boxes. Pages are built of these and of `markup`.

Handlers are guarded: when the API refuses a call, its message is shown and the page stays as it was.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import isawaitable
from typing import Any, Literal

from nicegui import ui

from pramana.report.markup import HtmlChild, SafeHtml, join_html, render_untrusted_text, tag
from pramana.show.web.kit.page_context import UseCaseRefused, make_sign_in_url

ButtonKind = Literal["", "primary", "danger", "plain"]
ButtonHandler = Callable[[], Awaitable[None] | None]
ChangeHandler = Callable[[Any], Awaitable[None] | None]
COPY_SCRIPT = """(event) => {
  const found = event.target.closest("[data-copy]");
  if (!found) return;
  Quasar.copyToClipboard(found.dataset.copy).then(
    () => Quasar.Notify.create({ message: "Copied", position: "bottom", timeout: 2000 }),
    () => Quasar.Notify.create({ message: "Copying failed: select the text and copy it with the keyboard" }));
}"""
"""Browser handler of a copy button: copies the text that the button carries."""


def add_markup(markup: SafeHtml, *, classes: str = "") -> ui.html:
    """Add markup to the page. The browser sanitizes it once more."""
    return ui.html(markup).classes(classes)


def add_heading(text: str, level: Literal[1, 2, 3] = 2) -> None:
    """Add a heading."""
    add_markup(tag(f"h{level}", text))


def add_paragraph(*contents: str | SafeHtml, quiet: bool = False) -> ui.html:
    """Add a paragraph."""
    return add_markup(tag("p", join_html(contents), class_="quiet" if quiet else None))


@contextmanager
def open_box(classes: str, role: str | None = None, label: str | None = None) -> Iterator[ui.element]:
    """Open a box with classes from `style`."""
    found = ui.element("div").classes(classes)
    if role:
        found.props["role"] = role
    if label:
        found.props["aria-label"] = label
    with found:
        yield found


@contextmanager
def open_card(title: HtmlChild) -> Iterator[ui.element]:
    """Open a box with a title."""
    with open_box("card stack") as made:
        add_markup(tag("h2", title, class_="card-title"))
        yield made


@contextmanager
def redraw(element: ui.element) -> Iterator[None]:
    """Clear an element and open it for new content."""
    element.clear()
    with element:
        yield


class Panel:
    """A container redrawn only when its data changes; otherwise a click could hit a button that was just replaced."""

    def __init__(self, classes: str = "") -> None:
        self.place = ui.element("div").classes(classes)
        self._shown: object = None

    def redraw_if_changed(self, data: object, draw: Callable[[], None]) -> None:
        """Redraw the content, unless the data is the same as before."""
        if data != self._shown:
            self._shown = data
            with redraw(self.place):
                draw()


# ── Buttons ──


def notify_on_error(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler that shows the API's error message instead of raising."""

    @wraps(handler)
    async def handle(*given: Any) -> None:
        try:
            result = handler(*given)
            if isawaitable(result):
                await result
        except UseCaseRefused as error:
            if error.status == 401:  # the token was revoked, or the first token was just created
                ui.navigate.to(make_sign_in_url(ui.context.client.request))
            else:
                show_notification(describe_refusal(error), "negative")

    return handle


def add_button(
    text: str,
    handler: ButtonHandler,
    kind: ButtonKind = "",
    *,
    small: bool = False,
    accessible_label: str | None = None,
) -> ui.button:
    """Add a button, disabled while its handler runs.

    `accessible_label` names the button for screen readers where several share a text.

    The handler may remove the button.
    """
    made = ui.button(text, color=None).props("unelevated no-caps").classes(f"btn {kind}{' small' if small else ''}")
    client = ui.context.client
    if accessible_label:
        made.props["aria-label"] = accessible_label

    async def on_press() -> None:
        made.disable()
        try:
            with client:
                await notify_on_error(handler)()
        finally:
            if not made.is_deleted:
                made.enable()
                with client:
                    ui.run_javascript(_REFOCUS_SCRIPT % made.id)  # a disabled button loses the focus

    made.on_click(on_press)
    return made


_REFOCUS_SCRIPT = """(async () => {
  for (let turn = 0; turn < 20; turn++) {
    const button = getHtmlElement(%s), focused = document.activeElement ?? document.body;
    if (!button || ![document.body, button].includes(focused) && !focused.closest(".q-dialog")) return;
    if (!button.disabled) button.focus();
    await new Promise((done) => setTimeout(done, 50));
  }
})()"""
"""Return the focus to a button unless it has moved elsewhere; retry, as a closing dialog may take it away again."""


def add_link_button(text: str, url: str, kind: ButtonKind = "") -> None:
    """Add a link styled as a button, for navigation only."""
    add_markup(tag("a", text, href=url, class_=f"btn {kind}"))


_ICONS = {"positive": "check_circle", "negative": "error", "warning": "warning", "info": "info"}


def show_notification(message: str, kind: Literal["positive", "negative", "warning", "info"] = "info") -> None:
    """Show a notification: read out at once, gone after ten seconds."""
    # Not by `type`: its colours cannot be overridden, and dark text on brown is unreadable.
    ui.notify(
        message, icon=_ICONS[kind], classes=f"notice {kind}", position="bottom", timeout=10_000, close_button="Close"
    )


def describe_refusal(error: UseCaseRefused) -> str:
    """Return the error message with the first of its places."""
    words = str(error)
    if error.problems:
        first = error.problems[0]
        where = f"{first.path}: " if first.path else ""
        more = f" (and {len(error.problems) - 1:,} more)" if len(error.problems) > 1 else ""
        if first.message not in words:
            words = f"{words}: {where}{first.message}{more}"
    return words[:1].upper() + words[1:]


async def ask_confirmation(question: str, consequence: str, confirm_label: str) -> bool:
    """Ask for confirmation of something irreversible. The dialog stays open when the list behind it is redrawn."""
    with ui.context.client, ui.dialog() as dialog, ui.card() as card:
        card.props["role"], card.props["aria-label"] = "alertdialog", question
        add_markup(tag("h2", question))
        add_paragraph(consequence)
        with open_box("row"):
            add_button(confirm_label, lambda: dialog.submit("yes"), "danger")
            add_button("Cancel", lambda: dialog.submit("no"))
    answer: bool = await dialog == "yes"
    if not dialog.is_deleted:  # leaving the page deletes it
        dialog.delete()
    return answer


# ── Fields ──


def add_text_field(
    label: str,
    value: str = "",
    on_change: ChangeHandler | None = None,
    *,
    hint: str = "",
    multiline: bool = False,
) -> ui.input | ui.textarea:
    """Add a text field; use `forms.SecretField` for keys, since this field's value is sent back to the browser."""
    made = ui.textarea(label, value=value) if multiline else ui.input(label, value=value)
    _set_up_field(made, on_change, hint)
    return made


def add_number_field(
    label: str, value: float | None, on_change: ChangeHandler | None = None, *, minimum: float = 0, hint: str = ""
) -> ui.number:
    """Add a number field."""
    made = ui.number(label, value=value, min=minimum)
    _set_up_field(made, on_change, hint)
    return made


def add_select(
    label: str,
    options: Mapping[Any, str] | list[str],
    value: Any = None,
    on_change: ChangeHandler | None = None,
    *,
    multiple: bool = False,
    clearable: bool = False,
    searchable: bool = False,
) -> ui.select:
    """Add a select field; `searchable` also filters its options by typed text."""
    given = dict(options) if isinstance(options, Mapping) else list(options)
    made = ui.select(given, label=label, value=value, multiple=multiple, clearable=clearable, with_input=searchable)
    made.props(f"popup-content-class=choices {'use-chips' if multiple else ''}")
    _set_up_field(made, on_change)
    return made


def add_checkbox(label: str, value: bool = False, on_change: ChangeHandler | None = None) -> ui.checkbox:
    """Add a checkbox."""
    made = ui.checkbox(label, value=value)
    if on_change:
        made.on_value_change(lambda event: notify_on_error(on_change)(event.value))
    return made


def _set_up_field(field: Any, on_change: ChangeHandler | None, hint: str = "") -> None:
    field.props("outlined dense")
    if hint:
        field.props["hint"] = hint
    if on_change:
        field.on_value_change(lambda event: notify_on_error(on_change)(event.value))


def add_search_field(value: str, hint: str, callback: Callable[[str], None]) -> None:
    """Add a search field; Enter or its button starts the search."""
    made = add_text_field("Search", value, hint=hint)
    made.on("keydown.enter", lambda: callback(made.value))
    add_button("Search", lambda: callback(made.value))


# ── Empty states and errors ──


@contextmanager
def open_empty_state(title: str, explanation: str) -> Iterator[None]:
    """Show that there is nothing yet; add inside what to do next."""
    with open_box("empty"):
        add_markup(tag("h2", title, style="margin: 0"))
        add_paragraph(explanation, quiet=True)
        with open_box("row"):
            yield


def add_refusal_box(error: UseCaseRefused) -> None:
    """Show an error in place of the page's content."""
    add_markup(render_refusal(error))
    if error.status == 404:
        add_paragraph(tag("a", "Home", href="/"))


def render_refusal(error: UseCaseRefused) -> SafeHtml:
    """Return an error as an alert box that screen readers announce."""
    return tag("div", tag("p", render_untrusted_text(describe_refusal(error))), class_="warn trouble", role="alert")
