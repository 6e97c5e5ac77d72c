"""Registered providers: who they are, whether their keys are set, and whether they answer. A key is never shown."""

from collections.abc import Sequence

from nicegui import ui

from pramana.app.providers import (
    Probe,
    ProviderList,
    ProviderView,
    VariableView,
    delete_provider,
    list_providers,
    probe_provider,
)
from pramana.report.markup import Column, Safe, foreign, join, table, tag
from pramana.show.api.envelope import public_message
from pramana.show.web.kit import frame, parts
from pramana.show.web.kit.desk import PAGE_HINTS, Desk, Refused, address
from pramana.show.web.pages.provider_kinds import of_kind
from pramana.show.web.pages.settings import section


@frame.page("/settings/providers", "Providers")
async def providers(desk: Desk) -> None:
    """List the registered providers, and which keys the server's environment has."""
    with section(desk, "Providers", "Who can be asked: vendors, servers of your own, voice agents."):
        parts.link_button("Add a provider", "/settings/new-provider", "primary")
    listed = ui.element("div")
    environment = parts.show(Safe(""))

    shown: list[ProviderList] = []

    async def again() -> None:
        found = await desk.call(list_providers)
        if shown == [found]:
            return
        shown[:] = [found]
        listed.clear()
        with listed:
            _list(desk, found.items)
        environment.set_content(_environment(found.environment))

    await again()
    desk.when_new({"provider"}, again)


def _list(desk: Desk, found: Sequence[ProviderView]) -> None:
    if not found:
        words = "A vendor whose key stands below can be asked at once. Register your own server, agent or account here."
        with parts.empty("No provider is registered", words):
            parts.link_button("Add a provider", "/settings/new-provider")
        return
    with parts.box("grid"):
        for each in found:
            _Card(desk, each)


class _Card:
    """One provider."""

    def __init__(self, desk: Desk, provider: ProviderView) -> None:
        self._desk, self._id = desk, provider.id
        with parts.box("card stack") as self._card:
            parts.show(tag("h2", self._id, class_="card-title"))
            parts.show(_facts(provider))
            hint = "an agent is called, and hung up on"
            self._model = parts.field("Model to test with", hint=hint) if _unsaid(provider) else None
            with parts.box("row"):
                parts.button("Test", self._test, small=True, label=f"Test {self._id}")
                to = address(f"/settings/providers/{self._id}")
                parts.show(tag("a", "Change", href=to, class_="btn small", aria_label=f"Change {self._id}"))
                parts.button("Delete", self._delete, "danger", small=True, label=f"Delete {self._id}")
            with parts.box("told", role="status"):
                self._told = parts.show(Safe(""))

    async def _test(self) -> None:
        self._told.set_content(tag("p", "Asking …", class_="quiet"))
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
    facts: list[tuple[str, Safe | str]] = [("Kind", kind.title)]
    if description:
        facts.append(("Agent", foreign(str(description.get("name", "")))))
    if kind.key or where:
        facts.append(("Address", tag("span", foreign(where), class_="mono") if where else "the vendor’s own"))
    if arguments.model:
        facts.append((kind.model or "Model", tag("span", foreign(arguments.model), class_="mono")))
    if kind.key:
        facts.append(("Key", _is_set(provider.key_set)))
    return tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")


def _is_set(is_set: bool) -> Safe:
    return _said("passed", "✓", "set") if is_set else _said("skipped", "–", "not set")


def _unsaid(provider: ProviderView) -> bool:
    """Tell whether a test needs to be told whom to call."""
    return of_kind(provider.kind).called and not provider.arguments.model


def _tested(found: Probe) -> Safe:
    models, took = found.models, _ms(found.latency_ms)
    if found.failure:
        return _failed(public_message(found.failure, PAGE_HINTS), f" after {took}")
    shown = ", ".join(models[:8]) + (" …" if len(models) > 8 else "")
    offered = join([f"It offers {len(models):,} model{'' if len(models) == 1 else 's'}: ", foreign(shown)])
    return join(
        [
            tag("p", _said("passed", "✓", "healthy"), f", answered in {took}"),
            tag("p", offered, class_="small quiet") if models else None,
        ]
    )


def _failed(why: str, after: str = "") -> Safe:
    words = foreign(f"{why[:1].upper()}{why[1:]}")
    return join([tag("p", _said("failed", "✗", "failed"), after, ":"), tag("p", words, class_="small")])


def _said(look: str, sign: str, words: str) -> Safe:
    return tag("span", tag("b", sign, aria_hidden="true"), f" {words}", class_=f"outcome {look}")


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
