"""Checks of a reply's style, as plain functions: `--scorer python:style_checks:is_short`."""

import pramana


def is_short(context: pramana.ScoringContext) -> pramana.Score:
    words = len(context.reply.text.split())
    return pramana.Score(words <= 5, reason=f"{words} words, at most 5 allowed")
