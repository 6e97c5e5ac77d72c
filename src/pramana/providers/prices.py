"""The cost of a reply: a target and its usage come in, US dollars go out, or None when the price is unknown.

Prices come from genai-prices as installed; nothing is fetched. The user's price file takes precedence over it, and
prices set for everyone in the store take precedence over the file:

    [prices."openai:gpt-5"]
    input_per_million = 1.25
    output_per_million = 10.0
    cached_per_million = 0.125    # for input read from the provider's cache; defaults to the input price

A name is as typed, or `provider:model`. An unknown price is never 0; `local` and `fake` cost nothing.
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pramana import clock
from pramana.errors import InvalidInput, Problem, quote_text, suggest_similar
from pramana.model import Target, Usage
from pramana.providers.kinds import VOICE_AGENT_KINDS_WITH_ACCOUNT

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

FREE_KINDS = ("local", "local-voice", "fake", "fake-voice")
FUNCTION_KIND = "python"
USER_CODE_KINDS = (FUNCTION_KIND, "command")
"""Models that are the user's own code; its spending is not counted."""
PRICE_VENDOR_BY_KIND: Mapping[str, str] = {
    "openai": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "google": "google",
}
"""Our providers by their name in genai-prices."""
KINDS_WITHOUT_PRICE_LIST = (*USER_CODE_KINDS, *VOICE_AGENT_KINDS_WITH_ACCOUNT)
"""Functions have no published price; for voice agents the lists only have text, and sound costs many times that."""
MAX_USD_PER_MILLION = 1e9
"""Dollars per million tokens; anything above is a typo, and would make sums of costs overflow."""
PRICE_CACHE_S = 600.0
"""How long a price is cached: some change with the hour or the date."""
_PRICE_FIELDS = ("input_per_million", "output_per_million", "cached_per_million")
_TOML_ERROR_RE = re.compile(
    r"(?s)(?P<message>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)"
)


@dataclass(frozen=True, slots=True)
class Rates:
    """Dollars per million tokens of each kind, above some number of input tokens; None is unknown."""

    above_tokens: int
    input_per_million: float | None
    output_per_million: float | None
    cached_per_million: float | None
    per_request: float = 0.0
    """Dollars per request, regardless of tokens."""


PriceOrigin = Literal["set", "file", "published", "free"]
"""The source of a price: set in the store, the user's file, genai-prices, or free of charge."""


@dataclass(frozen=True, slots=True)
class Price:
    """A model's price and its source."""

    origin: PriceOrigin
    tiers: tuple[Rates, ...]
    """Rates by the number of input tokens, starting at zero."""
    matched_name: str | None = None
    """The name that matched, for a price set by name."""


FREE_OF_CHARGE = Price("free", (Rates(0, 0.0, 0.0, 0.0),))
_RatesCacheKey = tuple[str, str, str, str | None]


