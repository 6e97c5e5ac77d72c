"""Prices: costs by hand calculation, precedence of the user's file, and unknown prices that are never 0."""

import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from genai_prices import Usage as TheirUsage
from genai_prices import calc_price

from pramana.errors import InvalidInput
from pramana.model import Target, Usage
from pramana.providers.names import resolve_target
from pramana.providers.prices import Prices, Rates, list_published_models
from pramana.replies import MAX_TOKEN_COUNT


def make_target(typed: str) -> Target:
    return resolve_target(typed)


@pytest.mark.parametrize(
    ("typed", "served", "usage", "dollars"),
    [
        # 1,000 at $1.25 a million, 200 at $10
        ("gpt-5", "gpt-5-2025-08-07", Usage(1000, 200, 0), 0.00125 + 0.002),
        # 600 at $1.25, 400 of them cached at $0.125, 200 at $10
        ("openai:gpt-5", None, Usage(1000, 200, 400), 0.00075 + 0.00005 + 0.002),
        ("openai-responses:gpt-5", None, Usage(1000, 200), 0.00125 + 0.002),
        # $5, $25 and $0.5 a million
        ("opus", "claude-opus-4-6", Usage(2000, 100, 1000), 0.005 + 0.0005 + 0.0025),
        ("claude-haiku-4-5", None, Usage(10, 3, 0), 0.00001 + 0.000015),
        # up to 200,000 tokens $1.25 and $10, above them $2.50 and $15 for all
        ("gemini-2.5-pro", None, Usage(200_000, 1000, 0), 0.25 + 0.01),
        ("gemini-2.5-pro", None, Usage(200_001, 1000, 0), 0.5000025 + 0.015),
        ("gpt-5", "a name nobody knows", Usage(1000, 0, 0), 0.00125),
        ("https://api.openai.com/v1#gpt-5", None, Usage(1000, 200, 0), 0.00125 + 0.002),
    ],
)
def test_costs_match_hand_calculation(typed: str, served: str | None, usage: Usage, dollars: float) -> None:
    assert Prices().cost(make_target(typed), served, usage) == pytest.approx(dollars, rel=1e-12)


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-5.2", "o3", "claude-sonnet-4-6", "gemini-2.5-flash"])
@pytest.mark.parametrize("usage", [Usage(1234, 567, 89), Usage(0, 0, 0), Usage(250_000, 9, 250_000)])
def test_costs_match_genai_prices(model: str, usage: Usage) -> None:
    asked = make_target(model)
    theirs = TheirUsage(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cache_read_tokens=usage.cached_tokens
    )
    total = calc_price(theirs, model, provider_id=asked.provider).total_price
    assert Prices().cost(asked, model, usage) == pytest.approx(float(total), rel=1e-12)


@pytest.mark.parametrize(
    "typed",
    [
        "openai:nobody-knows-it",
        "http://localhost:8000/v1#gpt-5",
        "compatible:gpt-5",
        "python:textwrap:dedent",
        "gemma-3-27b-it",  # listed by genai-prices, without a price
    ],
)
def test_an_unknown_price_is_none_and_never_zero(typed: str) -> None:
    prices = Prices()
    assert prices.cost(make_target(typed), None, Usage(10, 10)) is None
    assert not prices.is_known(make_target(typed))


def test_unknown_tokens_are_an_unknown_cost() -> None:
    prices = Prices()
    for usage in (Usage(), Usage(10, None), Usage(None, 10)):
        assert prices.cost(make_target("gpt-5"), None, usage) is None
    assert prices.is_known(make_target("gpt-5"))


def test_an_embedding_model_has_no_output_price() -> None:
    embedder = make_target("openai:text-embedding-3-small")  # $0.02 a million
    assert Prices().cost(embedder, None, Usage(1000, None)) == pytest.approx(0.00002)
    assert Prices().cost(embedder, None, Usage(1000, 5)) is None


