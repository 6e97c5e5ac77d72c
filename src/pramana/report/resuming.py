"""How to resume a run, as advice: a run comes in, the command or the Python call that can work goes out.

A function of a program, or one made inside another function, cannot be imported: only Python can pass it again.
"""

from pramana.model import Plan, Run
from pramana.providers.text.function import is_importable


def resume_advice(run: Run) -> str:
    """Return what resumes a run: a command, or a Python call where the run calls functions that only a program has."""
    return resume_call(run) if program_functions(run.plan) else f"pramana run --resume {run.id}"


def resume_call(run: Run) -> str:
    """Return the Python call that resumes a run."""
    functions = program_functions(run.plan)
    if len(functions) > 1:
        given = ", ".join(f'"{each}": function' for each in functions)
        return f"pramana.resume({run.id!r}, models={{{given}}})"
    return f"pramana.resume({run.id!r}{', model=function' if functions else ''})"


def program_functions(plan: Plan) -> list[str]:
    """Return the models of a plan that are functions which cannot be imported, as they were named."""
    named = (*plan.targets, plan.judge, plan.embedder, plan.stt)
    functions = [each for each in named if each is not None and each.provider == "python"]
    return list(dict.fromkeys(each.typed for each in functions if not is_importable(each.model)))
