"""Builds views for tests that only care about a few fields."""

from collections.abc import Mapping
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

_View = TypeVar("_View", bound=Struct)


def make_view(view: type[_View], **given: Any) -> _View:
    """Return a view with the given fields; every other required field gets an empty value."""
    unknown = given.keys() - {each.name for each in fields(view)}
    assert not unknown, f"{view.__name__} has no {unknown}"
    rest = {each.name: _empty_value(each.type) for each in fields(view) if each.required and each.name not in given}
    return view(**rest, **given)


def _empty_value(type_: Any) -> Any:
    inner, origin = get_args(type_), get_origin(type_)
    if origin is Annotated:
        return _empty_value(inner[0])
    if origin in (Union, UnionType):
        return None if type(None) in inner else _empty_value(inner[0])
    if origin is Literal:
        return inner[0]
    if origin is tuple:
        return ()
    if origin is Mapping:
        return {}
    if isinstance(type_, type) and issubclass(type_, Struct):
        return make_view(type_)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return next(iter(type_))
    return None if type_ is Any else type_()
