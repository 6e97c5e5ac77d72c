"""Registered providers: their settings, whether their keys are set, and a connection test. Never shows a key.

The form of each kind has only the fields that it supports, with a hint for each.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from nicegui import ui

from pramana.app.providers import (
    NewProvider,
    ProbeOutcome,
    ProviderView,
    VariableView,
    change_provider,
    check_agent_description,
    create_provider,
    delete_provider,
    list_providers,
    probe_provider,
    read_provider,
)
from pramana.errors import Problem
from pramana.report.markup import (
    Column,
    SafeHtml,
    join_html,
    render_facts,
    render_table,
    render_untrusted_text,
    render_with_sign,
    tag,
)
from pramana.show.api.envelope import public_message
from pramana.show.web.kit import PAGE_HINTS, PageContext, UseCaseRefused, frame, make_url, parts
from pramana.show.web.kit.forms import Field, Form, SecretField
from pramana.show.web.kit.yaml_editor import CheckedDocument, YamlEditor
from pramana.show.web.pages.provider_kinds import (
    DESCRIPTION_TEMPLATE,
    KINDS_BY_GROUP,
    KINDS_BY_NAME,
    ProviderKindForm,
    find_kind,
)
from pramana.show.web.pages.settings import add_section_heading


@frame.register_page("/settings/providers", "Providers")
async def show_providers_page(context: PageContext) -> None:
    """List the registered providers, and the keys in the server's environment."""
    with add_section_heading(context, "Providers", "Vendors, your own servers and voice agents to test."):
        if context.may(create_provider):
            parts.add_link_button("Add a provider", "/settings/new-provider", "primary")
    listed, environment = parts.Panel(), parts.add_markup(SafeHtml(""))

    async def refresh() -> None:
        found = await context.call(list_providers)
        listed.redraw_if_changed(found.items, partial(_draw_provider_cards, context, found.items))
        environment.set_content(_render_environment(found.environment))

    await refresh()
    context.on_change({"provider"}, refresh)


def _draw_provider_cards(context: PageContext, providers_: Sequence[ProviderView]) -> None:
    if not providers_:
        words = "Vendors with a key below work without registration. Register your own server, agent or account here."
        with parts.open_empty_state("No provider is registered", words):
            if context.may(create_provider):
                parts.add_link_button("Add a provider", "/settings/new-provider")
        return
    with parts.open_box("grid"):
        for each in providers_:
            _ProviderCard(context, each)


class _ProviderCard:
    """The card of one provider."""

    def __init__(self, context: PageContext, provider: ProviderView) -> None:
        self._context, self._id = context, provider.id
        with parts.open_card(self._id):
            parts.add_markup(_render_provider_facts(provider))
            unsaid = find_kind(provider.kind).needs_model_to_probe and not provider.arguments.model
            hint = "the agent is called, and the call ends at once"
            may_test = context.may(probe_provider)
            self._model = parts.add_text_field("Model to test with", hint=hint) if unsaid and may_test else None
            with parts.open_box("row"):
                if may_test:
                    parts.add_button("Test", self._test_connection, small=True, accessible_label=f"Test {self._id}")
                if context.may(change_provider):
                    to = make_url(f"/settings/providers/{self._id}")
                    parts.add_markup(tag("a", "Change", href=to, class_="btn small", aria_label=f"Change {self._id}"))
                if context.may(delete_provider):
                    parts.add_button(
                        "Delete", self._delete, "danger", small=True, accessible_label=f"Delete {self._id}"
                    )
            with parts.open_box("told", role="status"):
                self._result = parts.add_markup(SafeHtml(""))

    async def _test_connection(self) -> None:
        self._result.set_content(tag("p", "Testing …", class_="quiet"))
        model = (self._model.value or "").strip() if self._model else ""
        try:
            found = await self._context.call(probe_provider, self._id, model or None)
        except UseCaseRefused as error:
            if error.status == 401:
                raise
            self._result.set_content(_render_failure(parts.describe_refusal(error)))
        else:
            self._result.set_content(_render_probe(found))

    async def _delete(self) -> None:
        consequence = (
            "Its key is deleted too. Finished runs with this provider stay; unfinished ones cannot be resumed."
        )
        if await parts.ask_confirmation(f"Delete {self._id}?", consequence, "Delete"):
            await self._context.call(delete_provider, self._id)
            parts.show_notification(f"Provider {self._id} deleted.", "positive")


def _render_provider_facts(provider: ProviderView) -> SafeHtml:
    kind, arguments = find_kind(provider.kind), provider.arguments
    description = arguments.description or {}
    where = provider.base_url or description.get("base_url") or description.get("url")
    found: list[tuple[str, SafeHtml | str]] = [("Kind", kind.title)]
    if description:
        found.append(("Agent", render_untrusted_text(str(description.get("name", "")))))
    if kind.key_hint or where:
        found.append(
            ("Address", tag("span", render_untrusted_text(where), class_="mono") if where else "the vendor’s own")
        )
    if arguments.model:
        found.append((kind.model_label or "Model", tag("span", render_untrusted_text(arguments.model), class_="mono")))
    if kind.key_hint:
        found.append(("Key", _render_key_state(provider.key_set)))
    return render_facts(found)


