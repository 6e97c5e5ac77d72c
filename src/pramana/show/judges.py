"""A judge's name: as it was typed in, as its provider calls it out, so that one judge has one name."""

from functools import cache

from pramana.errors import PramanaError


@cache
def who(typed: str) -> str:
    """Return one name for a judge, however it was typed.

    >>> who("gpt-5"), who("openai:gpt-5"), who("a name of another machine")
    ('openai:gpt-5', 'openai:gpt-5', 'a name of another machine')
    """
    from pramana.providers.names import resolve

    try:
        target = resolve(typed)
    except PramanaError:  # a name of another machine, or of another version
        return typed
    return target.typed if target.arguments else f"{target.provider}:{target.model}"
