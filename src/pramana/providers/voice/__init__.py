"""Voice agents: the vocabulary of calls, one file per wire format, and the seams that carry calls."""
