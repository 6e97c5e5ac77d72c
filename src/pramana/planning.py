"""From a request to a plan: cases, models, variants, and an estimate of calls, tokens and cost.

`create_run` stores a run and `estimate` only computes; both start from the same `plan`, for the command line, for users
of a server and for Python. Nothing here sends a request to a model.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from importlib.metadata import version
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from pramana import settings
from pramana.analyse.estimate import Estimate, JudgingForecast, forecast_judging
from pramana.analyse.estimate import estimate as add_up
from pramana.analyse.judges import NON_JUDGE_PROVIDERS
from pramana.audio import conditions
from pramana.embedded import weights
from pramana.errors import (
    AuthenticationFailed,
    Hint,
    InvalidInput,
    NotFound,
    PramanaError,
    Problem,
    escape_control_characters,
    quote_text,
    set_field_path_if_missing,
    suggest_similar,
)
from pramana.hash import hash_case
from pramana.load import CaseSources, is_built_in_scenario_path, path_exists
from pramana.load.scenario import parse_scenario_or_errors
from pramana.model import Case, Plan, PlannedScorer, PromptSearch, Run, Target, Usage
from pramana.providers.kinds import CODE_RUNNING_KINDS, VARIABLES_BY_KIND
from pramana.providers.names import is_voice_agent, resolve_embedder, resolve_target
from pramana.providers.prices import Prices
from pramana.providers.redaction import read_environment_secrets
from pramana.request import LOCAL_ONLY_FIELDS, RunRequest, Selection
from pramana.run.accounts import ProviderAccess, make_accounts, read_configured_commands
from pramana.run.speech import NOISY, PLAIN
from pramana.score.scorers import make_planned_scorers
from pramana.store.records import escape_text
from pramana.store.runs import RunHook
from pramana.store.store import Store

DEFAULT_SUITE, DEFAULT_TIER = "v1.0", "cheap"
MODALITIES = ("text", "voice", "noisy")


def create_run(
    store: Store,
    request: RunRequest,
    reach: ProviderAccess | None = None,
    creator: str | None = None,
    *,
    warn: Callable[[Sequence[Problem]], object] | None = None,
    holder: str | None = None,
    hook: RunHook | None = None,
    built_in_cases: tuple[Case, ...] = (),
    search: PromptSearch | None = None,
) -> Run:
    """Check a request and store its run. `bench.execute` executes it, or a server does for its users.

    `warn` is called with the warnings about the files. `holder` is a process that executes the run at once, and `hook`
    stores what belongs to it, in the same transaction. `built_in_cases` are cases of this program, which a request of a
    server's user cannot name; the run searches border prompts among them if `search` says how.
    """
    reach = reach or ProviderAccess()
    chosen, plan = plan_with_cases(store, request, reach, built_in_cases=built_in_cases)
    plan = replace(plan, search=search)
    if not reach.is_for_other_users and _uses_embedded_model(plan):
        from pramana.embedded.language import require_runtime

        require_runtime()  # before anything is stored, and before its weights are downloaded
    if warn and chosen.files and chosen.files.warnings:
        warn(chosen.files.warnings)
    cases = chosen.cases()
    first = next(cases, None)
    if first is None:
        raise chosen.make_no_cases_error()
    if not reach.is_for_other_users:
        return store.runs.create(
            plan, chain((first,), cases), name=request.name, note=request.note, holder=holder, hook=hook
        )
    return store.runs.create(
        plan,
        chain((first,), cases),
        owner="server",
        creator=creator,
        limits=request.limits.to_stored(),
        name=request.name,
        note=request.note,
        holder=holder,
        hook=hook,
    )


def make_plan(store: Store, request: RunRequest, reach: ProviderAccess | None = None) -> Plan:
    """Return the plan of a request; nothing is stored or sent to a model."""
    return plan_with_cases(store, request, reach or ProviderAccess())[1]


def estimate(
    store: Store,
    request: RunRequest,
    reach: ProviderAccess | None = None,
    *,
    built_in_cases: tuple[Case, ...] = (),
) -> Estimate:
    """Return the estimate for a run; nothing is stored or sent to a model."""
    chosen, plan = plan_with_cases(store, request, reach or ProviderAccess(), built_in_cases=built_in_cases)
    prices = Prices.load(settings.prices_file_path(), store.prices.read_rates())
    called = {each.typed: is_voice_agent(each) for each in (*plan.targets, *plan.judges)}

    def cost(target: Target, usage: Usage) -> float | None:
        return prices.cost(target, None, usage)

    found = add_up(plan, _without_duplicates(chosen.cases()), cost, lambda target: called[target.typed])
    if not found.case_count:
        raise chosen.make_no_cases_error()
    return found


class CountedCases(NamedTuple):
    """How many cases a request chooses, and what they are called."""

    case_count: int
    name: str


def count_cases(store: Store, request: RunRequest) -> CountedCases:
    """Return the number of cases that a request chooses; it may name no model."""
    chosen = _choose_cases(store, request)
    count = sum(1 for _ in _without_duplicates(chosen.cases()))
    if not count:
        raise chosen.make_no_cases_error()
    return CountedCases(count, chosen.name)


def forecast_run_judging(store: Store, run: Run) -> JudgingForecast:
    """Return the judges of the replies of a stored run."""
    called = {each.typed: is_voice_agent(each) for each in (*run.plan.targets, *run.plan.judges)}
    return forecast_judging(run.plan, store.cases.iterate(run.id), lambda target: called[target.typed])


def plan_with_cases(
    store: Store,
    request: RunRequest,
    reach: ProviderAccess,
    *,
    may_repeat_models: bool = False,
    built_in_cases: tuple[Case, ...] = (),
) -> "tuple[CaseSelection, Plan]":
    """Return the cases and the plan of a checked request; nothing is stored."""
    request.check()
    if reach.is_for_other_users:
        _refuse_local_only_fields(request)
    else:
        _refuse_leaked_keys(request)
    chosen = CaseSelection(store, None, None, built_in_cases) if built_in_cases else _choose_cases(store, request)
    reach = with_registered_providers(store, reach)
    targets = tuple(_resolve_tested_model(model, place, reach) for place, model in enumerate(request.models))
    if not may_repeat_models:
        _refuse_duplicates(targets)
    judges = resolve_judges(request.judge, request.other_judges, reach)
    if request.voice == "piper":
        weights.verify_folder("piper")  # otherwise every case would fail on its own for lack of the weights
    return chosen, Plan(
        suite=chosen.name,
        suite_hash=chosen.suite_hash,
        targets=targets,
        repeats=request.repeats,
        parameters=request.make_sent_parameters(),
        system_prompt=request.system_prompt,
        judge=judges[0] if judges else None,
        other_judges=judges[1:],
        selection=chosen.filters(),
        runner_version=version("pramana"),
        embedder=resolve_embedder_model(request.embedder, reach),
        variants=_resolve_variants(request, targets),
        stt=resolve_model(request.stt, reach) if request.stt else None,
        voice=request.voice,
        scorers=plan_scorers(request.scorers, reach),
    )


def pull_missing_weights(plan: Plan, pull: Callable[[str], object] = weights.pull) -> None:
    """Download the embedded language model if a plan uses it and it is missing."""
    if _uses_embedded_model(plan):
        from pramana.embedded.language import WEIGHTS_NAME

        if weights.find_folder(WEIGHTS_NAME) is None:
            pull(WEIGHTS_NAME)


def _uses_embedded_model(plan: Plan) -> bool:
    return any(target.provider in ("local", "local-voice") for target in plan.targets)


def _refuse_local_only_fields(request: RunRequest) -> None:
    given = [name for name, each in LOCAL_ONLY_FIELDS.items() if getattr(request, name) != each.default]
    if given:
        raise InvalidInput.from_problems([Problem("can only be set on the server's machine", each) for each in given])


# ── Cases ──


STORE_PREFIX = "store:"
"""The name of the stored scenarios in a request; `store:hours-1` for one of them."""


@dataclass(frozen=True, slots=True)
class CaseSelection:
    """The cases of a run: files or a tier of a suite, scenarios of the store, or both."""

    store: Store
    files: CaseSources | None
    scenario_selection: Selection | None
    python_cases: tuple[Case, ...] = ()
    """Cases built by a Python caller."""
    python_case_filters: Selection = field(default_factory=Selection)
    """Filters on `python_cases`."""
    limit: int | None = None
    """Limit on all of them together."""

    @property
    def name(self) -> str:
        """Return the name of the cases in the plan."""
        named = [(self.files.name, self.files.selection)] if self.files else []
        named += [("cases", self.python_case_filters)] if self.python_cases else []
        if self.scenario_selection is not None:
            named.append(("scenarios", self.scenario_selection))
        return "+".join(f"{name} (selection)" if selection else name for name, selection in named)

    @property
    def suite_hash(self) -> str | None:
        """Return the suite hash, if the cases are a complete suite."""
        whole = self.files and not self.files.selection and self.scenario_selection is None and not self.python_cases
        return self.files.suite_hash if self.files and whole else None

    def filters(self) -> dict[str, Any]:
        """Return the filters that are set, as plain data for the plan."""
        of_files = (
            self.files.selection.to_recorded()
            if self.files
            else self.python_case_filters.to_recorded()
            if self.python_cases
            else {}
        )
        of_scenarios = self.scenario_selection.to_recorded() if self.scenario_selection else {}
        return {**of_files, "scenarios": of_scenarios} if of_files and of_scenarios else of_files or of_scenarios

    def cases(self) -> Iterator[Case]:
        """Yield the cases, reading them as needed."""
        of_files = (
            self.files.iterate_cases() if self.files else self.python_case_filters.select_cases(self.python_cases)
        )
        if self.scenario_selection is None:
            return of_files
        return islice(chain(of_files, self._stored_scenarios(self.scenario_selection)), self.limit)

    def make_no_cases_error(self) -> InvalidInput:
        """Return the error that explains why there are no cases."""
        if self.scenario_selection is None:
            name, filters = (
                (self.files.name, self.files.selection) if self.files else ("the list", self.python_case_filters)
            )
            return InvalidInput(f"no case of {name} matches the filters", hint=Hint("check_filters", filters))
        if self.filters():
            what = "case" if self.files or self.python_cases else "scenario"
            return InvalidInput(f"no {what} matches these filters; check the spelling of the filters")
        return InvalidInput("no scenarios are stored yet", hint=Hint("import_scenarios"))

    def _stored_scenarios(self, selection: Selection) -> Iterator[Case]:
        for chunk in self.store.scenarios.iterate_chunks(selection):
            for each in chunk:
                scenario, problems = parse_scenario_or_errors(msgspec.to_builtins(each))
                if scenario is None:
                    path, message = problems[0]
                    raise InvalidInput(f"the stored scenario {quote_text(each.id)} is not valid: {path}: {message}")
                yield scenario.to_case()


def _choose_cases(store: Store, request: RunRequest) -> CaseSelection:
    files = None
    if request.cases and (request.paths or request.suite or request.tier):
        raise InvalidInput(
            "pass only one of these: cases, files, or a tier of a suite; pramana.cases_of reads cases from a file"
        )
    paths, ids = _split_files_and_store_ids(request.paths)
    scenarios = request.scenarios if ids is None else _make_stored_scenario_selection(store, ids, request)
    if paths:
        _refuse_unprefixed_ids(store, paths)
        files = CaseSources.from_files(paths, request.selection)
    elif request.suite is not None or request.tier is not None:
        suite, tier = request.suite or DEFAULT_SUITE, request.tier or DEFAULT_TIER
        files = CaseSources.from_tier(suite, tier, request.selection, store.suites)
    elif scenarios is None and not request.cases:
        raise InvalidInput("no cases were chosen; name a suite and its tier, or scenarios")
    if request.scenarios:
        store.scenarios.require_existing(request.scenarios.ids)
    limit = None if ids is None else request.selection.limit
    return CaseSelection(store, files, scenarios, request.cases, request.selection, limit)


def iterate_cases_at_paths(store: Store, paths: Sequence[Path], selection: Selection) -> Iterator[Case]:
    """Yield the cases of files and of `store:` names that pass the filters."""
    return _choose_cases(store, RunRequest(models=(), paths=tuple(paths), selection=selection)).cases()


def _split_files_and_store_ids(paths: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[str, ...] | None]:
    """Return the files, and the IDs that `store:` names: no IDs for the whole store, None without `store:`."""
    named = [each for each in paths if is_store_path(each)]
    ids = tuple(dict.fromkeys(str(each).removeprefix(STORE_PREFIX) for each in named))
    return tuple(each for each in paths if each not in named), (() if "" in ids else ids) if named else None


def is_store_path(path: str | Path) -> bool:
    """Return whether a path names scenarios of the store: `store:` or `store:hours-1`."""
    return str(path).startswith(STORE_PREFIX)


def _make_stored_scenario_selection(store: Store, ids: tuple[str, ...], request: RunRequest) -> Selection:
    """Return the filters on the store's scenarios: those of the request, restricted to the IDs that were named."""
    if request.scenarios is not None:
        raise InvalidInput(
            f"choose stored scenarios either with {STORE_PREFIX} or with the `scenarios` filters, not with both"
        )
    store.scenarios.require_existing(ids)
    wanted = request.selection
    if ids and wanted.ids:
        ids = tuple(each for each in ids if each in wanted.ids)
        if not ids:
            raise InvalidInput(
                f"no scenario that {STORE_PREFIX} names matches the filters", hint=Hint("check_filters", wanted)
            )
    return replace(wanted, ids=ids or wanted.ids)


