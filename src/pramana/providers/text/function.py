"""A Python function as a provider: a request comes in, the function is called, its return value goes out.

`python:package.module:function`, or a callable that a Python caller passes to `pramana.evaluate`. The function gets the
prompt as text; one with a parameter called `messages` gets a list of `{"role", "content"}` instead. A parameter named
like a parameter of the run, such as `temperature` or `seed`, gets its value; `**kwargs` gets those that are set, and
`parameters` gets all of them. A parameter called `system_prompt` gets the system prompt, which otherwise comes
before the prompt. The reply lists as dropped those that the function does not take. It returns text or a `Reply`.

Plain functions run in reused threads. Coroutines run in a separate event loop, so that blocking code never holds up the
run; for a caller that awaits `evaluate_async` they run in the caller's loop, where its clients live. All threads are
daemons: none keeps the process from ending, however long it hangs. An abandoned call is left behind with its thread.

Any exception is captured as a value, even one that a future cannot carry (`StopIteration`) or that would end an event
loop (`SystemExit`), and becomes a `ProviderError` with type and message. A `ProviderError` passes unchanged, so that a
function can raise `RateLimited`. No key from the environment leaves in a reply or a message. Modules in the current
folder can be imported; installed ones take precedence.
"""

import asyncio
import inspect
import json
import logging
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from types import CodeType
from typing import Any, NoReturn

from msgspec.structs import replace

from pramana import clock
from pramana.errors import (
    ApiKeyInReply,
    Hint,
    InvalidInput,
    ProviderError,
    describe_exception,
    quote_text,
    suggest_similar,
)
from pramana.model import Reply, Request, Target, Turn
from pramana.providers import redaction
from pramana.providers.text.runners import CoroutineRunner, ThreadRunner
from pramana.replies import describe_invalid_reply, drop_invalid_token_counts, encode_raw_response

