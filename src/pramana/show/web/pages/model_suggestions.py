"""Suggestions for model names: what each provider offers, loaded in the background and added to a field's list.

Without an answer of a provider, names can still be typed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nicegui import background_tasks

from pramana.analyse.numbers import pluralise
from pramana.app.models import OfferView, list_models
from pramana.app.providers import list_providers
from pramana.report.markup import SafeHtml, render_link, render_untrusted_text, tag
from pramana.show.web.kit import PageContext, UseCaseRefused, parts

ALWAYS_SUGGESTED_MODELS = ("local", "local-voice", "fake")
"""Models that are always suggested; the first one needs no setup."""
MODEL_NAMES_HINT = (
    "local is the embedded model and needs no key. Write other models as PROVIDER:MODEL or http://HOST:PORT/v1#MODEL."
)
_PROVIDERS_WITHOUT_MODEL_NAME = ("local", "fake", "local-voice", "fake-voice")
"""Providers that need no model name."""


def suggest_models(context: PageContext, *suggest: Callable[[Iterable[str]], None]) -> None:
    """Suggest all offered models in some fields, and show below them which providers did not answer."""
    problems = parts.add_markup(SafeHtml(""))

    async def load_offers() -> None:
        try:
            offers = await context.call(list_models)
            registered = (await context.call(list_providers)).items
        except UseCaseRefused:
            return  # without suggestions, names can still be typed
        if not problems.is_deleted:
            own = {each.id: each.arguments.model for each in registered}
            names = [*ALWAYS_SUGGESTED_MODELS, *_iterate_suggested_models(offers, own)]
            for each in suggest:
                each(names)
            problems.set_content(_render_offer_problems(offers))

    background_tasks.create(load_offers(), name="List available models", context=problems)


def _iterate_suggested_models(
    offers: Sequence[OfferView], default_models_by_provider: Mapping[str, str | None]
) -> Iterator[str]:
    """Yield each offered model as a user types it.

    `default_models_by_provider` maps a provider to its default model.
    """
    for offer in offers:
        name = offer.provider
        if name in _PROVIDERS_WITHOUT_MODEL_NAME or default_models_by_provider.get(name):
            yield name
        else:
            yield from (f"{name}:{model}" for model in offer.models)


def _render_offer_problems(offers: Sequence[OfferView]) -> SafeHtml:
    """Return the errors of providers whose models could not be listed, or nothing."""
    wrong = [each for each in offers if each.problem]
    if not wrong:
        return SafeHtml("")
    rows = (
        tag("li", render_untrusted_text(each.provider), ": ", render_untrusted_text(each.problem, 500))
        for each in wrong
    )
    return tag(
        "details",
        tag("summary", f"Could not list the models of {pluralise(len(wrong), 'provider')}"),
        tag("ul", rows, class_="lines small"),
        tag("p", render_link("/settings/providers", "Providers"), class_="small"),
    )
