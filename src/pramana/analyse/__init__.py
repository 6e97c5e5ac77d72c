"""Stage 5, analyse: numbers in, findings out. Pure functions on outcomes and times: no files, no clock, no chance.

`Tally` counts a run's results as they come and gives its summary; `exit_code` decides what the program says with its
exit code; `compare` says which of two runs is better, or that nobody can know yet. What each number is sure of is
worked out in `intervals`.
"""

from pramana.analyse.comparison import Comparison, compare
from pramana.analyse.gate import exit_code
from pramana.analyse.summary import Summary, Tally

__all__ = ["Comparison", "Summary", "Tally", "compare", "exit_code"]
