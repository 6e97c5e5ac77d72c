"""The number of examples per property: a fifth of them in CI, all of them in the recorded proof.

The examples are the same on every machine, since they are derived from the property and not drawn at random, and there
is no deadline that a busy machine could miss. `pytest --hypothesis-profile=full`, or `HYPOTHESIS_PROFILE=full` in the
environment, tries them all.
"""

import os

from hypothesis import HealthCheck, settings

ALL = 300
"""Examples of a property that does not say how many."""

settings.register_profile(
    "full", max_examples=ALL, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.register_profile("ci", settings.get_profile("full"), max_examples=ALL // 5)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))  # noqa: TID251 - no setting of the program


def examples(number: int) -> settings:
    """Try a property with so many examples, or with the share of them that the profile takes."""
    assert settings.default
    return settings(max_examples=max(10, number * settings.default.max_examples // ALL))
