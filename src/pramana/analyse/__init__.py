"""Stage 5, analyse: outcomes and times in, findings out. Pure functions: no files, no clock, no randomness.

`summary.ResultTally` counts a run's results as they arrive and returns its summary; `gate.decide_exit` chooses the exit
code; `comparison.compare` decides which of two runs is better, or that the evidence is inconclusive. `intervals` holds
the confidence intervals and tests. Nothing is imported here: `pramana runs` needs only `rates` and names.
"""
