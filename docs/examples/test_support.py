import pramana


def bot(prompt):
    if "return" in prompt:
        return "You have 30 days, and the label is free."
    return "Yes, we ship anywhere."


def test_bot(pramana_evaluate):
    report = pramana_evaluate("support.jsonl", model=bot)
    report.assert_pass_rate(0.9)


@pramana.parametrize("support.jsonl", selection=pramana.Selection(tags=("returns",)))
def test_returns(case, pramana_evaluate):
    pramana_evaluate(case, model=bot).assert_passed()
