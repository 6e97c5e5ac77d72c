"""Registered providers: who they are, whether their keys are set, and whether they answer. A key is never shown.

Each kind has a form with the fields that it takes and no others, with what to write in them.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from nicegui import ui

from pramana.app.providers import (
    NewProvider,
    Probe,
    ProviderView,
    VariableView,
    change_provider,
    check_description,
    create_provider,
    delete_provider,
    list_providers,
    probe_provider,
    read_provider,
)
from pramana.errors import Problem
from pramana.report.markup import Column, Safe, facts, foreign, join, marked, table, tag
from pramana.show.api.envelope import public_message
from pramana.show.web.kit import PAGE_HINTS, Desk, Refused, address, frame, parts
from pramana.show.web.kit.forms import Field, Form, Secret
from pramana.show.web.kit.yaml_editor import Checked, YamlEditor
from pramana.show.web.pages.provider_kinds import GROUPS, KINDS, TEMPLATE, Kind, of_kind
from pramana.show.web.pages.settings import section


@frame.page("/settings/providers", "Providers")
async def providers(desk: Desk) -> None:
    """List the registered providers, and which keys the server's environment has."""
    with section(desk, "Providers", "Vendors, your own servers and voice agents to test."):
        if desk.may(create_provider):
            parts.link_button("Add a provider", "/settings/new-provider", "primary")
    listed, environment = parts.Panel(), parts.show(Safe(""))

    async def again() -> None:
        found = await desk.call(list_providers)
        listed.show(found.items, partial(_list, desk, found.items))
        environment.set_content(_environment(found.environment))

    await again()
    desk.when_new({"provider"}, again)


def _list(desk: Desk, found: Sequence[ProviderView]) -> None:
    if not found:
        words = "Vendors with a key below work without registration. Register your own server, agent or account here."
        with parts.empty("No provider is registered", words):
            if desk.may(create_provider):
                parts.link_button("Add a provider", "/settings/new-provider")
        return
    with parts.box("grid"):
        for each in found:
            _Card(desk, each)


class _Card:
    """One provider."""

    def __init__(self, desk: Desk, provider: ProviderView) -> None:
        self._desk, self._id = desk, provider.id
        with parts.card(self._id):
            parts.show(_facts(provider))
            unsaid = of_kind(provider.kind).called and not provider.arguments.model
            hint = "the agent is called and the call is ended"
            may_test = desk.may(probe_provider)
            self._model = parts.field("Model to test with", hint=hint) if unsaid and may_test else None
            with parts.box("row"):
                if may_test:
                    parts.button("Test", self._test, small=True, label=f"Test {self._id}")
                if desk.may(change_provider):
                    to = address(f"/settings/providers/{self._id}")
                    parts.show(tag("a", "Change", href=to, class_="btn small", aria_label=f"Change {self._id}"))
                if desk.may(delete_provider):
                    parts.button("Delete", self._delete, "danger", small=True, label=f"Delete {self._id}")
            with parts.box("told", role="status"):
                self._told = parts.show(Safe(""))

    async def _test(self) -> None:
        self._told.set_content(tag("p", "Testing …", class_="quiet"))
        model = (self._model.value or "").strip() if self._model else ""
        try:
            found = await self._desk.call(probe_provider, self._id, model or None)
        except Refused as error:
            if error.status == 401:
                raise
            self._told.set_content(_failed(parts.sentence(error)))
        else:
            self._told.set_content(_tested(found))

    async def _delete(self) -> None:
        consequence = "Its key is forgotten. Runs that were made with it stay; those that are unfinished cannot go on."
        if await parts.confirm(f"Delete {self._id}?", consequence, "Delete"):
            await self._desk.call(delete_provider, self._id)
            parts.tell(f"{self._id} is deleted.", "positive")


