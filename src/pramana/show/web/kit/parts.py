"""What can be pressed or filled in, each with its label; a page is made of these and of `markup`.

Handlers are guarded: what the API refuses is told to whoever pressed, in its own words, and the page stays as it was.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import isawaitable
from typing import Any, Literal

from nicegui import ui

from pramana.report.markup import Child, Safe, foreign, join, tag
from pramana.show.web.kit.desk import Refused, sign_in

Kind = Literal["", "primary", "danger", "plain"]
Act = Callable[[], Awaitable[None] | None]
Change = Callable[[Any], Awaitable[None] | None]
COPY = """(event) => {
  const found = event.target.closest("[data-copy]");
  if (!found) return;
  Quasar.copyToClipboard(found.dataset.copy).then(
    () => Quasar.Notify.create({ message: "Copied", position: "bottom", timeout: 2000 }),
    () => Quasar.Notify.create({ message: "The browser did not let us copy: select it, and copy it yourself" }));
}"""
"""What a browser does when a button that says what to copy is pressed."""


def show(markup: Safe, *, classes: str = "") -> ui.html:
    """Put markup on the page. It is sanitized once more in the browser."""
    return ui.html(markup).classes(classes)


def heading(words: str, level: Literal[1, 2, 3] = 2) -> None:
    """Put a heading."""
    show(tag(f"h{level}", words))


def paragraph(*words: str | Safe, quiet: bool = False) -> ui.html:
    """Put a paragraph."""
    return show(tag("p", join(words), class_="quiet" if quiet else None))


@contextmanager
def box(classes: str, role: str | None = None, label: str | None = None) -> Iterator[ui.element]:
    """Open a box of one of the classes of `style`."""
    found = ui.element("div").classes(classes)
    if role:
        found.props["role"] = role
    if label:
        found.props["aria-label"] = label
    with found:
        yield found


@contextmanager
def card(title: Child) -> Iterator[ui.element]:
    """Open a box with a title, apart from what stands around it."""
    with box("card stack") as made:
        show(tag("h2", title, class_="card-title"))
        yield made


@contextmanager
def redrawn(place: ui.element) -> Iterator[None]:
    """Open an element to draw anew what stands in it."""
    place.clear()
    with place:
        yield


class Panel:
    """A place that is drawn anew only when what it shows has changed: else a press would miss its button."""

    def __init__(self, classes: str = "") -> None:
        self.place = ui.element("div").classes(classes)
        self._shown: object = None

    def show(self, what: object, draw: Callable[[], None]) -> None:
        """Draw what is shown, if it is not what was shown before."""
        if what != self._shown:
            self._shown = what
            with redrawn(self.place):
                draw()


# ── To press ──


def guarded(act: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler that tells what the API refused."""

    @wraps(act)
    async def handled(*given: Any) -> None:
        try:
            result = act(*given)
            if isawaitable(result):
                await result
        except Refused as error:
            if error.status == 401:  # a token that was revoked, or the first one that was made
                ui.navigate.to(sign_in(ui.context.client.request))
            else:
                tell(sentence(error), "negative")

    return handled


def button(words: str, act: Act, kind: Kind = "", *, small: bool = False, label: str | None = None) -> ui.button:
    """Put a button; while it works it cannot be pressed again. A label tells buttons of the same words apart.

    What it does may take the button away.
    """
    made = ui.button(words, color=None).props("unelevated no-caps").classes(f"btn {kind}{' small' if small else ''}")
    client = ui.context.client
    if label:
        made.props["aria-label"] = label

    async def pressed() -> None:
        made.disable()
        try:
            with client:
                await guarded(act)()
        finally:
            if not made.is_deleted:
                made.enable()
                with client:
                    ui.run_javascript(_REFOCUS % made.id)  # a button that is disabled loses the focus

    made.on_click(pressed)
    return made


_REFOCUS = """(async () => {
  for (let turn = 0; turn < 20; turn++) {
    const button = getHtmlElement(%s), focused = document.activeElement ?? document.body;
    if (!button || ![document.body, button].includes(focused) && !focused.closest(".q-dialog")) return;
    if (!button.disabled) button.focus();
    await new Promise((done) => setTimeout(done, 50));
  }
})()"""
"""Give the focus back to a button, unless it is elsewhere by now: a dialog that closes may take it along once more."""


