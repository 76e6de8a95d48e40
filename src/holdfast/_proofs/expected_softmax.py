"""The proof for several classes at once under noise: by the ridge, from tangents of the rows' losses."""

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
"""Share of the objective that intercepts which are not quite the best may cost the bound."""
MOST_STEPS = 20
"""Newton steps for the intercepts; where a solver has ended one or two are enough."""
UNFELT = 1e-2
"""The same as a share of what the weights, which are not quite the best either, cost it."""
QUICK = 1e-2
"""A step that leaves less than this share of the imbalance had a good Hessian."""


@certificate.register
def certificate_of_softmax(
    problem: ExpectedSoftmaxProblem, W: Array, b: Array, dual: DualGuess | None = None
) -> Certificate:
    r"""Return what is proved at (W, b) about expected losses of all classes at once.

    Tangents of the rows' losses and of the noise's deviations, with the ridge, are a quadratic minorant of the objective. Its
    minimum lies :math:`|\nabla_W P|^2 / (4\alpha)` below the objective; to be deducted is what the remaining slopes in the
    intercepts can earn over the range that the best ones must lie in. Three passes over the rows, one more for each step that
    the intercepts take.
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
        # steps so near the best intercepts share one Hessian, unless they turn out not to be that near
        bend = here.bend_of_intercepts() if bend is None else bend
        step = solve_scaled(bend, -here.pulls.sum(axis=0))
        # one number added to all intercepts changes nothing
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
        """How far the rows' pulls at the intercepts, which the ridge does not hold, are from adding up to 0."""
        return float(np.sum(np.abs(self.pulls.sum(axis=0)))) if self.problem.fit_intercept else 0.0

    def cost_of_intercepts(self, farthest: float) -> float:
        """Return what intercepts that differ by `farthest` at most can earn."""
        # pulls add up to 0 over the classes: of all of them half is up, half down
        return 0.5 * self.imbalance * (farthest + float(np.ptp(self.b))) if self.imbalance > 0 else 0.0

    @cached_property
    def lowest(self) -> float:
        """The minimum over all weights, if no other intercepts were better."""
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
        """Return the minimum over all weights, and over intercepts up to the farthest that may be optimal."""
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
    """Return how much the best intercepts of two classes can differ: a row's loss is at least any rival's lead over it."""
    if not problem.fit_intercept:
        return 0.0
    c, weights = problem.weights, problem.class_weights()
    # the ridge bounds W, and the difference of two rows of W is at most the root of 2 times as long
    reach = np.sqrt(2 * objective / problem.alpha)
    rows_norm = np.sqrt(float(np.sum(problem.rows.square_sums(c))) * float(c.sum()))
    return float((objective + reach * rows_norm) / weights.min())
