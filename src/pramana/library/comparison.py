"""The results of `pramana.compare` and `compare_several`: comparisons as data, as text, and as HTML in a notebook."""

from pramana.analyse.numbers import pluralise
from pramana.app.comparison_sides import ComparedSides, describe_request_differences
from pramana.app.comparison_tables import ComparisonTableView, TooManySidesError, compare_several_sides
from pramana.app.comparisons import FullComparisonView, comparison_view
from pramana.app.references import SeveralSides
from pramana.errors import InvalidInput

MAX_EXAMPLES = 100
"""The most cases that a comparison holds with both replies."""


class Comparison(FullComparisonView, frozen=True, kw_only=True):
    """A comparison of two runs or models, with every case.

    `str()` of a comparison returns its conclusion in a sentence, and another sentence if the two sides were sent
    different requests. The field `examples` of a comparison has the first 100 flipped cases with the replies of both
    sides, and then replies that changed while their verdict did not.
    """

    def __str__(self) -> str:
        differences = describe_request_differences(each.detail for each in self.asked_differently)
        return " ".join(each for each in (self.sentence, differences, self._describe_unpaired_cases()) if each)

    def _describe_unpaired_cases(self) -> str:
        sides = (("base", self.only_base), ("new", self.only_new))
        only = " and ".join(f"{pluralise(len(cases), 'case')} only in {side}" for side, cases in sides if cases)
        return f"Left out: {only}." if only else ""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from pramana.report.notebook import render_comparison

        return render_comparison(self)


def make_comparison(compared: ComparedSides) -> Comparison:
    """Return a comparison for Python."""
    view = comparison_view(compared, MAX_EXAMPLES)
    return Comparison(**{name: getattr(view, name) for name in view.__struct_fields__})


class ComparisonTable(ComparisonTableView, frozen=True, kw_only=True):
    """A comparison of three and more runs or models: all sides by pass rate, and every pair of them.

    `print()` shows the table as `pramana compare` does. `table.pairs[0].winner` is the name of the side that is proven
    to be better, or None.
    """

    def __str__(self) -> str:
        from pramana.report.comparison_table import render_comparison_table

        return render_comparison_table(self)

    def __repr__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        from pramana.report.notebook import render_comparison_table

        return render_comparison_table(self)


def make_comparison_table(several: SeveralSides, *, any_suite: bool, any_judge: bool, margin: float) -> ComparisonTable:
    """Return a table of several sides for Python."""
    try:
        view = compare_several_sides(several, any_suite=any_suite, any_judge=any_judge, margin=margin).view
    except TooManySidesError as error:
        raise InvalidInput(f"{error}: pass against=") from None
    return ComparisonTable(**{name: getattr(view, name) for name in view.__struct_fields__})
