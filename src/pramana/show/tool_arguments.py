"""The arguments of the tools of `pramana mcp`: our request structs in, JSON Schemas and validated structs out.

Names are camelCase, as in the API; the Python names are accepted too. Each field of `RunRequest`, `Selection` or
`Limits` is an argument. Errors name the argument.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

from pramana.errors import InvalidInput, Problem, describe_value, quote_text, suggest_similar
from pramana.request import describe_type_mismatch, get_field_metadata, get_published_name

_Struct = TypeVar("_Struct", bound=Struct)
_Type = Any


def make_arguments_struct(
    struct: type[Struct], descriptions: Mapping[str, str], *, types: Mapping[str, _Type], omit: Iterable[str] = ()
) -> type[Struct]:
    """Return a struct of arguments with the fields of a request, under their published names.

    `types` overrides fields that look different in JSON, `omit` drops fields that JSON cannot express; each field has a
    description.

    >>> from pramana.request import Limits
    >>> made = make_arguments_struct(Limits, {"timeout_seconds": "Of one request"}, types={})
    >>> [each.encode_name for each in fields(made)][:2]
    ['maxCost', 'maxTotalTokens']
    """
    made = []
    for each in fields(struct):
        if each.name in omit:
            continue
        name = get_published_name(each)
        found = types.get(each.name, each.type)
        if described := descriptions.get(name):
            found = Annotated[found, Meta(description=described)]
        made.append((name, found, _make_field_default(each, found)))
    return msgspec.defstruct(f"{struct.__name__}Arguments", made, frozen=True, kw_only=True, rename="camel")


def _make_field_default(field: FieldInfo, type_: _Type) -> Any:
    if field.required:
        return NODEFAULT
    if field.default_factory is not NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    default = field.default
    if isinstance(default, Struct):  # a nested request becomes a struct of arguments
        return msgspec.field(default_factory=_find_nested_struct(type_) or type(default))
    return default


def make_changes_struct(arguments: type[Struct]) -> type[Struct]:
    """Return a struct with the same arguments, all optional; one that is left out changes nothing."""
    made = [(each.name, each.type | UnsetType, UNSET) for each in fields(arguments)]
    return msgspec.defstruct(f"{arguments.__name__}Changes", made, frozen=True, kw_only=True, rename="camel")


def collect_changes(struct: type[Struct], arguments: Struct) -> dict[str, Any]:
    """Return the fields that were given, by their names in the request."""
    published = {each.name: get_published_name(each) for each in fields(struct)}
    found = {name: getattr(arguments, argument) for name, argument in published.items()}
    return {name: value for name, value in found.items() if value is not UNSET}


def arguments_to_request(struct: type[_Struct], arguments: Struct, **converted_fields: Any) -> _Struct:
    """Return the request made from arguments; `converted_fields` are fields that were converted separately."""
    names = {get_published_name(each): each.name for each in fields(struct)}
    found = {names[each.name]: getattr(arguments, each.name) for each in fields(type(arguments))}
    return struct(**{**found, **converted_fields})


@cache
def make_input_schema(struct: type[Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    return {**_make_object_schema(struct), "additionalProperties": False}


@cache
def make_output_schema(result_type: type[Struct] | UnionType) -> dict[str, Any]:
    """Return the JSON Schema of a tool's structured result, whose root is an object also for one of several types."""
    if isinstance(result_type, UnionType):
        either, definitions = msgspec.json.schema_components(get_args(result_type), ref_template="#/$defs/{name}")
        return {"type": "object", "anyOf": list(either), "$defs": definitions}
    return _make_object_schema(result_type)


def _make_object_schema(struct: type[Struct]) -> dict[str, Any]:
    """Return a schema whose root is an object, as the protocol requires, instead of a reference to one."""
    schema = msgspec.json.schema(struct)
    definitions = schema["$defs"]
    root = definitions.pop(schema["$ref"].rpartition("/")[2])
    return {**root, "$defs": definitions} if definitions else root


def read_arguments(struct: type[_Struct], arguments: Mapping[str, Any]) -> _Struct:
    """Return validated arguments; raises `InvalidInput` with all problems, each with the name of its argument.

    >>> class Wanted(Struct, rename="camel"):
    ...     page_size: Annotated[int, Meta(ge=1)] = 50
    >>> read_arguments(Wanted, {"pageSize": 20}).page_size
    20
    >>> read_arguments(Wanted, {"pagesize": 0})
    Traceback (most recent call last):
        ...
    pramana.errors.InvalidInput: pagesize: unknown argument; did you mean "pageSize"?
    >>> read_arguments(Wanted, {"files": []})
    Traceback (most recent call last):
        ...
    pramana.errors.InvalidInput: files: unknown argument; known arguments: pageSize
    """
    problems: list[Problem] = []
    made = _read_fields(struct, arguments, "", problems)
    if problems:
        raise InvalidInput.from_problems(problems)
    return msgspec.convert(made, struct)


def _read_fields(
    struct: type[Struct], arguments: Mapping[str, Any], path_prefix: str, problems: list[Problem]
) -> dict[str, Any]:
    known = {each.encode_name: each for each in fields(struct)}
    aliases = {each.name: each.encode_name for each in known.values()}
    found: dict[str, Any] = {}
    for stated, value in arguments.items():
        name = aliases.get(stated, stated)
        path = f"{path_prefix}{stated}"
        if name not in known:
            similar = suggest_similar(stated, known) or f"; known arguments: {', '.join(known)}"
            problems.append(Problem(f"unknown argument{similar}", path))
        elif name in found:
            problems.append(Problem(f"{quote_text(name)} is passed twice, in two spellings", path))
        elif (nested := _find_nested_struct(known[name].type)) and isinstance(value, Mapping):
            found[name] = _read_fields(nested, value, f"{path}.", problems)
        elif nested and not (value is None and _is_nullable(known[name].type)):
            problems.append(Problem(f"expected an object, found {describe_value(value)}", path))
        elif message := None if nested else describe_type_mismatch(value, _remove_unset(known[name].type)):
            problems.append(Problem(message, path))
        else:
            found[name] = value
    missing = [name for name, each in known.items() if each.required and name not in arguments]
    problems += [Problem("this argument is required", f"{path_prefix}{name}") for name in missing if name not in found]
    return found


def _find_nested_struct(type_: _Type) -> type[Struct] | None:
    if isinstance(type_, type) and issubclass(type_, Struct):
        return type_
    inner = get_args(type_)
    return next((found for each in inner if (found := _find_nested_struct(each))), None) if inner else None


def _remove_unset(type_: _Type) -> _Type:
    """Return the type of an optional argument without `UNSET`."""
    inner = get_args(type_)
    return next(each for each in inner if each is not UnsetType) if UnsetType in inner else type_


def _is_nullable(type_: _Type) -> bool:
    return type(None) in get_args(type_) or any(map(_is_nullable, get_args(type_)))


def has_description(field: FieldInfo) -> bool:
    """Return whether an argument has a description."""
    return bool(get_field_metadata(field).description)
