"""What every route shares: its dependencies, and one envelope for responses and errors.

A route gets the application (`AppDependency`) and its caller's credential (`require_caller`), and passes both to a use
case, which decides what the caller may do. It responds with `{"success": true, "data": …, "meta": …}`, or an error.

An error is `{"success": false, "error": …, "code": …, "details": …}`: a sentence, a stable code for programs, and the
places of the problems. The framework's own errors have the same form, and no response ever contains a traceback.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import IO, Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from msgspec import NODEFAULT, UNSET, Meta, Struct, UnsetType
from msgspec.structs import FieldInfo, fields
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model, model_validator
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.routing import BaseRoute, Route

from pramana.app import App, Credential, ServerBusy, User, require_allowed_user
from pramana.app.access import ANONYMOUS, TooManyRequests, Unauthorized
from pramana.errors import COMMAND_HINTS, HintKey, PramanaError, Problem, StoreFailed, escape_control_characters
from pramana.request import get_field_metadata, get_published_name, struct_from_texts

log = logging.getLogger("pramana.api")
_encode = msgspec.json.Encoder().encode
_Data = TypeVar("_Data")
_Struct = TypeVar("_Struct", bound=Struct)
_Body = TypeVar("_Body", bound="Body")
MAX_DETAILS = 100
CHUNK_BYTES = 1 << 18
_ERROR_CODES_BY_STATUS = {
    400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "timeout", 409: "conflict", 411: "length_required", 413: "too_large", 415: "unsupported_media_type",
    416: "range_not_satisfiable", 421: "unknown_host", 429: "rate_limited", 503: "unavailable",
}  # fmt: skip


# ── Dependencies of a route ──


async def _get_app(connection: HTTPConnection) -> App:
    app: App = connection.app.state.serving
    return app


AppDependency = Annotated[App, Depends(_get_app)]


def require_caller(use_case: Callable[..., Awaitable[Any]]) -> Any:
    """Return the dependency of a route that passes its caller's credential to a use case.

    A caller without permission is refused before their body is read.
    """

    async def read_credential(connection: HTTPConnection) -> Credential:
        app: App = connection.app.state.serving  # a nested dependency would take longer than reading the store
        found: Credential = connection.scope.get("pramana.credential", Credential())
        await require_allowed_user(app, found, use_case)
        return found

    read_credential.__name__ = f"caller_of_{use_case.__name__}"
    return Depends(read_credential)


def get_request_user(connection: HTTPConnection) -> User:
    """Return the user whom the gate has authenticated."""
    found: User = connection.scope.get("pramana.user", ANONYMOUS)
    return found


# ── Bodies and responses ──


class Body(BaseModel):
    """A request body: field names in camelCase or as in files; unknown names are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_two_spellings(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            for name in cls.model_fields:
                camel = to_camel(name)
                if camel != name and name in value and camel in value:
                    raise ValueError(f"{camel} and {name} are two spellings of the same name; send only one of them")
        return value


def add_fields_of(
    struct: type[Struct], *, partial: bool = False, **overrides: tuple[Any, Any]
) -> Callable[[type[_Body]], type[_Body]]:
    """Add a field to a body for each field of one of our structs, under its published name and with its bounds.

    `overrides` overrides fields whose form in the API differs. Local-only fields cannot be sent. With `partial`, any
    field may be left out or null.
    """
    made: dict[str, Any] = {}
    for each in fields(struct):
        said = get_field_metadata(each)
        called = get_published_name(each)
        if called in overrides:
            made[called] = overrides[called]
        elif not (said.extra or {}).get("local_only"):
            default: Any = {"default": ... if each.required else each.default}
            if each.default_factory is not NODEFAULT:
                default = {"default_factory": each.default_factory}
            described = Field(**default, description=said.description)
            type_ = _convert_bounds_to_pydantic(each.type)
            made[called] = (type_ | None, Field(default=None)) if partial else (type_, described)
    return lambda body: create_model(body.__name__, __base__=body, __doc__=body.__doc__, **made)


def published_field_name(field: FieldInfo) -> str:
    """Return the name of a field in the API."""
    return to_camel(get_published_name(field))


def _convert_bounds_to_pydantic(type_: Any) -> Any:
    """Return a type with its msgspec bounds rewritten for pydantic."""
    inner = get_args(type_)
    if get_origin(type_) is Annotated:
        stated = [each for each in inner[1:] if isinstance(each, Meta)]
        bounds = {
            name: getattr(each, name) for each in stated for name in _BOUND_NAMES if getattr(each, name) is not None
        }
        bare = _convert_bounds_to_pydantic(inner[0])
        if bare is float:
            bounds["allow_inf_nan"] = False
        return Annotated[bare, Field(**bounds)] if bounds else bare
    if get_origin(type_) in (Union, UnionType):
        return Union[tuple(_convert_bounds_to_pydantic(each) for each in inner)]  # noqa: UP007 - built from a tuple
    if get_origin(type_) is tuple:
        return list[_convert_bounds_to_pydantic(inner[0])]  # type: ignore[misc]
    return dict[str, Any] if get_origin(type_) is Mapping else type_


_BOUND_NAMES = ("gt", "ge", "lt", "le", "min_length", "max_length")


class DocumentedResponse(BaseModel):
    """A response, for the documentation only: responses are encoded separately, and a test compares the two."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


@cache
def make_documentation_model(view: type[Struct]) -> type[DocumentedResponse]:
    """Return the documentation model of a view: `TokenShape` for `TokenView`."""
    made: dict[str, Any] = {}
    for each in fields(view):
        default = ... if each.required else None if each.default is UNSET else each.default
        described = Field(default, alias=each.encode_name, description=get_field_metadata(each).description)
        name = (
            f"{each.name}_" if hasattr(DocumentedResponse, each.name) else each.name
        )  # pydantic has a method called schema
        made[name] = (_to_shape_type(each.type), described)
    return create_model(
        f"{view.__name__.removesuffix('View')}Shape", __base__=DocumentedResponse, __doc__=view.__doc__, **made
    )


def _to_shape_type(type_: Any) -> Any:
    """Return a type with shapes instead of views, and lists instead of tuples."""
    inner = get_args(type_)
    origin = get_origin(type_)
    if isinstance(type_, type) and issubclass(type_, Struct):
        written_as_in_files = any("_" in each.encode_name for each in fields(type_))
        return dict[str, Any] if written_as_in_files else make_documentation_model(type_)
    if origin is Annotated:
        return _to_shape_type(inner[0])
    if origin in (tuple, list, Sequence):
        several: Any = list[_to_shape_type(inner[0])]  # type: ignore[misc]
        fixed = origin is tuple and inner[-1] is not ...
        return Annotated[several, Field(min_length=len(inner), max_length=len(inner))] if fixed else several
    if origin in (Union, UnionType):
        return Union[tuple(_to_shape_type(each) for each in inner if each is not UnsetType)]  # noqa: UP007
    if origin is Mapping:
        return dict[str, _to_shape_type(inner[1])]  # type: ignore[misc]
    return dict[str, Any] if is_dataclass(type_) else type_


class Answered(BaseModel, Generic[_Data]):
    """A successful response."""

    success: Literal[True]
    data: _Data
    meta: dict[str, Any] | None = None


class Detail(BaseModel):
    """One problem at one place. Lines and columns count from 1; 0 means the whole document."""

    model_config = ConfigDict(extra="allow")

    path: str
    message: str
    line: int | None = None
    column: int | None = None


class Refused(BaseModel):
    """An error response."""

    success: Literal[False]
    error: str = Field(description="The error and what to do about it, in one sentence")
    code: str = Field(description="Error code for programs")
    details: list[Detail] = Field(description="Individual errors, each with its location")


def make_success_response(
    data: Any, meta: Mapping[str, Any] | None = None, *, status: int = 200, **top_level_fields: Any
) -> Response:
    """Return a successful response; `top_level_fields` fields go beside `success`, where older clients expect them."""
    whole: dict[str, Any] = {"success": True, **top_level_fields, "data": data}
    if meta is not None:
        whole["meta"] = meta
    return _json_response(whole, status)


def make_error_response(
    status: int,
    error: str,
    *,
    code: str | None = None,
    details: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
    **top_level_fields: Any,
) -> Response:
    """Return an error response."""
    said = {
        "success": False,
        **top_level_fields,
        "error": error,
        "code": code or _ERROR_CODES_BY_STATUS.get(status, "error"),
        "details": details,
    }
    return _json_response(said, status, headers)


def to_json_bytes(value: Any) -> bytes:
    """Return a value as JSON on one line."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, ValueError, TypeError, OverflowError):  # such as half a surrogate pair in a reply
        from pramana.report.terminal import to_json

        return to_json(msgspec.to_builtins(value)).encode()


def _json_response(value: Any, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_json_bytes(value), status, headers, "application/json")


PageNumber = Annotated[int, Query(alias="page", ge=1, le=1_000_000)]
PageSize = Annotated[int, Query(alias="pageSize", ge=1, le=500)]
"""Items per page of a list: `def route(page: PageNumber = 1, page_size: PageSize = 50)`."""


def read_query(struct: type[_Struct], request: Request) -> _Struct:
    """Return a use case's request, read from the query string; faster than the framework for many fields."""
    query = request.query_params
    return struct_from_texts(struct, {name: query.getlist(name) for name in query})


def document_query(struct: type[Struct]) -> dict[str, Any]:
    """Return the documentation of a query: `@router.get(path, openapi_extra=query_parameters(RunFilter))`."""
    told: list[dict[str, Any]] = []
    for each in fields(struct):
        schema = TypeAdapter(_convert_bounds_to_pydantic(each.type)).json_schema()
        schema |= {"default": each.default} if each.default else {}
        description = get_field_metadata(each).description
        described = {"description": description} if description else {}
        told.append({"name": each.encode_name, "in": "query", **described, "schema": schema})
    return {"parameters": told}


def read_chunks(file: IO[bytes], byte_count: int) -> Iterator[bytes]:
    """Yield up to `byte_count` bytes of an open file from its current position, then close it."""
    with file:
        while byte_count and (piece := file.read(min(CHUNK_BYTES, byte_count))):
            byte_count -= len(piece)
            yield piece


def make_page_meta(page: int, size: int, total: int) -> dict[str, int]:
    """Return the `meta` of a list: its page, page size and totals."""
    return {"page": page, "pageSize": size, "total": total, "totalPages": -(-total // size)}


def take_page(items: Sequence[_Data], page: int, size: int) -> tuple[Sequence[_Data], dict[str, int]]:
    """Return one page of an in-memory list, and its `meta`."""
    return items[(page - 1) * size : page * size], make_page_meta(page, size, len(items))


def make_envelope_model(data_type: Any) -> Any:
    """Return the documentation model of a response with this data in the envelope."""
    return Answered.__class_getitem__(_to_shape_type(data_type))


def document_route(
    data_type: Any,
    *error_statuses: int,
    status: int = 200,
    description: str = "Done",
    **more_responses: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the documentation of a route's responses: `@router.get(path, **document_route(list[Scenario], 400))`.

    Errors that any route can return (no token, rate limit, too large) need not be named. `more_responses` describes
    other responses by status: `status_304={"description": "As it was"}`.
    """
    usual = {400, 401, 403, 413, 421, 429, 503}
    told: dict[int | str, Any] = {
        code: {"model": Refused, "description": _ERROR_CODES_BY_STATUS[code]}
        for code in sorted({*error_statuses} | usual)
    }
    told[status] = {"model": make_envelope_model(data_type), "description": description}
    told |= {int(name.removeprefix("status_")): each for name, each in more_responses.items()}
    return {"responses": told, "response_model": None, "status_code": status, "response_class": _DocumentedAsJson}


def inline_references(schema: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """Return a JSON Schema with its references inlined, for a place without definitions to refer to."""
    if isinstance(schema, list):
        return [inline_references(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    known = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        return inline_references(known[schema["$ref"].rpartition("/")[2]], known)
    return {name: inline_references(each, known) for name, each in schema.items() if name != "$defs"}


class _DocumentedAsJson(JSONResponse):
    """Sets the media type in the documentation; responses come from the functions below."""


def to_camel_case(value: Any) -> Any:
    """Return plain data with its names in camelCase.

    >>> to_camel_case({"pass_rate": 1.0, "of_these": [{"p_50": 2}]})
    {'passRate': 1.0, 'ofThese': [{'p50': 2}]}
    """
    if isinstance(value, Mapping):
        return {to_camel(str(name)): to_camel_case(each) for name, each in value.items()}
    return [to_camel_case(each) for each in value] if isinstance(value, list | tuple) else value


def problem_to_detail(problem: Problem) -> dict[str, Any]:
    """Return a problem with its place, as an item of `details`."""
    found: dict[str, Any] = {
        "path": problem.path,
        "message": problem.message,
        "line": problem.line,
        "column": problem.column,
    }
    if problem.file:
        found["file"] = problem.file
    if problem.severity != "error":
        found["severity"] = problem.severity
    return found


API_HINTS: Mapping[HintKey, str] = {
    **COMMAND_HINTS,
    "list_runs": "see GET /api/runs",
    "list_scorings": "see GET /api/runs/{}/scorings",
    "start_run": "start a run: POST /api/runs",
    "list_watches": "see GET /api/watches",
    "start_watch": "start one: POST /api/watches",
    "list_scenarios": "see GET /api/scenarios",
    "import_scenarios": "import scenarios: POST /api/scenarios/import",
    "run_stored": "send its ID in scenarios: {}",
    "list_library": "see GET /api/library",
    "list_models": "see GET /api/models",
    "list_server_models": "list the models of that server: GET {}/models",
    "name_model": "see GET /api/models",
    "list_tokens": "see GET /api/tokens",
    "create_token": "create a token on the server: pramana token create NAME --role admin",
    "pull_weights": "download the weights: POST /api/weights/{}/pull",
    "any_suite": "to compare {}, send anySuite=true",
    "compare_any_suite": "to compare the cases that both have: GET /api/compare with anySuite=true",
    "check_filters": "check the spelling of the filters {:json}",
    "name_judge": "name another model as judge",
    "choose_modalities": 'choose the modalities: "modality": ["text", "voice"]',
    "send_parameter": 'give the parameter {0} of your function a default, or send it: "parameters": {{"{0}": VALUE}}',
}
"""Hints for clients of the API; some of them name commands, where the API has no equivalent."""


def make_pramana_error_response(error: PramanaError, max_details: int = MAX_DETAILS) -> Response:
    """Return the response to one of our errors; store messages are replaced: they name hosts, users and paths."""
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}
    if isinstance(error, ServerBusy | TooManyRequests):
        headers["Retry-After"] = str(error.retry_after_s)
    details = [problem_to_detail(each) for each in error.problems[:max_details]]
    return make_error_response(
        error.http_status, public_message(error), code=error.code, details=details, headers=headers
    )


def public_message(error: PramanaError, hints: Mapping[HintKey, str] = API_HINTS) -> str:
    """Return the public message of an error; store messages are replaced: they name hosts, users and paths."""
    if not isinstance(error, StoreFailed):
        return escape_control_characters(error.explain(hints))
    log.warning("%s", escape_control_characters(str(error)))
    said = "the store cannot be reached" if error.__cause__ is not None else "the store failed"
    return f"{said}; see the server's log"


def install_error_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Return every error of an application with these routes in the envelope."""

    @app.exception_handler(PramanaError)
    async def handle_pramana_error(_: Request, error: PramanaError) -> Response:
        return make_pramana_error_response(error)

    @app.exception_handler(RequestValidationError)
    async def handle_validation_error(_: Request, error: RequestValidationError) -> Response:
        details = [_validation_error_to_detail(each) for each in error.errors()[:MAX_DETAILS]]
        first = f"{details[0]['path']}: {details[0]['message']}" if details else "invalid value"
        more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
        return make_error_response(
            400, f"the request is not valid: {first}{more}", code="invalid_input", details=details
        )

    @app.exception_handler(HTTPException)
    async def handle_http_error(request: Request, error: HTTPException) -> Response:
        said = {
            404: "no such address; see /docs for all addresses",
            405: "this address does not support this method",
        }
        text, headers = said.get(error.status_code) or str(error.detail), dict(error.headers or {})
        if error.status_code == 405:  # the framework lists the methods of the first route only
            there = [each for each in routes if isinstance(each, Route) and each.path_regex.match(request.url.path)]
            headers["Allow"] = ", ".join(sorted({method for each in there for method in each.methods or ()}))
        return make_error_response(error.status_code, text, headers=headers)

    @app.exception_handler(Exception)
    async def handle_unexpected_error(request: Request, error: Exception) -> Response:
        request.scope["pramana.told"] = True  # the framework raises it again to log it; it is logged already
        return make_unexpected_error_response(error)

    @app.exception_handler(ClientDisconnect)
    async def handle_client_disconnect(_: Request, __: ClientDisconnect) -> Response:
        return make_error_response(
            400, "the request is incomplete: the connection ended"
        )  # the client has gone; no server error


def make_unexpected_error_response(error: Exception) -> Response:
    """Return the response to an unexpected exception: an internal error with the number of its log entry."""
    return make_error_response(500, log_unexpected_error(error), code="defect")


def log_unexpected_error(error: Exception) -> str:
    """Log an unexpected exception and return the public message for it."""
    number = secrets.token_hex(4)
    log.error("incident %s", number, exc_info=error)
    return f"internal error in Pramana; see incident {number} in the server's log"


def _validation_error_to_detail(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return a validation error of the framework, with its path in the names of files."""
    where, *inside = error["loc"]
    if error["type"] == "json_invalid":
        place = inside[0] if inside and isinstance(inside[0], int) else 0
        return {"path": "body", "message": f"not valid JSON at character {place + 1:,}: {error['ctx']['error']}"}
    path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in inside).removeprefix(".")
    message = str(error["msg"]).removeprefix("Value error, ")
    return {"path": escape_control_characters(path[:200]) or where, "message": escape_control_characters(message[:300])}
