"""Which cases are asked: filters on facets and ids, the same for files, tiers and the store."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from pramana.model import Case


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters: within one, any value will do; across filters, all must hold. Nothing given selects everything."""

    categories: tuple[str, ...] = ()
    """Categories of test cases and types of scenarios."""
    tags: tuple[str, ...] = ()
    """A tag that ends in a colon stands for its branch: `domain:` for `domain:travel` and all its siblings."""
    difficulties: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    limit: int | None = None
    """At most so many, in the order of the files."""

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) not in ((), None) for each in fields(self))

    def recorded(self) -> dict[str, object]:
        """Return the filters that were given, as plain data for the plan."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value}

    def __str__(self) -> str:
        """Return the filters as they are typed; a scenario's type is its category."""
        typed = {
            "categories": "--category",
            "tags": "--tag",
            "difficulties": "--difficulty",
            "languages": "--language",
            "ids": "--id",
        }
        given = [f"{option} {value}" for name, option in typed.items() for value in getattr(self, name)]
        return " ".join([*given, *([f"--limit {self.limit}"] if self.limit is not None else [])])

    def matches(self, case: Case) -> bool:
        """Tell whether a case passes every filter but the limit."""
        facets = case.facets
        return (
            (not self.categories or facets.category in self.categories)
            and (not self.difficulties or facets.difficulty in self.difficulties)
            and (not self.languages or facets.language in self.languages)
            and (not self.ids or case.id in self.ids)
            and (not self.tags or any(_has(facets.tags, wanted) for wanted in self.tags))
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


def _has(tags: tuple[str, ...], wanted: str) -> bool:
    return any(tag.startswith(wanted) for tag in tags) if wanted.endswith(":") else wanted in tags
