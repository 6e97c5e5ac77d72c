"""How to resume a run, as advice: a run comes in, the command or the Python call that can work goes out.

A function of a program, or one made inside another function, cannot be imported: only Python can pass it again. A run
keeps its limits, so a run that a limit ended needs a higher one.
"""

from pramana.model import Plan, Run
from pramana.providers.text.function import is_importable

_RAISED = {"max_cost_usd": ("--max-cost", "USD"), "max_total_tokens": ("--max-total-tokens", "N")}
"""The limits that are for all sittings of a run together: its option, and what the option takes."""


def resume_advice(run: Run) -> str:
    """Return what resumes a run: a command, or a Python call where the run calls functions that only a program has."""
    if find_unimportable_models(run.plan):
        return resume_call(run)
    option = " ".join(("", *_RAISED[limit])) if (limit := limit_to_raise(run)) else ""
    return f"pramana run --resume {run.id}{option}{_how_much(run, 'none', '--deadline')}"


def resume_call(run: Run) -> str:
    """Return the Python call that resumes a run."""
    functions = find_unimportable_models(run.plan)
    given = [", ".join(f'"{each}": function' for each in functions)]
    given = [f"models={{{given[0]}}}"] if len(functions) > 1 else ["model=function"] if functions else []
    given += [f"{limit}={_RAISED[limit][1]}"] if (limit := limit_to_raise(run)) else []
    return f"pramana.resume({', '.join([repr(run.id), *given])}){_how_much(run, 'None', 'deadline_s')}"


def limit_to_raise(run: Run) -> str | None:
    """Return the limit that ended a run and ends it again unless it is raised: a field of `Limits`."""
    reached = run.notes.get("reached_limit")
    return reached if reached in _RAISED else None


def _how_much(run: Run, no_limit: str, deadline: str) -> str:
    """Return which value goes on with a run that a limit ended."""
    if limit := limit_to_raise(run):
        return f" (more than {run.limits[limit]:,g}, or {no_limit})" if limit in run.limits else ""
    if run.notes.get("reached_limit") == "deadline_s" and "deadline_s" in run.limits:
        return f" (for another {run.limits['deadline_s']:g} s; {deadline} changes that)"
    return ""


def find_unimportable_models(plan: Plan) -> list[str]:
    """Return the models of a plan that are functions which cannot be imported, as they were named."""
    named = (*plan.targets, plan.judge, plan.embedder, plan.stt)
    functions = [each for each in named if each is not None and each.provider == "python"]
    return list(dict.fromkeys(each.typed for each in functions if not is_importable(each.model)))
