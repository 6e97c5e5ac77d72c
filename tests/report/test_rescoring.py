"""A re-scoring as text: the counts, a bounded number of cases, and how many more there are."""

from pramana.app.rescoring import ChangeCountView, ChangedVerdictView, RescoringView
from pramana.model import Outcome, Plan, Run, Target
from pramana.report.rescoring import render_rescoring


def make_run(models: int = 1) -> Run:
    targets = tuple(Target(f"m{number}", "fake", f"m{number}") for number in range(models))
    return Run("r1", Plan("mine", None, targets), "finished", "2026-01-02T03:04:05Z", 30, 30)


def make_rescoring(changed: int, judged: int = 36) -> RescoringView:
    changes = tuple(
        ChangedVerdictView(
            case_id=f"case-{number}",
            model="m0",
            variant="text",
            repeat=0,
            before=Outcome.PASSED,
            after=Outcome.FAILED,
            reason="It is\nlong. " * 40,
        )
        for number in range(changed)
    )
    counts = (
        ChangeCountView(before=Outcome.PASSED, after=Outcome.FAILED, count=changed - 1),
        ChangeCountView(before=Outcome.FAILED, after=Outcome.PASSED, count=1),
    )
    return RescoringView(
        scoring=1,
        judged=judged,
        changed=changed,
        counts=counts,
        changes=changes,
        kept=0,
        kept_verdicts=(),
        new_verdicts=judged,
        errored=0,
    )


def test_changed_verdicts_are_counted_and_listed() -> None:
    lines = render_rescoring(make_run(), make_rescoring(3)).splitlines()
    assert lines[0] == "3 of 36 verdicts changed: 2 passed -> failed, 1 failed -> passed"
    assert [line[:22] for line in lines[1:]] == [f"  case-{number}: passed -> fa" for number in range(3)]
    assert max(map(len, lines)) < 220


def test_twenty_changes_are_listed_and_the_rest_counted() -> None:
    lines = render_rescoring(make_run(), make_rescoring(25)).splitlines()
    assert (len(lines), lines[-1]) == (22, "  … and 5 more")


def test_changes_name_the_model_if_there_are_several() -> None:
    assert "  case-0 (m0): passed -> failed" in render_rescoring(make_run(2), make_rescoring(2))


def test_a_rescoring_without_judged_replies_says_so() -> None:
    assert render_rescoring(make_run(), make_rescoring(0, judged=0)) == "No reply was scored again."
