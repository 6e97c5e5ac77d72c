"""A support bot, as small as a model can be: a function from prompt to reply."""


def reply(prompt):
    return "30 days, and the label is free." if "return" in prompt else "Yes."
