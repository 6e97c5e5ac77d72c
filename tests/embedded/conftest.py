"""These tests prove the engines themselves, so a fault that a session was asked for does not reach them."""

from collections.abc import Iterator

import pytest

from .. import embedded_faults


@pytest.fixture(autouse=True, scope="module")
def _real_models() -> Iterator[None]:
    with embedded_faults.lifted():
        yield
