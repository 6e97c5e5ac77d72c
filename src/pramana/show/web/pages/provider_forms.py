"""Forms for providers: each kind has the fields that it takes and no others, with what to write in them."""

import json
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from pramana.app.providers import (
    NewProvider,
    ProviderView,
    change_provider,
    check_description,
    create_provider,
    list_providers,
    read_provider,
)
from pramana.errors import Problem
from pramana.report.markup import Safe, foreign, join, tag
from pramana.show.web.kit import frame, parts
from pramana.show.web.kit.desk import Desk, Refused
from pramana.show.web.kit.forms import Field, Form, Secret
from pramana.show.web.kit.yaml_editor import Checked, YamlEditor
from pramana.show.web.pages.provider_kinds import GROUPS, KINDS, TEMPLATE, Kind, of_kind

# ── Pages ──


@frame.page("/settings/new-provider", "Add a provider")
async def new(desk: Desk) -> None:
    """Ask for the kind, then for what it needs."""
    name = desk.query.get("kind", "")
    if name not in KINDS:
        frame.head("Add a provider", "Which kind is it?", _CRUMBS)
        parts.show(join(_group(desk, title, kinds) for title, kinds in GROUPS.items()))
        return
    kind = KINDS[name]
    frame.head(f"Add: {kind.title}", kind.about, (*_CRUMBS, (desk.here(kind=None), "Add a provider")))
    known = {each.id for each in (await desk.call(list_providers)).items}
    _Form(desk, name, None, known)


@frame.page("/settings/providers/{id}", "Change a provider")
async def change(desk: Desk) -> None:
    """Let everything but id and kind be changed."""
    found = await desk.call(read_provider, desk.path["id"])
    kind = of_kind(found.kind)
    frame.head(foreign(found.id), f"{kind.title}. {kind.about}", _CRUMBS)
    frame.titled(found.id)
    _Form(desk, found.kind, found, set())


_CRUMBS = (("/settings", "Settings"), ("/settings/providers", "Providers"))


def _group(desk: Desk, title: str, kinds: Mapping[str, Kind]) -> Safe:
    cards = (
        tag(
            "li",
            tag("a", kind.title, href=desk.here(kind=name)),
            tag("p", kind.about, class_="small quiet"),
            class_="card",
        )
        for name, kind in kinds.items()
    )
    return join([tag("h2", title), tag("ul", cards, class_="grid plain-list")])


class _Form:
    """The form of one provider, new or registered."""

    def __init__(self, desk: Desk, name: str, now: ProviderView | None, known: set[str]) -> None:
        self._desk, self._name, self._now = desk, name, now
        self._fields: dict[str, Field] = {}
        self._key: Secret | None = None
        self._without: ui.checkbox | None = None
        kind = of_kind(name)
        with Form(self._save) as self._form:
            if now is None:
                self._put_id(name, known)
            if kind.url:
                needed = name == "compatible"
                self._put(
                    "baseUrl", "Address" if needed else "Address (optional)", kind.url, now.base_url if now else None
                )
            if kind.described:
                self._editor = self._put_description(now)
            if kind.model:
                label = kind.model if name in ("twilio", "pipecat") else f"{kind.model} (optional)"
                self._put("arguments.model", label, kind.model_hint, now.arguments.model if now else None)
            if kind.key:
                self._put_key(kind, now)
            with parts.box("row"):
                self._form.submit("Add" if now is None else "Save")
                parts.link_button("Cancel", "/settings/providers")

    def _put_id(self, name: str, known: set[str]) -> None:
        stands_for_all = bool(KINDS[name].key) and name not in ("websocket", "compatible")
        suggested = name if stands_for_all and name not in known else ""
        hint = "what is typed before the colon, as in id:MODEL; small letters, digits, dots, hyphens, underscores"
        if suggested:
            hint += f". As {name} it is the account of every {name} model here"
        self._put("id", "Id", hint, suggested)

    def _put(self, path: str, label: str, hint: str, value: str | None) -> None:
        made = parts.field(label, value or "", hint=hint)
        made.props("autocomplete=off spellcheck=false autocapitalize=off")
        self._fields[path] = made

    def _put_description(self, now: ProviderView | None) -> "_DescriptionEditor":
        text = TEMPLATE if now is None else json.dumps(_said(now.arguments.description), indent=2)
        parts.show(tag("h2", "Description"))
        parts.paragraph(
            "Where the agent is, how sound travels, what its messages mean. Everybody sees it: write {key} where the "
            "key belongs.",
            quiet=True,
        )
        return _DescriptionEditor(self._desk, "Description of the agent, in YAML", text, _nothing)

    def _put_key(self, kind: Kind, now: ProviderView | None) -> None:
        is_set = bool(now and now.key_set)
        label = "Key" if kind.key_needed and not is_set else "New key (optional)" if is_set else "Key (optional)"
        hint = "a key is set; leave this empty to keep it" if is_set else kind.key
        self._fields["apiKey"] = self._key = Secret(label, f"{hint}. It is stored encrypted, and never shown again")
        if is_set:
            self._without = parts.tick("Remove the key")

    async def _save(self) -> None:
        stated = await self._stated()
        with self._form.told_at(self._fields):
            try:
                if self._now is None:
                    new = NewProvider(id=self._said("id") or "", kind=self._name, **stated)
                    await self._desk.call(create_provider, new)
                else:
                    await self._desk.call(change_provider, self._now.id, stated)
            except Refused as error:
                raise self._placed(error) from None
            if of_kind(self._name).described:
                self._editor.keep(self._editor.text)
            ui.navigate.to("/settings/providers")

    async def _stated(self) -> dict[str, Any]:
        kind, found = of_kind(self._name), dict[str, Any]()
        if kind.url:
            found["base_url"] = self._said("baseUrl")
        if kind.model:
            found["model"] = self._said("arguments.model")
        if kind.described:
            found["description"] = self._editor.text
        key = (await self._key.typed()).strip() if self._key else ""
        if key or (self._without and self._without.value):
            found["api_key"] = key or None
        return found

    def _said(self, path: str) -> str | None:
        value: str | None = getattr(self._fields[path], "value", None)
        return (value or "").strip() or None

    def _placed(self, error: Refused) -> Refused:
        """Return a refusal with its places: an id that is taken, a description that is told below the editor."""
        if error.reason == "already_exists":
            return Refused(error.status, str(error), error.reason, [Problem(str(error), "id")])
        if any(each.file == "description" for each in error.problems):
            self._editor.show(Checked(self._editor.text, error.problems))
            return Refused(error.status, "the description is not valid; see below it what is wrong", error.reason)
        return error


class _DescriptionEditor(YamlEditor):
    """The editor, for descriptions of agents."""

    async def check(self) -> None:
        """Check what stands in it, and mark what is wrong."""
        text = self.text
        try:
            problems = (await self._desk.call(check_description, text)).problems
        except Refused as error:
            problems = [Problem(str(error))]
        if text == self.text:
            self.show(Checked(text, problems))


async def _nothing(_: Checked) -> None:
    """Hear of a check, and do nothing: the editor has told it."""


def _said(description: Any) -> Any:
    """Return a description without what it does not say."""
    if isinstance(description, dict):
        return {name: _said(value) for name, value in description.items() if value not in (None, [], {})}
    return [_said(each) for each in description] if isinstance(description, list) else description