def _refuse_unprefixed_ids(store: Store, paths: Sequence[Path]) -> None:
    """Refuse a missing path that is the ID of a stored scenario, with what to type instead."""
    missing = [str(each) for each in paths if not is_built_in_scenario_path(each) and not path_exists(each)]
    known = store.scenarios.find_existing([escape_text(each) for each in missing]) if missing else set()
    for each in missing:
        if each in known:
            raise NotFound(
                f"{escape_control_characters(each)} is not a file but the ID of a stored scenario",
                hint=Hint("run_stored", each),
            )


def _without_duplicates(cases: Iterator[Case]) -> Iterator[Case]:
    seen = set()
    for case in cases:
        digest = hash_case(case)
        if digest not in seen:
            seen.add(digest)
            yield case


# ── Models ──


def with_registered_providers(store: Store, reach: ProviderAccess) -> ProviderAccess:
    """Return the reach of a run with the providers that its store has registered."""
    return (
        reach
        if reach.find_registered_provider
        else replaced(reach, find_registered_provider=store.providers.find_registered)
    )


def resolve_judge(name: str | None, reach: ProviderAccess) -> Target | None:
    """Return the named judge; None: each model judges itself."""
    judge = resolve_model(name, reach) if name else None
    if judge and judge.provider in NON_JUDGE_PROVIDERS:
        raise InvalidInput("the embedded model cannot judge", hint=Hint("name_judge"))
    return judge


