"""The answer whether two endpoints are the same, for Python: the view of the command line, readable as text."""

from msgspec.structs import asdict

from pramana.app.sameness import SameView, same_view
from pramana.model import Run
from pramana.report.sameness import render_test
from pramana.store.store import Store


class Sameness(SameView, frozen=True, kw_only=True):
    """The answer whether two models are the same, and the evidence for it.

    `str()` returns the answer with the evidence of each instrument. `sentence` is the answer alone, `p_value` is valid
    whenever you look, and `would_have_seen` says how often a change would have been seen with as many pairs.
    """

    @property
    def is_different(self) -> bool | None:
        """Whether the models are proven to differ; None if too few pairs of calls were answered to test it."""
        return None if self.decision == "untested" else self.decision == "different"

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return render_test(self)


def read_sameness(store: Store, run: Run, models: tuple[str, str] | None = None) -> Sameness:
    """Return the answer of a stored run: of its two models, or of the two that are named."""
    return Sameness(**asdict(same_view(store, run, models)))
