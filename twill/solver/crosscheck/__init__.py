"""A second opinion in CP-SAT on schedules that the solver calls optimal.

The formulation is one of its own: starts as k I + p, intervals on one period, rectangles of address by time. It shares neither
constraint code nor encoding with `twill.solver`, so that a mistake has to be made twice to go unnoticed. Needs the extra ``crosscheck``.
"""

from twill.solver.crosscheck.engine import Witness
from twill.solver.crosscheck.minimise import Optimum, minimise
from twill.solver.crosscheck.report import CrosscheckReport, crosscheck

__all__ = ["CrosscheckReport", "Optimum", "Witness", "crosscheck", "minimise"]
