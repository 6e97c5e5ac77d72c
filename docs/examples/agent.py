"""Two versions of an agent that answers questions about a shop."""


def first(prompt):
    if "return" in prompt:
        return "You have 30 days."
    return "Yes, we ship there."


def second(prompt):
    if "label" in prompt:
        return "No, the return label is free."
    return first(prompt)
