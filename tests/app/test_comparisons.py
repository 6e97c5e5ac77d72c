"""Views of a comparison, as programs read them."""

from pramana.app.comparisons import TimeView, change_view

from ..analyse.test_changes import find_change, make_side


def test_what_is_unbounded_is_null_for_programs() -> None:
    view = change_view(find_change(make_side(*[0.5] * 7), make_side(*[None] * 7)))
    assert isinstance(view, TimeView)
    assert view.difference == view.interval == (14.5, None)
    assert (view.unit, view.proven, view.cases) == ("seconds", True, 7)
