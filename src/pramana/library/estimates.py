"""The estimate of a run for Python: the view that the command line and the API show, readable as text."""

from pramana.app.views import EstimateView
from pramana.report.estimate import render_estimate


class Estimate(EstimateView, frozen=True, kw_only=True):
    """The estimate of a run. Token counts are approximate, and nothing was sent or stored.

    `cost_usd` is None if a price is unknown: `unknown_prices` has the models. `unjudged` has the cases that will have
    no verdict without a judge, and `missing_keys` the providers without a key.
    """

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return render_estimate(self, "judge=… names another judge")
