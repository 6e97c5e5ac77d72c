"""The result of `pramana.compare`: a comparison as data, as a sentence, and as HTML in a notebook."""

from pramana.analyse.numbers import pluralise
from pramana.app.comparison_sides import ComparedSides, describe_request_differences
from pramana.app.comparisons import FullComparisonView, comparison_view

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