def link_button(words: str, to: str, kind: Kind = "") -> None:
    """Put a link that looks like a button: it leads somewhere and changes nothing."""
    show(tag("a", words, href=to, class_=f"btn {kind}"))


_ICONS = {"positive": "check_circle", "negative": "error", "warning": "warning", "info": "info"}


def tell(words: str, kind: Literal["positive", "negative", "warning", "info"] = "info") -> None:
    """Say something that passes: read out at once, gone after ten seconds."""
    # Not by `type`: its colours cannot be overruled, and dark on brown cannot be read.
    ui.notify(
        words, icon=_ICONS[kind], classes=f"notice {kind}", position="bottom", timeout=10_000, close_button="Close"
    )


def sentence(error: Refused) -> str:
    """Return what was refused, with the first of its places."""
    words = str(error)
    if error.problems:
        first = error.problems[0]
        where = f"{first.path}: " if first.path else ""
        more = f" (and {len(error.problems) - 1:,} more)" if len(error.problems) > 1 else ""
        if first.message not in words:
            words = f"{words}: {where}{first.message}{more}"
    return words[:1].upper() + words[1:]


async def confirm(question: str, consequence: str, yes: str) -> bool:
    """Ask before something that cannot be taken back. What is asked stays, whatever becomes of the list it is about."""
    with ui.context.client, ui.dialog() as dialog, ui.card() as card:
        card.props["role"], card.props["aria-label"] = "alertdialog", question
        show(tag("h2", question))
        paragraph(consequence)
        with box("row"):
            button(yes, lambda: dialog.submit("yes"), "danger")
            button("Cancel", lambda: dialog.submit("no"))
    answer: bool = await dialog == "yes"
    dialog.delete()
    return answer


# ── To fill in ──


def field(
    label: str,
    value: str = "",
    change: Change | None = None,
    *,
    hint: str = "",
    lines: bool = False,
) -> ui.input | ui.textarea:
    """Put a field for text; one for a key is `forms.Secret`, as what is typed here is sent back to the browser."""
    made = ui.textarea(label, value=value) if lines else ui.input(label, value=value)
    _fill_in(made, change, hint)
    return made


def number(
    label: str, value: float | None, change: Change | None = None, *, least: float = 0, hint: str = ""
) -> ui.number:
    """Put a field for a number."""
    made = ui.number(label, value=value, min=least)
    _fill_in(made, change, hint)
    return made


def choice(
    label: str,
    options: Mapping[Any, str] | list[str],
    value: Any = None,
    change: Change | None = None,
    *,
    several: bool = False,
    clearable: bool = False,
    typed: bool = False,
) -> ui.select:
    """Put a list to choose from; `typed`: by what is typed, too."""
    given = dict(options) if isinstance(options, Mapping) else list(options)
    made = ui.select(given, label=label, value=value, multiple=several, clearable=clearable, with_input=typed)
    made.props(f"popup-content-class=choices {'use-chips' if several else ''}")
    _fill_in(made, change)
    return made


def tick(label: str, value: bool = False, change: Change | None = None) -> ui.checkbox:
    """Put a box to tick."""
    made = ui.checkbox(label, value=value)
    if change:
        made.on_value_change(lambda event: guarded(change)(event.value))
    return made


def _fill_in(made: Any, change: Change | None, hint: str = "") -> None:
    made.props("outlined dense")
    if hint:
        made.props["hint"] = hint
    if change:
        made.on_value_change(lambda event: guarded(change)(event.value))


def search(value: str, hint: str, then: Callable[[str], None]) -> None:
    """Put a field for what is looked for; Enter and the button beside it begin."""
    made = field("Search", value, hint=hint)
    made.on("keydown.enter", lambda: then(made.value))
    button("Search", lambda: then(made.value))


# ── What to do when there is nothing, or something is wrong ──


@contextmanager
def empty(title: str, words: str) -> Iterator[None]:
    """Say that there is nothing yet, and within it what to do next."""
    with box("empty"):
        show(tag("h2", title, style="margin: 0"))
        paragraph(words, quiet=True)
        with box("row"):
            yield


def trouble(error: Refused) -> None:
    """Show what was refused where a page would be."""
    show(refusal(error))
    if error.status == 404:
        paragraph(tag("a", "Home", href="/"))


def refusal(error: Refused) -> Safe:
    """Return what was refused, set apart and read out."""
    return tag("div", tag("p", foreign(sentence(error))), class_="warn trouble", role="alert")
