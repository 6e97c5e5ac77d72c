"""Why sound cannot be used: `BadAudio` for what was given, `EngineMissing` for a library that is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from pramana.errors import EngineMissing, InvalidInput
from pramana.installation import make_install_command


class BadAudio(InvalidInput, code="bad_audio"):
    """The sound that was given cannot be used."""


@contextmanager
def explain_missing_library(purpose: str) -> Iterator[None]:
    """Turn a failed import of a library into one sentence that says what to install."""
    try:
        yield
    except ImportError as error:
        raise EngineMissing(
            f"{purpose} needs a library that is not installed ({error}): {make_install_command('voice')}"
        ) from error
