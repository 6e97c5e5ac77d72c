import agent


def test_agent(pramana_evaluate):
    pramana_evaluate("support.jsonl", model=agent.second).assert_pass_rate(0.9)