def resolve_judges(judge: str | None, others: Sequence[str], reach: ProviderAccess) -> tuple[Target, ...]:
    """Return the named judges: one, several that form a panel, or none."""
    if judge is None and others:
        raise InvalidInput("other judges were named, but no judge")
    found = tuple(each for name in (judge, *others) if (each := resolve_judge(name, reach)))
    for one, other in combinations(found, 2):
        if replace(one, typed=other.typed) == other:
            both = "" if one.typed == other.typed else f" ({one.typed} and {other.typed})"
            raise InvalidInput(f"the same judge is named twice{both}; a panel needs different judges")
    return found


def resolve_embedder_model(name: str | None, reach: ProviderAccess) -> Target | None:
    """Return the embedder; None for all-MiniLM-L6-v2 in this process, whose name is `local`."""
    if name in (None, "local"):
        return None
    return resolve_embedder(
        name, find_registered_provider=reach.find_registered_provider, is_for_other_users=reach.is_for_other_users
    )


def explain_missing_provider_keys(store: Store, request: RunRequest, reach: ProviderAccess) -> dict[str, str]:
    """Return the providers of a request whose key is missing, each with what to do; no request is sent."""
    reach = with_registered_providers(store, reach)
    accounts, found = make_accounts(reach, None), dict[str, str]()
    for typed in filter(None, (*request.models, request.judge, *request.other_judges, request.embedder, request.stt)):
        target = resolve_model(typed, reach)
        try:
            accounts.find_account(target)
        except AuthenticationFailed:
            account = target.arguments.get("account")
            name = str(account or target.provider)
            or_in = "" if account else f" or {' or '.join(VARIABLES_BY_KIND[name].key_variables)}"
            found[name] = f"no API key is set for {name} on this machine: set the key in Settings › Providers{or_in}"
        except PramanaError:  # a different error, which the run itself reports
            continue
    return found


