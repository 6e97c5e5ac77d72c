"""Machine-readable views of a comparison."""

from pramana.app.comparisons import TimeView, change_view

from ..analyse.test_changes import find_change, make_side


def test_an_unbounded_interval_end_is_null() -> None:
    view = change_view(find_change(make_side(*[0.5] * 7), make_side(*[None] * 7)))
    assert isinstance(view, TimeView)
    assert view.difference == view.interval == (14.5, None)
    assert (view.unit, view.proven, view.cases) == ("seconds", True, 7)
