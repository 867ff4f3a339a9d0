"""The same problem stated for cvxpy, to check the exact answer: as a mixed-integer program, and in the paper's form.

The paper's quadratic form (minimise the squared differences from the mean) is not the same problem over whole numbers:
t = [3, 1, 1, 1], M = 16 gives it 6.0 where 5.0 can be had.
"""

from collections.abc import Callable
from typing import Any

import cvxpy
import numpy as np

from greyhound.mitigate.microbatches import PlanError, Request, Split, even_split, makespan


def _variables(request: Request) -> tuple[Any, Any, list[Any]]:
    units = cvxpy.Variable(len(request.times), integer=True)
    loads = cvxpy.multiply(units * request.multiple, np.asarray(request.times))
    bounds = [units >= 1, cvxpy.sum(units) == request.total // request.multiple]
    if request.upper is not None:
        bounds.append(units * request.multiple <= np.asarray(request.upper))
    return units, loads, bounds


def _solve(request: Request, objective: Callable[[Any], Any], solvers: tuple[str, ...]) -> Split:
    usable = [name for name in solvers if name in cvxpy.installed_solvers()]
    if not usable:
        raise PlanError(f"none of the solvers {', '.join(solvers)} is installed: pip install 'greyhound[plan]'")
    units, loads, bounds = _variables(request)
    problem = cvxpy.Problem(cvxpy.Minimize(objective(loads)), bounds)
    try:
        problem.solve(solver=usable[0])
    except cvxpy.error.SolverError as error:
        raise PlanError(f"{usable[0]} found no answer: {error}") from None
    if units.value is None:
        raise PlanError(f"{usable[0]} found no answer: {problem.status}")
    counts = tuple(int(count) * request.multiple for count in np.rint(units.value))
    even = makespan(request.times, even_split(request))
    return Split(counts, makespan(request.times, counts), even)


def milp(request: Request) -> Split:
    """Mixed-integer linear program (HiGHS); PlanError if it can't be solved."""
    return _solve(request, cvxpy.max, ("HIGHS", "SCIP"))


def quadratic(request: Request) -> Split:
    """The paper's form; PlanError if it can't be solved."""
    groups = len(request.times)
    return _solve(request, lambda loads: cvxpy.sum_squares(loads - cvxpy.sum(loads) / groups), ("ECOS_BB", "SCIP"))
