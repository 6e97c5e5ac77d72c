"""What a run will take, before it starts, and whom one can ask: answers of the API in, markup out."""

from collections.abc import Iterator, Mapping, Sequence

from pramana.analyse.summary import Total
from pramana.app.offers import OfferView
from pramana.app.views import EstimateView, ShareView
from pramana.report.figures import money
from pramana.report.markup import Safe, foreign, join, link, tag, tiles
from pramana.request import RunRequest
from pramana.show.web.kit import parts
from pramana.show.web.kit.desk import Refused

ALWAYS = ("local", "local-voice", "fake")
"""Models that are there whatever is set up; first of all the one that anybody can ask."""
_OWN_NAME = ("local", "fake", "local-voice", "fake-voice")
"""Providers whose name is enough."""


def missing(request: RunRequest) -> Safe | None:
    """Return what must be chosen before anything can be estimated."""
    if request.suite is None and request.scenarios is None:
        return tag("p", "Choose a suite or scenarios.", class_="quiet")
    return None if request.models else tag("p", "Add a model to ask.", class_="quiet")


def estimate(found: EstimateView, *, capped: bool) -> Safe:
    """Return what a run will take, and what to do where that is not known."""
    shares = [each for each in found.shares if each.calls]
    numbers = [
        ("Calls", f"{found.calls:,}", f"{_many(found.cases, 'case')}, {_many(found.results, 'result')}"),
        ("Cost", _dollars(shares), None),
        ("Tokens in", _tokens(found.input_tokens), None),
        ("Tokens out", _tokens(found.output_tokens), None),
    ]
    return tag(
        "div",
        tiles(numbers),
        _warnings(found, capped=capped),
        _uncounted(found),
        _shares(shares) if len(shares) > 1 else None,
        tag("p", found.note, class_="small quiet"),
        class_="stack",
    )


def refusal(error: Refused) -> Safe:
    """Return why this cannot be started."""
    return tag("div", tag("p", foreign(parts.sentence(error))), class_="warn trouble", role="alert")


def _shares(shares: Sequence[ShareView]) -> Safe:
    listed = tag("ul", (_share(each) for each in shares), class_="lines small")
    return tag("details", tag("summary", "Who takes what"), listed)


def _share(each: ShareView) -> Safe:
    known = each.input_tokens is not None and each.output_tokens is not None
    counted = f"{(each.input_tokens or 0) + (each.output_tokens or 0):,} tokens" if known else "tokens unknown"
    purpose = "" if each.purpose == "model" else f"as the {each.purpose}, "
    cost = "cost unknown" if each.cost_usd is None else _dollars([each])
    return tag("li", foreign(each.model, 120), ": ", f"{purpose}{_many(each.calls, 'call')}, {counted}, {cost}")


def _dollars(shares: Sequence[ShareView]) -> str:
    costs = [each.cost_usd for each in shares]
    return money(Total(sum(each for each in costs if each is not None), costs.count(None)))


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _tokens(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _warnings(found: EstimateView, *, capped: bool) -> Safe | None:
    """Return, in one place, what will be missing and what to do about it."""
    said = [tag("p", foreign(each, 300), ".") for each in found.warnings]
    if found.missing_keys:
        said.append(tag("p", link("/settings/providers", "To the providers")))
    if unpriced := _unpriced(found.unknown_prices, capped=capped):
        said.append(unpriced)
    return tag("div", said, class_="warn") if said else None


def _unpriced(names: Sequence[str], *, capped: bool) -> Safe | None:
    if not names:
        return None
    listed = join((foreign(each, 120) for each in names[:5]), ", ")
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    then = (
        "With a limit of its cost the run will not begin before there is one."
        if capped
        else "The run can start all the same; what it costs will stay unknown."
    )
    return tag("p", "No price is known for ", listed, f"{more}. ", link("/settings/prices", "Set a price"), f". {then}")


def _uncounted(found: EstimateView) -> Safe | None:
    if found.input_tokens is not None and found.output_tokens is not None:
        return None
    return tag("p", "Nobody can tell beforehand how many tokens a spoken conversation takes.", class_="small quiet")


# ── Whom one can ask ──


def typed(offers: Sequence[OfferView], registered: Mapping[str, str | None]) -> Iterator[str]:
    """Yield each model that is offered, as it is typed; `registered` has the model of each provider that has one."""
    for offer in offers:
        name = offer.provider
        if name in _OWN_NAME or registered.get(name):
            yield name
        else:
            yield from (f"{name}:{model}" for model in offer.models)


def problems(offers: Sequence[OfferView]) -> Safe:
    """Return why providers could not be asked what they offer; nothing where all could."""
    wrong = [each for each in offers if each.problem]
    if not wrong:
        return Safe("")
    many = _many(len(wrong), "provider")
    rows = (tag("li", foreign(each.provider), ": ", foreign(each.problem, 500)) for each in wrong)
    return tag(
        "details",
        tag("summary", f"{many} could not be asked for models"),
        tag("ul", rows, class_="lines small"),
        tag("p", link("/settings/providers", "To the providers"), class_="small"),
    )
