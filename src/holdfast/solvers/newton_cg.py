"""Newton's method with conjugate gradients: a few products with the Hessian per step, then an exact plane search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast._core.problem import Composite, LocalModel, Problem
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.tolerances import POLISHED
from holdfast.solvers.plane_search import best_along

WIDE, FEW = 500, 40
"""With more features than `WIDE`, products with the Hessian cost less than factorising a sample of it if rows are
sparse, or if there are fewer than `FEW` dense rows per feature, so that the sample would hold most rows."""
LOOSE = 0.3
"""Share of the gradient that a step may leave."""
SPARE = 0.3
"""Share of the tolerated gap at which conjugate gradients stop: the search over the plane does the rest."""
SETTLED = 5e-3
"""Relative improvement of a step below which the preconditioner is kept for the next one."""
TRUSTED = 0.5
"""A quadratic model that promises more than this share of all that could be gained is not trusted any further."""
MANY_PRODUCTS = 12
"""After a step with more products than this the preconditioner is renewed."""
HARD = 60
"""After a step with more products than this, products are exact: where many are needed, rounding does harm."""


class NewtonCG(Solver):
    """Newton steps by preconditioned conjugate gradients, each followed by the best scale, step length and intercepts.

    Each product with the Hessian costs a pass over the data. No matrix of the Hessian's size is formed, which suits
    wide data.

    Parameters
    ----------
    max_products : int, default=300
        Most products with the Hessian in a step.
    """

    name = "newton_cg"
    needs = (Composite,)
    passes_a_step = 15

    def __init__(self, max_products: int = 300):
        self.max_products = max_products

    def preference(self, work: dict[str, Any]) -> float:
        if work.get("has_kinks", False) and work.get("is_wide", False):
            return 4.0
        n, d = work["n_samples"], work["n_features"]
        return 1.5 if d > WIDE and (2 * work["n_entries"] <= n * d or n < FEW * d) else 0.7

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        view = problem.view(Composite)
        assert view is not None
        here = view.at(np.array(start, dtype=np.float64))
        status, n_iter, promise, is_stale, precondition = Status.ITERATION_LIMIT, 0, 1.0, True, None
        used = 0
        exact = tol <= 0 and not rough  # products are exact if the solve goes on to rounding
        for n_iter in range(1, max_iter + 1):
            gap = here.gap(here.gradient)
            if here.value <= view.enough or (gap <= tol and not rough):
                status = Status.SOLVED
                break
            if is_stale or precondition is None:
                precondition = here.preconditioner()
            # Eisenstat and Walker: the closer to the optimum, the more exact the step, so that convergence stays
            # superlinear
            loose = min(LOOSE, np.sqrt(promise))
            # the objective cannot fall below `enough`: a model that promises more has left the region where it holds
            most = TRUSTED * (here.value - view.enough)
            step, moves, n_products = self._step(here, precondition, loose, 0.0 if rough else SPARE * tol, most, exact)
            used += n_products
            scale = max(abs(here.value), abs(view.enough))
            promise = -0.5 * float(here.gradient @ step) / scale
            ahead = f"estimated gap {gap:.2e}, next step {promise:.2e} after {n_products} products"
            report(f"newton-cg {n_iter}: objective {here.value:.10g}, {ahead}")
            if promise <= POLISHED:
                status = Status.SOLVED
                break
            # more accuracy in the search than in the step would be wasted; no gain exceeds the whole objective
            share = (1e-2 if rough else 1e-4) * min(promise, 1.0)
            found = best_along(here, step, share if tol > 0 else 0.0, moves=moves)
            gain = (here.value - found.value) / scale
            if not gain > 0:
                # nothing gained: at a promise of 1e-9 rounding hides the gain, above that the model is wrong
                if promise <= 1e-9 or exact:
                    status = Status.SOLVED if promise <= 1e-9 else Status.STALLED
                    break
                found, exact = view.at(here.parameters), True
            is_stale, exact = gain > SETTLED or n_products > MANY_PRODUCTS, exact or n_products > HARD
            here = found
            if rough and promise <= tol:
                status = Status.SOLVED
                break
            if n_iter + used // self.passes_a_step >= max_iter:
                break
        # scores updated by quick products carry their rounding errors
        value = here.value if exact or rough else view.at(here.parameters).value
        return Solution(here.parameters, status, value, n_iter, self.name)

    def _step(
        self,
        here: LocalModel,
        precondition: Callable[[Array], Array],
        loose: float,
        tol: float,
        most: float,
        exact: bool = True,
    ) -> tuple[Array, Array | None, int]:
        """Return a step p with H p close to -gradient, the change of the scores along p, and the number of products.

        Conjugate gradients end when the residual is the share `loose` of the gradient, when as a gradient it would mean
        a gap within `tol`, or when the promised gain exceeds `most` and so cannot be trusted. Products need not be
        `exact`, since the next step starts from an exact gradient.
        """
        residual = -here.gradient
        direction = scaled = precondition(residual)
        step, moves = np.zeros_like(residual), None
        square = float(residual @ scaled)
        enough, n_products, promised = loose**2 * square, 0, 0.0
        for n_products in range(1, self.max_products + 1):
            image, along = here.product(direction, exact=exact)
            bend = float(direction @ image)
            if not bend > 0:
                # flat to rounding: only a descent direction is known
                return (step, moves, n_products) if n_products > 1 else (scaled, along, n_products)
            step = step + (square / bend) * direction
            moves = (square / bend) * along if moves is None else moves + (square / bend) * along
            residual = residual - (square / bend) * image
            scaled = precondition(residual)
            before, square = square, float(residual @ scaled)
            promised += 0.5 * before**2 / bend
            if square <= enough or promised > most or here.gap(residual) <= tol:
                break
            direction = scaled + (square / before) * direction
        return step, moves, n_products
