"""Options that several commands share: numbers that are numbers, and the filters that select cases."""

import functools
import math
from collections.abc import Callable
from typing import Any

import click


class Finite(click.FloatRange):
    """A number in a range; what counts as a float and is no number (nan, inf) is refused: no bound would hold it."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


POSITIVE = Finite(min=0, min_open=True)

_many: dict[str, Any] = {"multiple": True, "metavar": "NAME"}
_FILTERS = (
    click.option("--category", "categories", **_many, help="Only these categories."),
    click.option("--type", "types", **_many, help="Only these types of scenario."),
    click.option("--tag", "tags", **_many, help="Only with one of these tags; `domain:` stands for its branch."),
    click.option("--all-tags", "all_tags", **_many, help="Only with all of these tags."),
    click.option("--difficulty", "difficulties", **_many, help="Only these."),
    click.option("--language", "languages", **_many, help="Only scenarios in these languages."),
    click.option("--id", "ids", **_many, help="Only these cases."),
    click.option("--text", default="", help="Only with this text in id, name, prompt or expected outcome."),
    click.option("--limit", type=click.IntRange(1), default=None, metavar="N", help="At most so many cases."),
)


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the filters; it gets them as one `selection`."""

    @functools.wraps(command)
    def with_selection(*arguments: Any, **given: Any) -> Any:
        from pramana.request import Selection

        selection = Selection(
            categories=given.pop("categories") + given.pop("types"),
            tags=given.pop("tags"),
            all_tags=given.pop("all_tags"),
            difficulties=given.pop("difficulties"),
            languages=given.pop("languages"),
            ids=given.pop("ids"),
            text=given.pop("text"),
            limit=given.pop("limit"),
        )
        return command(*arguments, selection=selection, **given)

    for option in reversed(_FILTERS):
        with_selection = option(with_selection)
    return with_selection
