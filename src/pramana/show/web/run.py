"""One run: how far it is, what it amounts to, and its results."""
