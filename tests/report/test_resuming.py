"""The advice on resuming a run is a command or a call that works."""

from pramana.model import Plan, Run, Target
from pramana.report.resuming import format_resume_advice, format_resume_call

SCRIPTED, NESTED = (Target(f"python:{path}", "python", path) for path in ("__main__:agent", "mine:make.<locals>.agent"))
IMPORTABLE, VENDOR = Target("python:mine:agent", "python", "mine:agent"), Target("gpt-5", "openai", "gpt-5")


def make_run(*targets: Target, judge: Target | None = None) -> Run:
    return Run("r1", Plan("mine", None, targets, judge=judge), "stopped", "2026-01-02T03:04:05Z", 5, 2)


def test_importable_models_are_resumed_by_a_command() -> None:
    for target in (IMPORTABLE, VENDOR):
        assert format_resume_advice(make_run(target)) == "pramana run --resume r1"
        assert format_resume_call(make_run(target)) == "pramana.resume('r1')"


def test_a_function_of_a_script_is_passed_to_resume_again() -> None:
    for found in (make_run(SCRIPTED), make_run(NESTED), make_run(SCRIPTED, judge=SCRIPTED)):
        assert format_resume_advice(found) == format_resume_call(found) == "pramana.resume('r1', model=function)"


def test_a_judge_function_is_passed_as_judge() -> None:
    assert format_resume_call(make_run(VENDOR, judge=SCRIPTED)) == "pramana.resume('r1', judge=function)"
    assert (
        format_resume_call(make_run(SCRIPTED, judge=NESTED)) == "pramana.resume('r1', model=function, judge=function)"
    )


def test_several_functions_are_passed_to_resume_by_name() -> None:
    assert format_resume_call(make_run(SCRIPTED, NESTED)) == (
        "pramana.resume('r1', models={\"python:__main__:agent\": function, "
        '"python:mine:make.<locals>.agent": function})'
    )