class Prices:
    """The prices at load time. Lookups are cached, so that a cost takes about a microsecond."""

    def __init__(
        self,
        file_rates: Mapping[str, Rates] | None = None,
        digest: str | None = None,
        stored_rates: Mapping[str, Rates] | None = None,
    ) -> None:
        self._file_rates, self._digest, self._set_rates = dict(file_rates or {}), digest, dict(stored_rates or {})
        self._rates_cache: dict[_RatesCacheKey, tuple[Rates, ...]] = {}
        self._cache_expires_at = 0.0

    @classmethod
    def load(cls, path: Path | None, stored_rates: Mapping[str, Rates] | None = None) -> "Prices":
        """Load the prices: the store's take precedence over the file's, and both over all others.

        A missing file has no prices.
        """
        if path is None or not path.exists():
            return cls(stored_rates=stored_rates)
        try:
            data = path.read_bytes()
            text = data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput.from_problems([Problem(f"cannot be read: {error}", file=str(path))]) from None
        return cls(_read_price_file(text, str(path)), hashlib.sha256(data).hexdigest()[:12], stored_rates)

    @property
    def version(self) -> str:
        """Return the version of the prices, for the record of a run."""
        from importlib.metadata import version

        own = f" and own prices {self._digest}" if self._digest else ""
        if self._set_rates:
            digest = hashlib.sha256(repr(sorted(self._set_rates.items())).encode("utf-8", "surrogatepass")).hexdigest()[
                :12
            ]
            own += f" and set prices {digest}"
        return f"genai-prices {version('genai-prices')}{own}"

    def find_price(self, target: Target) -> Price | None:
        """Return a target's price and its source; None if it is unknown."""
        return FREE_OF_CHARGE if target.provider in FREE_KINDS else self._look_up_price(target, None)

    def is_known(self, target: Target) -> bool:
        """Return whether the target's price is known before a request."""
        return target.provider in FREE_KINDS or bool(self._find_tiers(target, None))

    def can_count_cost(self, target: Target) -> bool:
        """Return whether a cost limit can count what a target costs: its price is known, or its replies may state it.

        >>> targets = Target("", "openai", "no-such"), Target("", "python", "a:b"), Target("", "command", "a")
        >>> list(map(Prices().can_count_cost, targets))
        [False, True, False]
        """
        return self.is_known(target) or target.provider == FUNCTION_KIND

    def needs_stated_cost(self, target: Target) -> bool:
        """Return whether the cost of a reply is unknown unless the user's function states it or its tokens.

        >>> free = Prices({"python:a:b": Rates(0, 0.0, 0.0, 0.0)})
        >>> [each.needs_stated_cost(Target("python:a:b", "python", "a:b")) for each in (Prices(), free)]
        [True, False]
        """
        return target.provider == FUNCTION_KIND and self.cost(target, None, Usage()) is None

    def may_cost(self, target: Target) -> bool:
        """Return whether a target costs or may cost money; an unknown price may, the user's own code never does.

        >>> targets = Target("", "fake", "echo"), Target("", "openai", "gpt-5"), Target("", "python", "a:b")
        >>> list(map(Prices().may_cost, targets))
        [False, True, False]
        """
        cost = self.cost(target, None, Usage(1, 1))
        return target.provider not in USER_CODE_KINDS if cost is None else cost != 0

    def cost(self, target: Target, served_model: str | None, usage: Usage) -> float | None:
        """Return the cost in dollars; None when the price or the tokens are unknown."""
        if target.provider in FREE_KINDS:
            return 0.0
        steps = self._find_tiers(target, served_model)
        if not steps:
            return None
        asked, answered, cached = usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0
        rates = steps[0]
        if len(steps) > 1:
            for step in steps[1:]:
                if asked is not None and asked > step.above_tokens:
                    rates = step
        if rates.input_per_million == rates.output_per_million == rates.cached_per_million == 0:
            return rates.per_request  # free tokens need not be counted
        if asked is None or (answered is None and rates.output_per_million is not None):
            return None
        if (asked and rates.input_per_million is None) or (answered and rates.output_per_million is None):
            return None
        cached = min(cached, asked)
        plain = (asked - cached) * (rates.input_per_million or 0.0)
        return (
            rates.per_request
            + (plain + cached * (rates.cached_per_million or 0.0) + (answered or 0) * (rates.output_per_million or 0.0))
            / 1e6
        )

    def _find_tiers(self, target: Target, served_model: str | None) -> tuple[Rates, ...]:
        now = clock.monotonic()
        if now > self._cache_expires_at:
            self._rates_cache.clear()
            self._cache_expires_at = now + PRICE_CACHE_S
        key = (target.typed, target.provider, target.model, served_model)
        if (found := self._rates_cache.get(key)) is None:
            price = self._look_up_price(target, served_model)
            found = self._rates_cache[key] = price.tiers if price else ()
        return found

    def _look_up_price(self, target: Target, served_model: str | None) -> Price | None:
        vendor = PRICE_VENDOR_BY_KIND.get(target.provider, target.provider)
        models = [model for model in (target.model, served_model) if model]
        names = (target.typed, *(f"{who}:{model}" for model in models for who in (target.provider, vendor)))
        origins: tuple[tuple[PriceOrigin, Mapping[str, Rates]], ...] = (
            ("set", self._set_rates),
            ("file", self._file_rates),
        )
        for origin, known in origins:
            for name in names:
                if name in known:
                    return Price(origin, (known[name],), name)
        where = (
            {"provider_api_url": target.arguments.get("base_url")}
            if vendor == "compatible"
            else {"provider_id": vendor}
        )
        if not all(where.values()) or vendor in KINDS_WITHOUT_PRICE_LIST:
            return None
        for model in reversed(models):  # the served name is more specific
            if steps := _find_published_tiers(model, **where):
                return Price("published", steps)
        return None


def list_published_models() -> list[str]:
    """Return the names of our vendors' models that genai-prices knows, for suggestions."""
    from genai_prices.data_snapshot import get_snapshot

    wanted = set(PRICE_VENDOR_BY_KIND.values())
    return [model.id for provider in get_snapshot().providers if provider.id in wanted for model in provider.models]


