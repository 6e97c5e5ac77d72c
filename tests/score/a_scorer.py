"""A scorer in a module, as a user writes it."""

import pramana


@pramana.scorer(version="2", pass_at=0.5)
def politeness(context: pramana.ScoringContext) -> float:
    return 1.0 if "please" in context.reply.text.lower() else 0.0