def _render_key_state(is_set: bool) -> SafeHtml:
    return render_with_sign("✓", "set", "passed") if is_set else render_with_sign("–", "not set", "skipped")


def _render_probe(probe: ProbeOutcome) -> SafeHtml:
    models, took = probe.models, _format_ms(probe.latency_ms)
    if probe.failure:
        return _render_failure(public_message(probe.failure, PAGE_HINTS), f" after {took}")
    shown = ", ".join(models[:8]) + (" …" if len(models) > 8 else "")
    offered = join_html(
        [f"Offers {len(models):,} model{'' if len(models) == 1 else 's'}: ", render_untrusted_text(shown)]
    )
    return join_html(
        [
            tag("p", render_with_sign("✓", "healthy", "passed"), f", answered in {took}"),
            tag("p", offered, class_="small quiet") if models else None,
        ]
    )


def _render_failure(reason: str, duration_note: str = "") -> SafeHtml:
    words = render_untrusted_text(f"{reason[:1].upper()}{reason[1:]}")
    return join_html(
        [tag("p", render_with_sign("✗", "failed", "failed"), duration_note, ":"), tag("p", words, class_="small")]
    )


def _format_ms(duration_ms: float) -> str:
    """Return a duration in milliseconds.

    >>> _format_ms(12.34), _format_ms(1234.5)
    ('12.3 ms', '1,234 ms')
    """
    return f"{duration_ms:,.1f} ms" if duration_ms < 100 else f"{duration_ms:,.0f} ms"


def _render_environment(variables: Sequence[VariableView]) -> SafeHtml:
    columns = (Column("Variable", is_row_header=True), Column("For"), Column("Key"))
    rows = [
        (
            tag("span", each.variable, class_="mono"),
            ", ".join(find_kind(kind).title for kind in each.kinds),
            _render_key_state(each.set),
        )
        for each in sorted(variables, key=lambda each: not each.set)
    ]
    words = (
        "Well-known vendors need only a key in the environment of the server. A registered provider has its own key or "
        "none, and takes precedence over these."
    )
    return join_html(
        [
            tag("h2", "Keys in the server’s environment"),
            tag("p", words, class_="quiet"),
            render_table("Keys in the server's environment", columns, rows, hide_caption=True),
        ]
    )


# ── Forms ──

_BREADCRUMBS = (("/settings", "Settings"), ("/settings/providers", "Providers"))


@frame.register_page("/settings/new-provider", "Add a provider", create_provider)
async def show_new_provider_page(context: PageContext) -> None:
    """Choose a kind, then register a provider of it."""
    name = context.query.get("kind", "")
    if name not in KINDS_BY_NAME:
        frame.add_page_heading("Add a provider", "Choose a kind", _BREADCRUMBS)
        parts.add_markup(join_html(_render_group(context, title, kinds) for title, kinds in KINDS_BY_GROUP.items()))
        return
    kind = KINDS_BY_NAME[name]
    frame.add_page_heading(
        f"Add: {kind.title}", kind.summary, (*_BREADCRUMBS, (context.make_page_url(kind=None), "Add a provider"))
    )
    known = {each.id for each in (await context.call(list_providers)).items}
    _ProviderForm(context, name, None, known)


@frame.register_page("/settings/providers/{id}", "Change a provider", change_provider)
async def show_provider_page(context: PageContext) -> None:
    """Edit a provider; its id and kind are fixed."""
    found = await context.call(read_provider, context.path["id"])
    kind = find_kind(found.kind)
    frame.add_page_heading(render_untrusted_text(found.id), f"{kind.title}. {kind.summary}", _BREADCRUMBS)
    frame.set_window_title(found.id)
    _ProviderForm(context, found.kind, found, set())


def _render_group(context: PageContext, title: str, kinds: Mapping[str, ProviderKindForm]) -> SafeHtml:
    cards = (
        tag(
            "li",
            tag("a", kind.title, href=context.make_page_url(kind=name)),
            tag("p", kind.summary, class_="small quiet"),
            class_="card",
        )
        for name, kind in kinds.items()
    )
    return join_html([tag("h2", title), tag("ul", cards, class_="grid plain-list")])