def _resolve_tested_model(name: str, place: int, reach: ProviderAccess) -> Target:
    """Return the target of a model that is tested; an error names its place in the request."""
    try:
        return _attach_agent_description(resolve_model(name, reach))
    except PramanaError as error:
        set_field_path_if_missing(error, f"models[{place}]")
        raise


def resolve_model(name: str, reach: ProviderAccess) -> Target:
    """Return the target of a typed model name, if `reach` allows it."""
    ours = {} if reach.is_for_other_users else read_configured_commands()
    return resolve_target(
        name,
        commands=ours,
        find_registered_provider=reach.find_registered_provider,
        is_for_other_users=reach.is_for_other_users,
    )


def plan_scorers(
    names: Sequence[str], reach: ProviderAccess, previously_planned: Sequence[PlannedScorer] = ()
) -> tuple[PlannedScorer, ...]:
    """Return the scorers to record in a plan, with those `previously_planned` unless a new one has the same name.

    Only this machine's own user may name a local function, `python:module:name`.
    """
    for each in names:
        if reach.is_for_other_users and each.partition(":")[0] in CODE_RUNNING_KINDS:
            message = f"{quote_text(each)} runs code on this machine, which only the command line allows"
            raise InvalidInput.from_problems([Problem(f"{message}; name an installed scorer", "scorers")])
    try:
        named = make_planned_scorers(names, reach.passed_functions.scorers)
        known = {each.name for each in named}
        kept = [each.typed for each in previously_planned if each.name not in known]
        return (*make_planned_scorers(kept, reach.passed_functions.scorers), *named)
    except InvalidInput as error:
        raise InvalidInput.from_problems([Problem(str(error), "scorers")]) from error


