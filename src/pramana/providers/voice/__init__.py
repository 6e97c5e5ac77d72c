"""Agents that are called: the vocabulary of calls, one file a wire format, and the seams that carry them."""