def _facts(provider: ProviderView) -> Safe:
    kind, arguments = of_kind(provider.kind), provider.arguments
    description = arguments.description or {}
    where = provider.base_url or description.get("base_url") or description.get("url")
    found: list[tuple[str, Safe | str]] = [("Kind", kind.title)]
    if description:
        found.append(("Agent", foreign(str(description.get("name", "")))))
    if kind.key or where:
        found.append(("Address", tag("span", foreign(where), class_="mono") if where else "the vendor’s own"))
    if arguments.model:
        found.append((kind.model or "Model", tag("span", foreign(arguments.model), class_="mono")))
    if kind.key:
        found.append(("Key", _is_set(provider.key_set)))
    return facts(found)


def _is_set(is_set: bool) -> Safe:
    return marked("✓", "set", "passed") if is_set else marked("–", "not set", "skipped")


def _tested(found: Probe) -> Safe:
    models, took = found.models, _ms(found.latency_ms)
    if found.failure:
        return _failed(public_message(found.failure, PAGE_HINTS), f" after {took}")
    shown = ", ".join(models[:8]) + (" …" if len(models) > 8 else "")
    offered = join([f"It offers {len(models):,} model{'' if len(models) == 1 else 's'}: ", foreign(shown)])
    return join(
        [
            tag("p", marked("✓", "healthy", "passed"), f", answered in {took}"),
            tag("p", offered, class_="small quiet") if models else None,
        ]
    )


def _failed(why: str, after: str = "") -> Safe:
    words = foreign(f"{why[:1].upper()}{why[1:]}")
    return join([tag("p", marked("✗", "failed", "failed"), after, ":"), tag("p", words, class_="small")])


def _ms(taken: float) -> str:
    """Return how long something took.

    >>> _ms(12.34), _ms(1234.5)
    ('12.3 ms', '1,234 ms')
    """
    return f"{taken:,.1f} ms" if taken < 100 else f"{taken:,.0f} ms"


def _environment(found: Sequence[VariableView]) -> Safe:
    columns = (Column("Variable", head=True), Column("For"), Column("Key"))
    rows = [
        (
            tag("span", each.variable, class_="mono"),
            ", ".join(of_kind(kind).title for kind in each.kinds),
            _is_set(each.set),
        )
        for each in sorted(found, key=lambda each: not each.set)
    ]
    words = (
        "What Pramana knows by name needs only a key in the environment of the server. A registered provider brings "
        "its own key or none, and goes before these."
    )
    return join(
        [
            tag("h2", "Keys in the server’s environment"),
            tag("p", words, class_="quiet"),
            table("Keys in the server's environment", columns, rows, hidden=True),
        ]
    )


# ── Forms ──

_CRUMBS = (("/settings", "Settings"), ("/settings/providers", "Providers"))


@frame.page("/settings/new-provider", "Add a provider", create_provider)
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


@frame.page("/settings/providers/{id}", "Change a provider", change_provider)
async def change(desk: Desk) -> None:
    """Let everything but id and kind be changed."""
    found = await desk.call(read_provider, desk.path["id"])
    kind = of_kind(found.kind)
    frame.head(foreign(found.id), f"{kind.title}. {kind.about}", _CRUMBS)
    frame.titled(found.id)
    _Form(desk, found.kind, found, set())


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
        self._fields[path] = made.props("autocomplete=off spellcheck=false autocapitalize=off")

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

    async def examine(self, text: str) -> Checked:
        """Return what a description is worth."""
        try:
            return Checked(text, (await self._desk.call(check_description, text)).problems)
        except Refused as error:
            return Checked(text, [Problem(str(error))])


async def _nothing(_: Checked) -> None:
    """Hear of a check, and do nothing: the editor has told it."""


def _said(description: Any) -> Any:
    """Return a description without what it does not say."""
    if isinstance(description, dict):
        return {name: _said(value) for name, value in description.items() if value not in (None, [], {})}
    return [_said(each) for each in description] if isinstance(description, list) else description
