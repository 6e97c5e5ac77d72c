"""What judges a reply with more than its text: a case and its reply go in, one check comes out.

A scorer that cannot judge says `unscored` and what to do, never `failed`.
"""