def _attach_agent_description(target: Target) -> Target:
    """Return a target with the contents of its description file, so that a resumed run uses what was read at its start.

    `websocket:FILE` is the agent that the file describes; in `websocket:FILE#NAME`, NAME selects the model or agent.
    """
    if target.provider != "websocket" or "description" in target.arguments:
        return target
    from pramana.load.agent import load_agent

    file, _, model = target.model.partition("#")
    description = load_agent(Path(file))
    if not model and "{model" in json.dumps(description):
        raise InvalidInput(f"{file} uses {{model}}, but no model was named; write websocket:{file}#MODEL")
    return replace(target, model=model or Path(file).stem, arguments={"description": description})


def _refuse_leaked_keys(request: RunRequest) -> None:
    """Refuse a key of the environment in what is stored with the run, and in its exports."""
    keys = read_environment_secrets()
    stored = {
        "parameters": json.dumps(request.parameters, ensure_ascii=False),
        "system_prompt": request.system_prompt,
        "name": request.name,
        "note": request.note,
    }
    if held := [name for name, text in stored.items() if text and keys.occur_in(text)]:
        raise InvalidInput.from_problems(
            [
                Problem(
                    "contains an API key from the environment and is stored with the run; read the key where "
                    "it is used",
                    name,
                )
                for name in held
            ]
        )


def _refuse_duplicates(targets: Sequence[Target]) -> None:
    """Refuse a model that is named twice, even in two spellings: `gpt-5` and `openai:gpt-5` are one."""
    for other, target in combinations(targets, 2):
        if replace(other, typed=target.typed) == target:
            both = "" if other.typed == target.typed else f" ({other.typed} and {target.typed})"
            raise InvalidInput(
                f"the same model is named twice{both}; for several replies to each case, set the number of repeats"
            )


# ── Variants ──


def _resolve_variants(request: RunRequest, targets: Sequence[Target]) -> tuple[str, ...]:
    """Return the variants of a run: those requested, otherwise the default of each model."""
    if stated := modality_variants(request.modalities, request.condition):
        return tuple(dict.fromkeys(stated))
    called = {is_voice_agent(target) for target in targets}
    if len(called) > 1:
        raise InvalidInput("the models include both text models and voice agents", hint=Hint("choose_modalities"))
    return ("voice",) if called == {True} else ("text",)


def modality_variants(modalities: Sequence[str] | None, condition: str | None) -> list[str]:
    """Return the variants for modalities and a condition; an empty list if neither is given.

    >>> modality_variants(["text", "noisy"], "phone")
    ['text', 'voice+noise=10dB,phone']
    """
    stated = _normalise_condition(condition)
    if modalities is None:
        return [f"{PLAIN}+{stated}"] if stated else []
    found = []
    for each in (each.strip() for each in modalities):
        if each not in MODALITIES:
            hint = suggest_similar(each, MODALITIES)
            raise InvalidInput.from_problems(
                [Problem(f"{quote_text(each)} is not one of {', '.join(MODALITIES)}{hint}", "modality")]
            )
        under = _normalise_condition(",".join(part for part in (NOISY if each == "noisy" else "", stated) if part))
        found.append(each if each == "text" else f"{PLAIN}+{under}" if under else PLAIN)
    if condition is not None and set(found) == {"text"}:
        problem = Problem("a condition applies to speech only; add voice to the modality", "condition")
        raise InvalidInput.from_problems([problem])
    return found


def _normalise_condition(condition: str | None) -> str:
    """Return conditions in canonical spelling; an empty string if there are none."""
    found = conditions.parse_conditions(condition) if condition else None
    return str(found) if found else ""
