"""These tests prove the engines themselves, so a fault that a session was asked for does not reach them."""

import pytest


@pytest.fixture(autouse=True)
def _engines_are_real(real_models: None) -> None:
    pass
