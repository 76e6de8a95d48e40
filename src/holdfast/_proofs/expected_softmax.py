"""The proof for several classes at once under noise: tangents of the rows' losses and the ridge bound the objective."""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np

from holdfast._core.arithmetic import solve_scaled
from holdfast._core.loss import Array
from holdfast._core.solution import DualGuess
from holdfast._problems.expected_softmax import ExpectedSoftmaxProblem
from holdfast._proofs.certificate import Certificate, certificate, certified, rounding_at
from holdfast._proofs.pairwise_certificate import deficits

UNSEEN = 1e-11
"""Share of the objective that the bound may lose to suboptimal intercepts."""
MOST_STEPS = 20
"""Largest number of Newton steps for the intercepts; at a solver's result one or two suffice."""
UNFELT = 1e-2
"""Share of the gap, due mainly to suboptimal weights, that the bound may lose to suboptimal intercepts."""
QUICK = 1e-2
"""If a step leaves less than this share of the imbalance, its Hessian is kept for the next step."""


@certificate.register
def certificate_of_softmax(
    problem: ExpectedSoftmaxProblem, W: Array, b: Array, dual: DualGuess | None = None
) -> Certificate:
    r"""Return the certificate at (W, b) for expected losses of all classes at once.

    Tangents of the rows' losses and of the noise's deviations, with the ridge, form a quadratic minorant of the
    objective. Its minimum lies :math:`|\nabla_W P|^2 / (4\alpha)` below the objective. The most that the remaining
    slopes in the intercepts could gain, over the range where the best intercepts must lie, is deducted. The proof takes
    three passes over the rows, and one more for each step of the intercepts.
    """
    W, b = W - W.mean(axis=0), b - b.mean()
    scores, t = problem.rows.dot(np.ascontiguousarray(W.T)), problem.by_row(problem.scale_table(W))
    rounding = partial(rounding_at, problem, W, b)
    here = _Minorant(problem, scores, DualGuess(np.zeros(0), W, t, problem.sets), b)
    objective = float(problem.weights @ (here.values + here.excess)) + problem.alpha * float(np.sum(np.square(W)))
    if problem.alpha == 0:
        return certified(objective, -np.inf, problem.floor, rounding, problem.norm_bound())
    farthest = _farthest_intercepts(problem, objective)
    if dual is not None:
        here = _Minorant(problem, scores, dual, b)
    bend = None
    for _ in range(MOST_STEPS):
        if here.cost_of_intercepts(farthest) <= max(UNSEEN * objective, UNFELT * (objective - here.lowest)):
            break
        # near the best intercepts one Hessian serves several steps; it is renewed after a step that gains little
        bend = here.bend_of_intercepts() if bend is None else bend
        step = solve_scaled(bend, -here.pulls.sum(axis=0))
        # adding a constant to all intercepts changes no loss
        there = _Minorant(problem, scores, here.guess, here.b - step + step.mean(), here.log_shares)
        if not there.imbalance < here.imbalance:
            break
        bend = bend if there.imbalance < QUICK * here.imbalance else None
        here = there
    return certified(objective, here.bound(farthest), problem.floor, rounding, problem.norm_bound())


class _Minorant:
    """Tangents of all losses at the scores of W, at intercepts b and at the guess's scales."""

    def __init__(
        self,
        problem: ExpectedSoftmaxProblem,
        scores: Array,
        guess: DualGuess,
        b: Array,
        log_shares: Array | None = None,
    ):
        self.problem, self.guess, self.b, labels = problem, guess, b, problem.labels
        self.u, self.t = deficits(problem, scores, b), guess.scale
        u, t = (problem.rivals(part, labels) for part in (self.u, self.t))
        self.log_shares = problem.loss.log_shares(u, t, log_shares)
        self.values, *slopes, self.excess = problem.loss.tangent(u, t, self.log_shares)
        self.by_u, self.by_t = (problem.weights[:, None] * problem.among_all(part, labels) for part in slopes)
        self.pulls = -self.by_u
        self.pulls[np.arange(len(labels)), labels] = self.by_u.sum(axis=1)

    @cached_property
    def imbalance(self) -> float:
        """How far the rows' pulls on the intercepts are from summing to 0; the ridge does not bear them."""
        return float(np.sum(np.abs(self.pulls.sum(axis=0)))) if self.problem.fit_intercept else 0.0

    def cost_of_intercepts(self, farthest: float) -> float:
        """Return how much intercepts that differ by at most `farthest` could lower the minorant."""
        # pulls sum to 0 over the classes, so upward and downward pulls are equal in total
        return 0.5 * self.imbalance * (farthest + float(np.ptp(self.b))) if self.imbalance > 0 else 0.0

    @cached_property
    def lowest(self) -> float:
        """The minorant's minimum over all weights, with the intercepts fixed."""
        problem, guess = self.problem, self.guess
        bearing = problem if guess.sets is None else problem.having(sets=guess.sets)
        outward = bearing.outward(guess.direction, self.by_t)[0]
        missed = problem.rows.transpose_dot(self.pulls).T - outward
        # the own class's entries of both slopes are 0
        at_zero = float(problem.weights @ self.values) - float(
            np.vdot(self.by_u, self.u - 1.0) + np.vdot(self.by_t, self.t)
        )
        return at_zero - float(np.sum(np.square(missed))) / (4 * problem.alpha)

    def bound(self, farthest: float) -> float:
        """Return a lower bound over all weights, and over all intercepts that may be optimal."""
        return self.lowest - self.cost_of_intercepts(farthest)

    def bend_of_intercepts(self) -> Array:
        """Return the Hessian of the losses in the intercepts."""
        problem = self.problem
        _, _, bends = problem.derivatives(self.u, self.t)
        assert bends.shared is not None
        H = np.diag(bends.uu.sum(axis=0))
        for k, own in enumerate(problem.members):
            row = bends.uu[own].sum(axis=0)
            H[k] -= row
            H[:, k] -= row
            H[k, k] += row.sum()
        moves = bends.shared[0].copy()
        moves[np.arange(len(moves)), problem.labels] = -moves.sum(axis=1)
        return np.asarray(H - moves.T @ moves)


def _farthest_intercepts(problem: ExpectedSoftmaxProblem, objective: float) -> float:
    """Bound the difference of two best intercepts: a row's loss is at least any rival's lead over its own class."""
    if not problem.fit_intercept:
        return 0.0
    c, weights = problem.weights, problem.class_weights()
    # the ridge bounds |W|; the difference of two rows of W is at most sqrt(2) |W| long
    reach = np.sqrt(2 * objective / problem.alpha)
    rows_norm = np.sqrt(float(np.sum(problem.rows.square_sums(c))) * float(c.sum()))
    return float((objective + reach * rows_norm) / weights.min())
