"""Stage 5, analyse: numbers in, findings out. Pure functions on outcomes and times: no files, no clock, no chance.

`summary.Tally` counts a run's results as they come and gives its summary; `gate.decide_exit` decides what the program
says with its exit code; `comparison.compare` says which of two runs is better, or that nobody can know yet. What each
number is sure of is worked out in `intervals`. Nothing is imported here: `pramana runs` needs only `rates` and names.
"""