def _find_published_tiers(
    model: str, provider_id: str | None = None, provider_api_url: str | None = None
) -> tuple[Rates, ...]:

    from genai_prices.data_snapshot import get_snapshot

    try:
        _, found = get_snapshot().find_provider_model(model, None, provider_id, provider_api_url)
    except LookupError:
        return ()
    return _make_tiers(found.get_prices(clock.now()))


def _make_tiers(price: "ModelPrice") -> tuple[Rates, ...]:
    from genai_prices.types import TieredPrices

    prices = [price.input_mtok, price.output_mtok, price.cache_read_mtok]
    if prices[0] is None and prices[1] is None:
        return ()  # a known model with an unknown price
    starts = {0, *(tier.start for each in prices if isinstance(each, TieredPrices) for tier in each.tiers)}

    def at(start: int, of: Any) -> float | None:
        if isinstance(of, TieredPrices):
            reached = [tier.price for tier in of.tiers if tier.start <= start] if start else []
            of = reached[-1] if reached else of.base
        return None if of is None else float(of)

    request = price.requests_kcount
    each_request = float(request) / 1000 if request is not None and not isinstance(request, TieredPrices) else 0.0
    steps = []
    for start in sorted(starts):
        asked, answered, cached = (at(start, each) for each in prices)
        steps.append(Rates(start, asked, answered, asked if cached is None else cached, each_request))
    return tuple(steps)


def _read_price_file(text: str, file: str) -> dict[str, Rates]:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, an oversized number, or nesting too deep
        place = _TOML_ERROR_RE.fullmatch(str(error))
        message = place["message"] if place else str(error)
        line, column = (int(place["line"]), int(place["column"])) if place and place["line"] else (0, 0)
        raise InvalidInput.from_problems(
            [Problem(f"is not valid TOML: {message}", line=line, column=column, file=file)]
        ) from None
    lines = text.splitlines()
    problems = [
        Problem(
            f'unknown name{suggest_similar(name, ["prices"])}; expected [prices."provider:model"]',
            name,
            _find_line(lines, name),
            1,
            file,
        )
        for name in document
        if name != "prices"
    ]
    rates: dict[str, Rates] = {}
    entries = document.get("prices", {})
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        wrong = _find_entry_problems(name, entry, lines, file)
        problems += wrong
        if not wrong:
            asked = float(entry["input_per_million"])
            rates[name] = Rates(
                0, asked, float(entry["output_per_million"]), float(entry.get("cached_per_million", asked))
            )
    if not isinstance(entries, dict):
        problems.append(
            Problem(
                'is not a table; expected [prices."provider:model"]', "prices", _find_line(lines, "prices"), 1, file
            )
        )
    if problems:
        raise InvalidInput.from_problems(problems)
    return rates


def _find_entry_problems(name: str, entry: Any, lines: Sequence[str], file: str) -> list[Problem]:
    path, top = f'prices."{name}"', _find_line(lines, name)
    if not isinstance(entry, dict):
        return [Problem(f"is not a table; expected {', '.join(_PRICE_FIELDS)}", path, top, 1, file)]
    problems = []
    for field, value in entry.items():
        if field not in _PRICE_FIELDS:
            message = f"unknown field{suggest_similar(field, _PRICE_FIELDS)}; known fields: {', '.join(_PRICE_FIELDS)}"
        elif type(value) not in (int, float) or not 0 <= value <= MAX_USD_PER_MILLION:
            bounds = f"from 0 to {MAX_USD_PER_MILLION:,.0f}"
            message = f"is {_describe_value(value)}; expected US dollars per million tokens, {bounds}"
        else:
            continue
        problems.append(Problem(message, f"{path}.{field}", _find_line(lines, field, top), 1, file))
    problems += [
        Problem(f"{field} is missing", path, top, 1, file) for field in _PRICE_FIELDS[:2] if field not in entry
    ]
    return problems


def _describe_value(value: Any) -> str:
    try:
        return quote_text(str(value))
    except ValueError:  # Python formats no number with more than 4,300 digits
        return "a number that is too large"


def _find_line(lines: Sequence[str], word: str, first_line: int = 0) -> int:
    # tomllib keeps no positions: take the first line with the word, from the start of its table.
    return next((number for number, line in enumerate(lines, 1) if number >= first_line and word in line), first_line)