def test_the_embedded_model_and_the_fake_cost_exactly_nothing() -> None:
    for typed in ("local", "fake", "fake:echo"):
        assert Prices().cost(make_target(typed), None, Usage()) == 0.0
        assert Prices().is_known(make_target(typed))


def write_prices(folder: Path, text: str) -> Path:
    path = folder / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_price_file_takes_precedence(tmp_path: Path) -> None:
    path = write_prices(
        tmp_path,
        """
        [prices."openai:gpt-5"]
        input_per_million = 100
        output_per_million = 200.5
        cached_per_million = 10

        [prices."http://localhost:8000/v1#llama"]
        input_per_million = 0
        output_per_million = 0

        [prices."python:textwrap:dedent"]
        input_per_million = 1
        output_per_million = 2
        """,
    )
    prices = Prices.load(path)
    # 700 at $100, 300 at $10, 10 at $200.50 a million
    by_hand = 0.07 + 0.003 + 0.002005
    for typed in ("gpt-5", "openai:gpt-5", "openai-responses:gpt-5"):
        assert prices.cost(make_target(typed), "gpt-5-2025-08-07", Usage(1000, 10, 300)) == pytest.approx(by_hand)
    assert prices.cost(make_target("http://localhost:8000/v1#llama"), None, Usage()) == 0.0
    # without its own price, cached input costs as much as input
    assert prices.cost(make_target("python:textwrap:dedent"), None, Usage(100, 10, 50)) == pytest.approx(0.00012)
    assert prices.is_known(make_target("python:textwrap:dedent"))
    assert prices.cost(make_target("opus"), None, Usage(1000, 0, 0)) == pytest.approx(0.005)


def test_a_stored_price_takes_precedence_over_the_file_and_each_price_names_its_source(tmp_path: Path) -> None:
    path = write_prices(tmp_path, '[prices."gpt-5"]\ninput_per_million = 7\noutput_per_million = 8\n')
    prices = Prices.load(path, {"openai:gpt-5": Rates(0, 2.0, 3.0, 1.0)})
    assert prices.cost(make_target("gpt-5"), None, Usage(1000, 100, 500)) == pytest.approx(0.001 + 0.0005 + 0.0003)
    told = {name: prices.find_price(make_target(name)) for name in ("gpt-5", "opus", "fake", "openai:nobody-knows-it")}
    assert {name: price and (price.origin, price.matched_name) for name, price in told.items()} == {
        "gpt-5": ("set", "openai:gpt-5"),
        "opus": ("published", None),
        "fake": ("free", None),
        "openai:nobody-knows-it": None,
    }
    filed = Prices.load(path).find_price(make_target("gpt-5"))
    assert filed
    assert (filed.origin, filed.matched_name, filed.tiers[0].input_per_million) == ("file", "gpt-5", 7)
    versions = {
        Prices.load(path, kept).version for kept in (None, {"a:b": Rates(0, 1, 1, 1)}, {"a:b": Rates(0, 2, 1, 1)})
    }
    assert len(versions) == 3