log = logging.getLogger("pramana.providers")
MAX_THREADS = 10_000
"""Threads per function: the highest concurrency of a run. The run's limiter decides how many calls are made."""
MAX_MESSAGE_LENGTH = 300
SYSTEM_PROMPT_PARAMETER = "system_prompt"
RESUME_ADVICE = "pramana.resume(run_id, model=function), or judge=function"
USE_MESSAGES_HINT = "a function with a parameter `messages` gets the whole conversation, as a list of messages"
_PRAMANA_FOLDER = Path(__file__).parents[2]
_STANDARD_LIBRARY = tuple({Path(sysconfig.get_path(each)) for each in ("stdlib", "platstdlib")})
_INSTALLED_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages, wherever they are."""


class FunctionProvider:
    """A function, passed by a caller or imported by its path."""

    def __init__(
        self,
        path: str,
        function: Callable[..., Any] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Wrap a function; coroutines run in `loop` if given, else in a separate one."""
        self._path, self._function = path, function or import_function(path)
        self._accepted = _read_signature(path, self._function)
        self._asynchronous = is_asynchronous(self._function)
        self._threads, self._coroutines = ThreadRunner(MAX_THREADS), CoroutineRunner(loop)
        self._keys = redaction.read_environment_secrets()
        self._hint_was_logged = False

    @classmethod
    def open(cls, target: Target, account: object = None) -> "FunctionProvider":  # noqa: ARG003 - unused: this provider has no account
        """Return the provider for the target."""
        return cls(target.model)

    async def ask(self, request: Request) -> Reply:
        """Call the function and return its reply."""
        start = clock.monotonic()
        call = self._bind_arguments(request)
        ended = await (self._coroutines.call(call) if self._asynchronous else self._threads.call(call))
        if inspect.isawaitable(ended.value):
            awaited = ended.value
            ended = await self._coroutines.call(lambda: awaited)
        if ended.error is not None:
            self._raise_provider_error(ended.error)
        reply = self._make_judge_reply(ended.value) if request.purpose == "judge" else self._make_reply(ended.value)
        if self._holds_key(reply):
            raise ApiKeyInReply(redaction.describe_leaked_key(f"the answer of {self._path}"))
        not_taken = self._accepted.ignored_parameters(request.parameters)
        return replace(
            reply,
            served_model=reply.served_model or self._path,
            dropped=(*reply.dropped, *not_taken) if not_taken else reply.dropped,
            total_s=reply.total_s or clock.monotonic() - start,
            raw=encode_raw_response({"text": reply.text}) if reply.raw is None else reply.raw,
        )

    def refuse_missing_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` if the function requires a parameter that is not given."""
        if missing := self._accepted.missing_parameters(parameters):
            raise InvalidInput(self._describe_missing(missing), hint=Hint("send_parameter", missing[0]))

    async def models(self) -> list[str]:
        """Return the path, its only model."""
        return [self._path]

    async def close(self) -> None:
        """Stop the threads without waiting for functions that still run."""
        self._threads.close()
        self._coroutines.close()

    def _holds_key(self, reply: Reply) -> bool:
        """Return whether anything that is stored of a reply contains a key from the environment."""
        calls = (f"{each.id} {each}".encode("utf-8", "surrogatepass") for each in reply.tool_calls)
        texts = (reply.text, reply.served_model, reply.fingerprint, reply.finish_reason, *reply.dropped)
        held = self._keys.occur_in("\n".join(filter(None, texts)))
        return held or any(map(self._keys.occur_in_json, (reply.raw or b"", *calls)))

    def _make_reply(self, returned: object) -> Reply:
        """Return a function's return value as a reply, with the text as a plain `str` whatever its class."""
        if isinstance(returned, str):
            return Reply(str.__str__(returned))
        if not isinstance(returned, Reply):
            raise ProviderError(
                f"{self._path} returned {type(returned).__name__}; expected text (str) or pramana.Reply"
            )
        if wrong := describe_invalid_reply(returned):
            raise ProviderError(f"{self._path} returned a Reply whose {wrong}")
        return replace(returned, text=str.__str__(returned.text), usage=drop_invalid_token_counts(returned.usage))

    def _make_judge_reply(self, verdict: object) -> Reply:
        """Return a judge function's return value as a reply, with the text that a judge model would write."""
        answer = _format_verdict(verdict)
        if isinstance(answer, str | Reply):
            return self._make_reply(answer)
        found = f"{self._path} returned {type(verdict).__name__}"
        raise ProviderError(
            f"{found}; a judge returns True or False, text, or a dictionary; for numbers, write a scorer with pass_at"
        )

    def _raise_provider_error(self, error: BaseException) -> NoReturn:
        """Raise a function's exception as a provider error."""
        if isinstance(error, ProviderError) and self._keys.occur_in(str(error)):
            error.args = (self._keys.redact(str(error)),)
        if isinstance(error, ProviderError | KeyboardInterrupt):  # Ctrl-C is meant for the whole process
            raise error
        message = self._keys.redact(describe_exception(error))[:MAX_MESSAGE_LENGTH]
        raise ProviderError(f"{self._path} raised {message}{_describe_location(error)}") from error

    def _describe_missing(self, missing: Sequence[str]) -> str:
        """Describe required parameters that are not given."""
        instead = f"for the conversation, {USE_MESSAGES_HINT}"
        if self._accepted.takes_messages:
            instead = "`messages` replaces the prompt"
        return f"{self._path} requires {', '.join(missing)}, which the run does not send ({instead})"

    def _bind_arguments(self, request: Request) -> Callable[[], Any]:
        given, accepted = request.parameters, self._accepted
        if missing := accepted.missing_parameters(given):
            raise ProviderError(f"{self._describe_missing(missing)}; give the parameter {missing[0]} a default")
        more = accepted.make_arguments(given)
        turns = request.turns
        if accepted.takes_system_prompt:
            system = join_turns(turn for turn in turns if turn.role == "system")
            if system or accepted.needs_system_prompt:
                more[SYSTEM_PROMPT_PARAMETER] = system or more.get(SYSTEM_PROMPT_PARAMETER, "")
            turns = tuple(turn for turn in turns if turn.role != "system")
        if accepted.takes_messages:
            messages = [{"role": turn.role, "content": turn.text} for turn in request.turns]
            return partial(self._function, messages=messages, **more)
        # a judge's instructions and its question are one text by design
        if request.purpose != "judge" and is_conversation(turns) and not self._hint_was_logged:
            self._hint_was_logged = True
            log.warning(
                "%s takes only a prompt, so it gets each conversation as one text; %s", self._path, USE_MESSAGES_HINT
            )
        return partial(self._function, join_turns(turns), **more)


def _format_verdict(value: object) -> object:
    """Return a judge function's verdict as the text that a judge model would write; anything else as it is.

    >>> [*map(_format_verdict, (True, {"completed": False, "accuracy": 3}, "It says so.\\nYES", 7))]
    ['YES', '{"completed": false, "accuracy": 3}', 'It says so.\\nYES', 7]
    """
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():  # a bool of numpy
        value = item()
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, Mapping):
        with suppress(TypeError, ValueError, RecursionError):
            return json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
    return value


def _describe_location(error: BaseException, *, fall_back_to_any_frame: bool = True) -> str:
    """Return where an exception was raised, in brackets: file, line and function of the innermost user frame.

    If there is no user frame, as for a function of an installed package: the innermost frame outside Pramana; without
    `fall_back_to_any_frame`, nothing.
    """
    raised = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    others = [each for each in raised if not _is_internal(each[0])]
    typed_in = [each for each in others if each[0].co_filename.startswith("<")]  # at a prompt, or generated
    found = (
        [each for each in others if _is_in_users_file(each[0])]
        or typed_in
        or (others if fall_back_to_any_frame else [])
    )
    if not found:
        return ""
    code, line = found[-1]
    return f" ({_shorten_path(code.co_filename)}, line {line}, in {code.co_name})"


def has_user_frames(error: BaseException) -> bool:
    """Return whether an exception, or its cause, was raised in a file of the user."""
    raised = [frame.f_code for each in (error, error.__cause__) if each for frame, _ in walk_tb(each.__traceback__)]
    return any(not _is_internal(code) and _is_in_users_file(code) for code in raised)


def _is_internal(code: CodeType) -> bool:
    return code.co_filename.startswith("<frozen ") or Path(code.co_filename).is_relative_to(_PRAMANA_FOLDER)


def _is_in_users_file(code: CodeType) -> bool:
    """Return whether code comes from a file outside the standard library and installed packages."""
    path = Path(code.co_filename)
    installed = not _INSTALLED_PACKAGE_FOLDERS.isdisjoint(path.parts) or any(
        map(path.is_relative_to, _STANDARD_LIBRARY)
    )
    return not installed and not code.co_filename.startswith("<")


def _shorten_path(name: str) -> str:
    """Return a file's path relative to the working directory; only its name if it is elsewhere, since it is stored."""
    if name.startswith("<"):
        return name
    try:
        return str(Path(name).relative_to(Path.cwd()))
    except (OSError, ValueError):
        return Path(name).name


def function_path(function: Callable[..., Any]) -> str:
    """Return the name a callable is stored under: `package.module:function`.

    A `lambda` has the name of the module's variable that holds it, and can be imported by that; one that is written in
    a call has no name but `<lambda>`.

    >>> import json, functools
    >>> *map(function_path, (json.dumps, functools.partial(json.dumps, indent=1), json.JSONEncoder())),
    ('json:dumps', 'json:dumps', 'json.encoder:JSONEncoder')
    """
    named = _unwrap_partial(function)
    name = _read_name(named, "__qualname__")
    if name is None:
        named, name = type(named), type(named).__qualname__
    module = _read_name(named, "__module__") or "__main__"
    if name == "<lambda>":
        variables = vars(sys.modules[module]) if module in sys.modules else {}
        name = next((each for each, value in variables.items() if value is named and each != "_"), name)
    return f"{module}:{name}"


def _read_name(function: Any, attribute: str) -> str | None:
    """Return a name that a callable has; None without one, or with one that is no text."""
    with suppress(Exception):  # the attribute may be the user's code
        if isinstance(name := getattr(function, attribute, None), str):
            return name
    return None


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Return whether calling something returns a coroutine, as far as that is known before the call.

    >>> is_asynchronous(asyncio.sleep), is_asynchronous(partial(asyncio.sleep, 1)), is_asynchronous(len)
    (True, True, False)
    """
    function = _unwrap_partial(function)
    called = function if inspect.isroutine(function) else getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(_unwrap_partial(called))  # check the wrapper itself: it may run what it wraps


def _unwrap_partial(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


def join_turns(turns: Iterable[Turn]) -> str:
    """Return a conversation as one text: its turns, separated by empty lines.

    >>> join_turns([Turn("system", "Be brief."), Turn("user", "Is it so?")])
    'Be brief.\\n\\nIs it so?'
    """
    return "\n\n".join(turn.text for turn in turns)


def is_conversation(turns: Iterable[Turn]) -> bool:
    """Return whether a request has more than one user message and perhaps a system prompt.

    >>> is_conversation([Turn("system", "Be brief."), Turn("user", "Is it so?")])
    False
    """
    return sum(turn.role != "system" for turn in turns) > 1


def is_importable(path: str) -> bool:
    """Return whether a function can be imported by name: not from a script, nor defined inside another function.

    >>> [is_importable(each) for each in ("mine:agent", "__main__:agent", "mine:make.<locals>.agent")]
    [True, False, False]
    """
    module, _, name = path.partition(":")
    return module != "__main__" and "<" not in name


def import_function(path: str, advice: str = RESUME_ADVICE) -> Callable[..., Any]:
    """Import `package.module:function`; raise `InvalidInput` with what to do if that fails."""
    module, colon, attribute = path.partition(":")
    if not module or not colon or not attribute:
        raise InvalidInput(f"python:{path} lacks a function; write python:package.module:function")
    if not is_importable(path):
        raise InvalidInput(
            f"python:{path} cannot be imported: the function exists only in the program that started the run; resume "
            f"the run there with {advice}, or put the function in a module"
        )
    if (here := _current_folder()) and here not in sys.path:
        sys.path.append(here)  # last, so that no file in the folder shadows an installed module
    found: Any = None
    try:
        found = import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = redaction.read_environment_secrets().redact(describe_exception(error))[:MAX_MESSAGE_LENGTH]
        raise InvalidInput(
            f"python:{path} cannot be loaded: {why}{_explain_failed_import(module, found, error)}"
        ) from error
    if not callable(found):
        raise InvalidInput(f"python:{path} is {quote_text(type(found).__name__)}, which cannot be called")
    function: Callable[..., Any] = found
    return function


def _current_folder() -> str:
    """Return the current folder, or an empty text if it was deleted."""
    with suppress(FileNotFoundError):
        return str(Path.cwd())
    return ""


def _explain_failed_import(module: str, last_found: Any, error: BaseException) -> str:
    """Return what to do about a failed import; `last_found` is the last object that was found."""
    if last_found is not None:
        named = [
            name for name in dir(last_found) if not name.startswith("_") and callable(getattr(last_found, name, None))
        ]
        return suggest_similar(str(getattr(error, "name", None) or ""), named) or "; check the name of the function"
    here = f"{_current_folder()}/"
    if (dotted := re.sub(r"[/\\]", ".", module.removeprefix(here)).removesuffix(".py").strip(".")) != module:
        return f"; name the module as Python imports it: {dotted}"
    place = _describe_location(error, fall_back_to_any_frame=False)
    if isinstance(error, ModuleNotFoundError) and error.name:
        if f"{module}.".startswith(f"{error.name}."):
            return "; check the name, and that the module is installed or in the current folder"
        return f"{place}; install what {module} imports in Pramana's environment"
    return f"{place}; fix {module}, which raises this error on import"


@dataclass(frozen=True, slots=True)
class _Signature:
    """The arguments a function takes besides the prompt."""

    takes_messages: bool = False
    """Takes the messages instead of the prompt."""
    takes_system_prompt: bool = False
    """Takes the system prompt by itself; the prompt is then without it."""
    needs_system_prompt: bool = False
    """The parameter has no default: without a system prompt it gets an empty text."""
    takes_parameters: bool = False
    """Takes all parameters of the run as a dictionary."""
    accepted_names: frozenset[str] = frozenset()
    """Parameters of the run that it takes by name."""
    required_names: tuple[str, ...] = ()
    """Those of them without a default."""
    accepts_any_name: bool = False
    """Takes every other parameter that is set, as `**kwargs`."""
    unavailable_names: frozenset[str] = frozenset()
    """Names that no parameter can have: the prompt's, `messages`, `parameters`, and those that a partial has bound."""

    def make_arguments(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a run as keyword arguments."""
        found = {name: parameters[name] for name in self.accepted_names if name in parameters}
        if self.accepts_any_name:
            set_here = {name: value for name, value in parameters.items() if value is not None}
            found |= {name: value for name, value in set_here.items() if name not in self.unavailable_names}
        if self.takes_parameters:
            found["parameters"] = dict(parameters)
        return found

    def missing_parameters(self, parameters: Mapping[str, Any]) -> list[str]:
        """Return the names of required parameters that are not given."""
        return [name for name in self.required_names if name not in parameters]

    def ignored_parameters(self, parameters: Mapping[str, Any]) -> list[str]:
        """Return the names of parameters that are set but not passed to the function."""
        if self.takes_parameters:
            return []
        others = (name for name, value in parameters.items() if value is not None and name not in self.accepted_names)
        return [name for name in others if not self.accepts_any_name or name in self.unavailable_names]


def _read_signature(path: str, function: Callable[..., Any]) -> _Signature:
    """Return what a function takes; raise `InvalidInput` if it cannot be called with these arguments."""
    try:
        signature = inspect.signature(function)
    except Exception:  # noqa: BLE001 - some built-ins have no signature, and attributes may be the user's code
        return _Signature()
    by_name = {
        name: each
        for name, each in signature.parameters.items()
        if each.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    }
    bound = _find_partial_arguments(function)
    messages, takes_all = "messages" in by_name, "parameters" in by_name.keys() - bound
    takes_system = SYSTEM_PROMPT_PARAMETER in by_name.keys() - bound
    prompt = None if messages else next(iter(signature.parameters), None)
    taken = frozenset({"messages", "parameters", *bound, *([prompt] if prompt else ())})
    named = frozenset(by_name.keys() - taken)
    required = [name for name, each in by_name.items() if each.default is each.empty and name != prompt]
    try:
        signature.bind(*([] if messages else [""]), **dict.fromkeys(required))
    except TypeError as error:
        expected = "expected a function of the prompt, or of `messages`"
        if inspect.isclass(function):
            expected = f"it is a class, so pass an object of it: {function.__name__}()"
        raise InvalidInput(f"python:{path} cannot be called: {error}; {expected}") from None
    any_name = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values())
    return _Signature(
        takes_messages=messages,
        takes_system_prompt=takes_system and prompt != SYSTEM_PROMPT_PARAMETER,
        needs_system_prompt=SYSTEM_PROMPT_PARAMETER in required,
        takes_parameters=takes_all,
        accepted_names=named,
        required_names=tuple(name for name in required if name in named and name != SYSTEM_PROMPT_PARAMETER),
        accepts_any_name=any_name,
        unavailable_names=taken,
    )


def _find_partial_arguments(function: Any) -> frozenset[str]:
    """Return the names of the keyword arguments that `functools.partial` has bound.

    >>> sorted(_find_partial_arguments(partial(partial(print, sep=""), end="")))
    ['end', 'sep']
    """
    return frozenset(function.keywords) if isinstance(function, partial) else frozenset()
