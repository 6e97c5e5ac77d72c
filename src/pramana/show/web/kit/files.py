"""Files that somebody picks on their computer: single ones or a folder, sent to the page that asked for them.

Only files with the right endings are sent; the others are named. The browser sends them over HTTP, some at a time, to
an address that only this page of this visitor has.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from nicegui import events, ui
from nicegui.elements.upload_files import FileUpload

from pramana.show.web.kit import parts

MOST_FILES = 500
MOST_BYTES = 64 << 20
"""Of all files of one choice: a page keeps them in memory."""
MOST_AT_ONCE = 8 << 20


@dataclass(frozen=True, slots=True)
class Picked:
    """A file, by its path within the folder that was chosen."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Pick:
    """What somebody chose."""

    files: Sequence[Picked]
    ignored: Sequence[str]
    """Names of what was not sent: it has another ending."""
    failed: Sequence[tuple[str, str]]
    """Names of what could not be sent, and why."""


def picker(
    words: str, endings: Sequence[str], then: Callable[[Pick], Awaitable[None]], *, folder: bool = False
) -> None:
    """Put a button that opens the browser's dialog for files, or for a folder."""
    arrived: list[FileUpload] = []
    inbox = ui.upload(multiple=True).classes("visually-hidden").props("inert aria-hidden=true")

    def arrive(event: events.UploadEventArguments) -> None:
        weight = event.file.size() + sum(each.size() for each in arrived)
        if (
            len(arrived) < MOST_FILES and weight <= MOST_BYTES
        ):  # the script below says so; others may send what they like
            arrived.append(event.file)

    inbox.on_upload(arrive)

    async def sent(event: events.GenericEventArguments) -> None:
        found = [Picked(unquote(each.name), await each.read()) for each in arrived]
        arrived.clear()
        told: dict[str, Any] = event.args
        failed = [(str(name), str(why)) for name, why in told["failed"]]
        await then(Pick(sorted(found, key=lambda each: each.name), told["ignored"], failed))

    with ui.element("label").classes("btn pick"):
        asking = ui.element("input").props("type=file multiple").classes("visually-hidden")
        ui.label(words)
    if folder:
        asking.props("webkitdirectory")
    else:
        asking.props["accept"] = ",".join(endings)
    limits = f"{list(endings)}, {MOST_FILES}, {MOST_BYTES}, {MOST_AT_ONCE}"
    asking.on(
        "change", parts.guarded(sent), js_handler=f"(event) => ({_SEND})(event, emit, '{inbox.props['url']}', {limits})"
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