class _ProviderForm:
    """The form of a provider, new or registered."""

    def __init__(self, context: PageContext, name: str, now: ProviderView | None, known: set[str]) -> None:
        self._context, self._name, self._now = context, name, now
        self._fields: dict[str, Field] = {}
        self._key: SecretField | None = None
        self._remove_key: ui.checkbox | None = None
        kind = find_kind(name)
        with Form(self._save) as self._form:
            if now is None:
                self._add_id_field(name, known)
            if kind.url_hint:
                needed = name == "compatible"
                self._add_field(
                    "baseUrl",
                    "Address" if needed else "Address (optional)",
                    kind.url_hint,
                    now.base_url if now else None,
                )
            if kind.is_described_in_yaml:
                self._editor = self._add_description_editor(now)
            if kind.model_label:
                label = kind.model_label if name in ("twilio", "pipecat") else f"{kind.model_label} (optional)"
                self._add_field("arguments.model", label, kind.model_hint, now.arguments.model if now else None)
            if kind.key_hint:
                self._add_key_field(kind, now)
            with parts.open_box("row"):
                self._form.add_submit_button("Add" if now is None else "Save")
                parts.add_link_button("Cancel", "/settings/providers")

    def _add_id_field(self, kind_name: str, known_ids: set[str]) -> None:
        stands_for_all = bool(KINDS_BY_NAME[kind_name].key_hint) and kind_name not in ("websocket", "compatible")
        suggested = kind_name if stands_for_all and kind_name not in known_ids else ""
        hint = "typed before the colon, as in id:MODEL; lowercase letters, digits, dots, hyphens and underscores"
        if suggested:
            hint += f". With the ID {kind_name}, it is used for every {kind_name} model on this server"
        self._add_field("id", "Id", hint, suggested)

    def _add_field(self, path: str, label: str, hint: str, value: str | None) -> None:
        made = parts.add_text_field(label, value or "", hint=hint)
        self._fields[path] = made.props("autocomplete=off spellcheck=false autocapitalize=off")

    def _add_description_editor(self, current_provider: ProviderView | None) -> "_DescriptionEditor":
        text = (
            DESCRIPTION_TEMPLATE
            if current_provider is None
            else json.dumps(_remove_empty_fields(current_provider.arguments.description), indent=2)
        )
        parts.add_markup(tag("h2", "Description"))
        parts.add_paragraph(
            "The agent’s address, its audio format and the meaning of its messages. Every user can read the "
            "description: write {key} in place of the key.",
            quiet=True,
        )
        return _DescriptionEditor(self._context, "Description of the agent, in YAML", text, _do_nothing)

    def _add_key_field(self, kind: ProviderKindForm, current_provider: ProviderView | None) -> None:
        is_set = bool(current_provider and current_provider.key_set)
        label = "Key" if kind.is_key_required and not is_set else "New key (optional)" if is_set else "Key (optional)"
        hint = "a key is set; leave this empty to keep it" if is_set else kind.key_hint
        self._fields["apiKey"] = self._key = SecretField(
            label, f"{hint}. The key is stored encrypted and never shown again"
        )
        if is_set:
            self._remove_key = parts.add_checkbox("Remove the key")

    async def _save(self) -> None:
        stated = await self._collect_field_values()
        with self._form.show_errors_at(self._fields):
            try:
                if self._now is None:
                    new = NewProvider(id=self._read_field("id") or "", kind=self._name, **stated)
                    await self._context.call(create_provider, new)
                else:
                    await self._context.call(change_provider, self._now.id, stated)
            except UseCaseRefused as error:
                raise self._relocate_errors(error) from None
            if find_kind(self._name).is_described_in_yaml:
                self._editor.mark_saved(self._editor.text)
            ui.navigate.to("/settings/providers")

    async def _collect_field_values(self) -> dict[str, Any]:
        kind, found = find_kind(self._name), dict[str, Any]()
        if kind.url_hint:
            found["base_url"] = self._read_field("baseUrl")
        if kind.model_label:
            found["model"] = self._read_field("arguments.model")
        if kind.is_described_in_yaml:
            found["description"] = self._editor.text
        key = (await self._key.read_value()).strip() if self._key else ""
        if key or (self._remove_key and self._remove_key.value):
            found["api_key"] = key or None
        return found

    def _read_field(self, path: str) -> str | None:
        value: str | None = getattr(self._fields[path], "value", None)
        return (value or "").strip() or None

    def _relocate_errors(self, error: UseCaseRefused) -> UseCaseRefused:
        """Return an error with a taken id placed at its field; show a description's problems in the editor."""
        if error.reason == "already_exists":
            return UseCaseRefused(error.status, str(error), error.reason, [Problem(str(error), "id")])
        if any(each.file == "description" for each in error.problems):
            self._editor.show_problems(CheckedDocument(self._editor.text, error.problems))
            return UseCaseRefused(error.status, "the description is not valid; see the errors below it", error.reason)
        return error


class _DescriptionEditor(YamlEditor):
    """The YAML editor for agent descriptions."""

    async def check_text(self, text: str) -> CheckedDocument:
        """Check a description."""
        try:
            return CheckedDocument(text, (await self._context.call(check_agent_description, text)).problems)
        except UseCaseRefused as error:
            return CheckedDocument(text, [Problem(str(error))])


async def _do_nothing(_: CheckedDocument) -> None:
    """Do nothing: the editor shows the result of its check itself."""


def _remove_empty_fields(description: Any) -> Any:
    """Return a description without its empty fields."""
    if isinstance(description, dict):
        return {name: _remove_empty_fields(value) for name, value in description.items() if value not in (None, [], {})}
    return [_remove_empty_fields(each) for each in description] if isinstance(description, list) else description
