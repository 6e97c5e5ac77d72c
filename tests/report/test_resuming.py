"""The advice on how to resume a run is a command or a call that can work."""

from pramana.model import Plan, Run, Target
from pramana.report.resuming import resume_advice, resume_call

SCRIPTED, NESTED = (Target(f"python:{path}", "python", path) for path in ("__main__:agent", "mine:make.<locals>.agent"))
IMPORTABLE, VENDOR = Target("python:mine:agent", "python", "mine:agent"), Target("gpt-5", "openai", "gpt-5")


def run_of(*targets: Target, judge: Target | None = None) -> Run:
    return Run("r1", Plan("mine", None, targets, judge=judge), "stopped", "2026-01-02T03:04:05Z", 5, 2)


def test_what_can_be_found_again_is_resumed_by_a_command() -> None:
    for target in (IMPORTABLE, VENDOR):
        assert resume_advice(run_of(target)) == "pramana run --resume r1"
        assert resume_call(run_of(target)) == "pramana.resume('r1')"


def test_a_function_that_exists_only_in_a_program_is_passed_again() -> None:
    for found in (run_of(SCRIPTED), run_of(NESTED), run_of(SCRIPTED, judge=SCRIPTED)):
        assert resume_advice(found) == resume_call(found) == "pramana.resume('r1', model=function)"


def test_a_judge_function_is_passed_as_judge() -> None:
    assert resume_call(run_of(VENDOR, judge=SCRIPTED)) == "pramana.resume('r1', judge=function)"
    assert resume_call(run_of(SCRIPTED, judge=NESTED)) == "pramana.resume('r1', model=function, judge=function)"


def test_several_functions_are_passed_by_their_names() -> None:
    assert resume_call(run_of(SCRIPTED, NESTED)) == (
        "pramana.resume('r1', models={\"python:__main__:agent\": function, "
        '"python:mine:make.<locals>.agent": function})'
    )
