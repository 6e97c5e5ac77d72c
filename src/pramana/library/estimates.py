"""The estimate of a run for Python: the view that the command line and the API show, readable as text."""

from pramana.app.views import EstimateView
from pramana.report.estimate import render_estimate


class Estimate(EstimateView, frozen=True, kw_only=True):
    """The estimate of a run. The token counts of an estimate are approximate, and an estimate sends and stores nothing.

    The field `cost_usd` of an estimate is None if a price is unknown: `unknown_prices` has the models without a price.
    The field `unjudged` has the cases that will have no verdict without a judge, and `missing_keys` has the providers
    without an API key.
    """

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return render_estimate(self, "judge=… names another judge")
