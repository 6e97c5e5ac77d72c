"""Weights of the embedded models: whether they are on this machine, and the progress of their download.

The result of the last download is kept until the next begins. Whether weights are present is checked each time, so
weights that another process downloaded are found too.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from pramana.app import App, User, use_case
from pramana.app.pulls import Downloads, PullView
from pramana.app.views import View
from pramana.embedded.weights import WEIGHTS, find_folder, find_pinned_weights

PURPOSE_BY_WEIGHTS: Mapping[str, str] = {
    "smollm2-135m": "the model local, and the voice agent local-voice",
    "minilm-l6-v2": "semantic_similarity, if no other embedder is named",
    "piper": "callers with the voice piper",
}
MODELS_BY_WEIGHTS: Mapping[str, tuple[str, ...]] = {"smollm2-135m": ("local", "local-voice")}
"""The model names that need each set of weights."""


class WeightsView(View, frozen=True, kw_only=True):
    """The weights of one embedded model."""

    name: str
    title: Annotated[str, Meta(description="Name of the model")]
    needed_for: str
    models: Annotated[tuple[str, ...], Meta(description="Model names that need these weights")]
    present: bool
    optional: Annotated[bool, Meta(description="Whether the weights are downloaded only if they are named")]
    download_bytes: int
    licence: str
    remark: Annotated[str, Meta(description="Note to read before use")]
    pull: PullView | None


@use_case("viewer")
def list_weights(app: App, _: User) -> list[WeightsView]:
    """Return the weights of each embedded model, whether they are on this machine, and any download's progress."""
    return [_weights_view(name, app.downloads) for name in WEIGHTS]


@use_case("editor")
def pull_weights(app: App, _: User, name: str) -> WeightsView:
    """Start the download of weights, unless one is in progress; return their state."""
    find_pinned_weights(name)
    app.downloads.start(name)
    return _weights_view(name, app.downloads)


def _weights_view(name: str, pulls: Downloads) -> WeightsView:
    pin = find_pinned_weights(name)
    under_way = pulls.status(name)  # read first: a download that ends before the next line is then present
    present = find_folder(name) is not None
    return WeightsView(
        name=name,
        title=pin.title,
        needed_for=PURPOSE_BY_WEIGHTS.get(name, pin.title),
        models=MODELS_BY_WEIGHTS.get(name, ()),
        present=present,
        optional=pin.opt_in,
        download_bytes=pin.archive_size_bytes,
        licence=pin.licence,
        remark=pin.remark,
        pull=None if present else under_way,
    )
