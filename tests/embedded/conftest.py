"""These tests use the real engines, so they suspend the fault of `--embedded-fault`."""

import pytest


@pytest.fixture(autouse=True)
def _engines_are_real(real_models: None) -> None:
    pass
