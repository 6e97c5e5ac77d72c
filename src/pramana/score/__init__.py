"""Stage 3, score: checks that need more than a reply's text. A case and its reply go in, checks come out.

A scorer that cannot judge returns `unscored` with what to do about it, never `failed`.
"""