def test_the_price_version_names_its_source(tmp_path: Path) -> None:
    assert Prices.load(None).version == f"genai-prices {version('genai-prices')}"
    assert Prices.load(tmp_path / "absent.toml").version == Prices.load(None).version
    entry = '[prices."a:b"]\ninput_per_million = 1\noutput_per_million = '
    one, other = (Prices.load(write_prices(tmp_path, f"{entry}{price}")).version for price in (1, 2))
    assert one.startswith(f"genai-prices {version('genai-prices')} and own prices ")
    assert one != other


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("[prices.\n", "is not valid TOML", 1),
        ('\n[prices."a:b"]\ninput_per_million = 1\n', 'prices."a:b": output_per_million is missing', 2),
        (
            '[prices."a:b"]\ninput_per_million = -1\noutput_per_million = 2',
            'prices."a:b".input_per_million: is "-1"; expected US dollars per million tokens',
            2,
        ),
        ('[prices."a:b"]\ninput_per_million = true\noutput_per_million = 2', 'is "True"', 2),
        ('[prices."a:b"]\ninput_per_million = inf\noutput_per_million = 2', 'is "inf"', 2),
        (
            '[prices."a:b"]\ninput_per_milion = 1\ninput_per_million = 1\noutput_per_million = 2',
            'unknown field; did you mean "input_per_million"?',
            2,
        ),
        (f'[prices."a:b"]\ninput_per_million = {"9" * 400}\noutput_per_million = 2', "from 0 to 1,000,000,000", 2),
        (
            f'[prices."a:b"]\ninput_per_million = 1\noutput_per_million = 0x{"f" * 9000}',
            "output_per_million: is a number that is too large; expected",
            3,
        ),
        ('[prices."a:b"]\ninput_per_million = 1e308\noutput_per_million = 2', 'is "1e+308"', 2),
        ('[prices."a:b"]\ninput_per_million = nan\noutput_per_million = 2', 'is "nan"', 2),
        ("[prize]\n", 'unknown name; did you mean "prices"?', 1),
        ("prices = 3", "is not a table", 1),
        ('[prices]\n"a:b" = 3', "is not a table", 2),
    ],
)
def test_a_bad_price_file_is_reported_with_its_position(tmp_path: Path, text: str, says: str, line: int) -> None:
    path = write_prices(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        Prices.load(path)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}:")
    assert caught.value.problems[0].line == line


def test_no_cost_is_infinite(tmp_path: Path) -> None:
    text = '[prices."openai:gpt-5"]\ninput_per_million = 1e9\noutput_per_million = 1e9'
    cost = Prices.load(write_prices(tmp_path, text)).cost(
        make_target("gpt-5"), None, Usage(MAX_TOKEN_COUNT, MAX_TOKEN_COUNT, 0)
    )
    assert cost is not None
    assert cost * 1e6 < float("inf")


def test_every_problem_is_reported(tmp_path: Path) -> None:
    text = '[prices."a:b"]\ninput_per_million = "x"\n[prices."c:d"]\n'
    with pytest.raises(InvalidInput) as caught:
        Prices.load(write_prices(tmp_path, text))
    assert len(caught.value.problems) == 4
    assert "(and 3 more)" in str(caught.value)


def test_an_unreadable_price_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="cannot be read"):
        Prices.load(path)


def test_computing_a_cost_takes_microseconds() -> None:
    prices, asked, usage = Prices(), make_target("gemini-2.5-pro"), Usage(1000, 200, 100)
    prices.cost(asked, "gemini-2.5-pro", usage)
    best = float("inf")
    for _ in range(20):  # the best of many: a busy machine must not fail it
        start = time.perf_counter()
        for _ in range(500):
            prices.cost(asked, "gemini-2.5-pro", usage)
        best = min(best, (time.perf_counter() - start) / 500)
    assert best < (3e-6 if sys.gettrace() is None else 60e-6)  # measuring coverage slows every line


def test_a_cached_price_is_looked_up_again_when_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    look = Prices._look_up_price

    def count_lookup(self: Prices, asked: Target, served: str | None) -> object:
        looked.append(asked.typed)
        return look(self, asked, served)

    monkeypatch.setattr(Prices, "_look_up_price", count_lookup)
    prices = Prices()
    for _ in range(3):
        prices.cost(make_target("gpt-5"), None, Usage(1, 1))
    assert len(looked) == 1
    prices._cache_expires_at = 0.0
    prices.cost(make_target("gpt-5"), None, Usage(1, 1))
    assert len(looked) == 2


def test_published_models_belong_to_supported_vendors() -> None:
    assert {"gpt-5", "claude-opus-4-6", "gemini-2.5-pro"} <= set(list_published_models())
