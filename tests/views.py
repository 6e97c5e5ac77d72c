"""Views for tests that are about a few of their fields."""

from collections.abc import Mapping
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

_View = TypeVar("_View", bound=Struct)


def made(view: type[_View], **stated: Any) -> _View:
    """Return a view with some fields stated; every other field that it needs says nothing."""
    unknown = stated.keys() - {each.name for each in fields(view)}
    assert not unknown, f"{view.__name__} has no {unknown}"
    rest = {each.name: _nothing(each.type) for each in fields(view) if each.required and each.name not in stated}
    return view(**rest, **stated)


def _nothing(type_: Any) -> Any:
    inner, origin = get_args(type_), get_origin(type_)
    if origin is Annotated:
        return _nothing(inner[0])
    if origin in (Union, UnionType):
        return None if type(None) in inner else _nothing(inner[0])
    if origin is Literal:
        return inner[0]
    if origin is tuple:
        return ()
    if origin is Mapping:
        return {}
    if isinstance(type_, type) and issubclass(type_, Struct):
        return made(type_)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return next(iter(type_))
    return None if type_ is Any else type_()
