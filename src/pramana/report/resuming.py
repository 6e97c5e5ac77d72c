"""Advice on how to resume a run: a run in, the command or the Python call that resumes it out.

A function of a script, or one defined inside another function, cannot be imported: only Python can pass it again. A run
keeps its limits, so a run that a limit ended needs a higher one.
"""

from pramana.model import Plan, Run
from pramana.providers.text.function import is_importable

OPTION_BY_TOTAL_LIMIT = {"max_cost_usd": ("--max-cost", "USD"), "max_total_tokens": ("--max-total-tokens", "N")}
"""Limits on a run's totals, across resumptions: the option of each, and the placeholder of its value."""


def format_resume_advice(run: Run) -> str:
    """Return a command that resumes a run, or a Python call if the run uses functions that cannot be imported."""
    if find_unimportable_models(run.plan):
        return format_resume_call(run)
    option = " ".join(("", *OPTION_BY_TOTAL_LIMIT[limit])) if (limit := find_limit_to_raise(run)) else ""
    return f"pramana run --resume {run.id}{option}{_format_limit_to_raise(run, 'none', '--deadline')}"


def format_resume_call(run: Run) -> str:
    """Return the Python call that resumes a run."""
    given = _format_arguments_passing_functions(run.plan)
    given += [f"{limit}={OPTION_BY_TOTAL_LIMIT[limit][1]}"] if (limit := find_limit_to_raise(run)) else []
    return f"pramana.resume({', '.join([repr(run.id), *given])}){_format_limit_to_raise(run, 'None', 'deadline_s')}"


def _format_arguments_passing_functions(plan: Plan) -> list[str]:
    """Return the arguments of a Python call that pass the functions of a plan which cannot be imported."""
    functions = find_unimportable_models(plan)
    judges = [each.typed for each in plan.judges]
    others = [each for each in functions if each not in judges or each in (target.typed for target in plan.targets)]
    count = len(functions) - len(others)
    passed = [f"judge=[{', '.join(['function'] * count)}]" if count > 1 else "judge=function"] if count else []
    if len(others) > 1:
        named = ", ".join(f'"{each}": function' for each in others)
        passed.insert(0, f"models={{{named}}}")
    elif others:
        passed.insert(0, "model=function")
    return passed


def find_limit_to_raise(run: Run) -> str | None:
    """Return the field of `Limits` that ended a run and must be raised to resume it."""
    reached = run.notes.get("reached_limit")
    return reached if reached in OPTION_BY_TOTAL_LIMIT else None


def _format_limit_to_raise(run: Run, no_limit_word: str, deadline_option: str) -> str:
    """Return the value to pass in order to resume a run that a limit ended."""
    if limit := find_limit_to_raise(run):
        return f" (more than {run.limits[limit]:,g}, or {no_limit_word})" if limit in run.limits else ""
    if run.notes.get("reached_limit") == "deadline_s" and "deadline_s" in run.limits:
        return f" (for another {run.limits['deadline_s']:g} s; {deadline_option} changes that)"
    return ""


def find_unimportable_models(plan: Plan) -> list[str]:
    """Return the names of a plan's models that are functions which cannot be imported."""
    named = (*plan.targets, *plan.judges, plan.embedder, plan.stt)
    functions = [each for each in named if each is not None and each.provider == "python"]
    return list(dict.fromkeys(each.typed for each in functions if not is_importable(each.model)))
