"""What a user asks for, as plain data: which cases.

One filter serves files, tiers, the scenarios of a store and the API: `Selection.matches` decides in Python, the store
says the same in SQL. Nothing here reads a file or knows a store.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import fields

from pramana.model import Case


class Selection(Struct, frozen=True, kw_only=True):
    """Filters on cases. Within one filter any value matches, but for `all_tags`; across filters, all must match.

    >>> bool(Selection()), bool(Selection(tags=("domain:",)))
    (False, True)
    """

    ids: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    """Categories of test cases, types of scenarios."""
    tags: tuple[str, ...] = ()
    """A tag that ends in a colon matches every tag that starts with it: `domain:` matches `domain:travel`."""
    all_tags: tuple[str, ...] = ()
    difficulties: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    text: str = ""
    """In the id, name, prompt or expected outcome, whatever the case of its letters."""
    limit: int | None = None
    """At most so many cases, in their order."""

    def __bool__(self) -> bool:
        return bool(self.recorded())

    def recorded(self) -> dict[str, object]:
        """Return the filters that are set, as plain data for the plan."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value}

    def __str__(self) -> str:
        """Return the filters as command-line options; a scenario's type is its category."""
        given = [f"{option} {value}" for name, option in _OPTIONS.items() for value in getattr(self, name)]
        given += [f"--text {self.text}"] if self.text else []
        return " ".join([*given, *([f"--limit {self.limit}"] if self.limit is not None else [])])

    def matches(self, case: Case) -> bool:
        """Tell whether a case passes every filter but the limit."""
        facets = case.facets
        return (
            (not self.categories or facets.category in self.categories)
            and (not self.difficulties or facets.difficulty in self.difficulties)
            and (not self.languages or facets.language in self.languages)
            and (not self.ids or case.id in self.ids)
            and (not self.tags or any(_has_tag(facets.tags, wanted) for wanted in self.tags))
            and all(_has_tag(facets.tags, wanted) for wanted in self.all_tags)
            and (not self.text or _has_text(case, self.text.casefold()))
        )

    def pick(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Yield the cases that match, up to the limit."""
        taken = 0
        for case in cases:
            if self.limit is not None and taken >= self.limit:
                return
            if self.matches(case):
                taken += 1
                yield case


_OPTIONS = {
    "categories": "--category",
    "tags": "--tag",
    "all_tags": "--all-tags",
    "difficulties": "--difficulty",
    "languages": "--language",
    "ids": "--id",
}


def is_branch(tag: str) -> bool:
    """Return whether a tag in a filter is a prefix: `domain:` matches every tag that starts with it."""
    return tag.endswith(":")


def _has_tag(tags: tuple[str, ...], wanted: str) -> bool:
    return any(tag.startswith(wanted) for tag in tags) if is_branch(wanted) else wanted in tags


def _has_text(case: Case, folded: str) -> bool:
    searched = (case.id, case.name, case.expected_outcome, *(turn.text for turn in case.turns))
    return any(folded in each.casefold() for each in searched if each)
