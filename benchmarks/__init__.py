"""Slow benchmarks and proofs: each module prints a table of ratios, measured in one run on one machine."""
