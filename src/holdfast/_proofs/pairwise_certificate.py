"""The proof of how near a fit of several classes is to optimal."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np

from holdfast._core.arithmetic import MISSED, norm, ratio, solve_scaled
from holdfast._core.loss import Array
from holdfast._core.solution import DualGuess
from holdfast._problems.pairwise import PairwiseProblem
from holdfast._proofs.best_scale import Point, slopes_at_best_scale
from holdfast._proofs.certificate import Certificate, certificate, certified, rounding_at
from holdfast._proofs.pair_constraints import PairConstraint, dual_objective
from holdfast._proofs.pulls import drawn_to, exact_columns, sizes_of_sums

FORSAKEN = 1e-12
"""Pairs whose share of all dual weights is at most this are dropped."""
FLAT = 1e-10
"""A direction with less than this share of the typical curvature counts as flat; `NEARLY` leaves far more curvature."""
NEARLY = 1 - 1e-6
"""How nearly flows are kept orthogonal: at 1, rounding errors along the weight differences could not be routed."""


@certificate.register
def certificate_of_pairs(problem: PairwiseProblem, W: Array, b: Array, dual: DualGuess | None = None) -> Certificate:
    r"""Return the certificate at (W, b) for several classes.

    Dual weights :math:`a_{ik}` make class k feel the pull
    :math:`V_k = \sum_{y_i = k} c_i \sum_l a_{il} x_i - \sum_i c_i a_{ik} x_i`. It is split into flows between classes,
    :math:`V_k = \sum_l Q_{kl}`, :math:`Q_{kl} = -Q_{lk}`, and each pair has to bear its flow as in the binary proof.
    The flow that the noise bears at W is corrected by a flow orthogonal to :math:`w_k - w_l`, so the gap is of second
    order in the error of W. The proof takes two passes over the rows.
    """
    # adding a constant to all classes changes no loss; centring reduces rounding
    W, b = W - W.mean(axis=0), b - b.mean()
    scores = problem.rows.dot(np.ascontiguousarray(W.T))
    t = problem.by_row(problem.scale_table(W))
    if dual is None:
        slopes = slopes_at_best_scale(_PairwiseRay(problem, scores, t, W, b))
        dual = DualGuess(slopes.reshape(t.shape), W, t, problem.sets)
    return proved_by(problem, W, b, problem.loss.value(deficits(problem, scores, b), t), dual)


def deficits(problem: PairwiseProblem, scores: Array, b: Array) -> Array:
    """Return 1 less the lead of each row's own class over every class, shape (n_samples, n_classes)."""
    own = np.take_along_axis(scores + b, problem.labels[:, None], axis=1)
    return np.asarray(1.0 - (own - scores - b))


def proved_by(problem: PairwiseProblem, W: Array, b: Array, losses: Array, dual: DualGuess) -> Certificate:
    """Return the certificate at a centred (W, b); `losses` has one loss for each row, or for each row and class."""
    if losses.ndim == 2:
        losses = np.sum(losses, axis=1, where=problem.labels[:, None] != np.arange(problem.n_classes))
    # the rows of W sum to 0, so the squares of their differences sum to n_classes times the squares of W
    objective = float(problem.weights @ losses) + problem.alpha * float(np.sum(np.square(W)))
    bound, proof = dual_bound(problem, dual)
    rounding = partial(rounding_at, problem, W, b)
    return certified(objective, bound, problem.floor, rounding, problem.norm_bound(), proof)


class _PairwiseRay:
    """The objective at (r W, b) as a function of x = (r, b_2 - b_1, b_3 - b_1, ...)."""

    def __init__(self, problem: PairwiseProblem, scores: Array, t: Array, W: Array, b: Array):
        self.problem = problem
        self.leads = scores[np.arange(len(scores)), problem.labels][:, None] - scores
        self.t = t
        self.ridge, self.enough = 2 * problem.ridge(W), problem.enough
        self.start = np.append(1.0, b[1:] - b[0]) if problem.fit_intercept else np.ones(1)
        self.weights = np.where(problem.labels[:, None] == np.arange(problem.n_classes), 0.0, problem.weights[:, None])

    def _handicaps(self, x: Array) -> Array:
        """Return b_y - b_k for every row and class."""
        b = np.append(0.0, x[1:]) if len(x) > 1 else np.zeros(self.problem.n_classes)
        return b[self.problem.labels][:, None] - b

    def _deficit(self, x: Array) -> Array:
        return 1.0 - x[0] * self.leads - self._handicaps(x)

    def _gather(self, table: Array) -> Array:
        """Return for every class but the first: its own rows' sum over the table, less the sum of its column."""
        problem = self.problem
        own = np.bincount(problem.labels, table.sum(axis=1), problem.n_classes)
        return (own - table.sum(axis=0))[1:] if problem.fit_intercept else np.zeros(0)

    def evaluate(self, x: Array) -> Point:
        parts = self.problem.loss.derivatives(self._deficit(x).ravel(), (x[0] * self.t).ravel())
        losses, slopes, scale_slopes, *bends = (part.reshape(self.t.shape) for part in parts)
        weighted = self.weights * slopes
        along = float(np.sum(self.weights * (self.t * scale_slopes)) - np.vdot(self.leads, weighted))
        value = float(np.vdot(self.weights, losses)) + 0.5 * self.ridge * x[0] ** 2
        gradient = np.append(along + self.ridge * x[0], -self._gather(weighted))
        return Point(value, gradient, slopes, (bends[0], bends[1], bends[2]))

    def hessian(self, uu: Array, ut: Array, tt: Array) -> Array:
        c, t, leads = self.weights, self.t, self.leads
        H = np.zeros((len(self.start), len(self.start)))
        H[0, 0] = np.sum(c * (uu * leads**2 - 2 * ut * leads * t + tt * t * t)) + self.ridge
        if self.problem.fit_intercept:
            H[0, 1:] = H[1:, 0] = self._gather(c * (uu * leads - ut * t))
            between = np.array([(c * uu)[own].sum(axis=0) for own in self.problem.members])
            between += between.T
            H[1:, 1:] = (np.diag(between.sum(axis=1)) - between)[1:, 1:]
        return H

    def moved_slopes(self, slopes: Array, step: Array, uu: Array, ut: Array) -> Array:
        return slopes + ut * (step[0] * self.t) - uu * (step[0] * self.leads + self._handicaps(step))


def dual_bound(problem: PairwiseProblem, guess: DualGuess) -> tuple[float, Array]:
    """Make the guess feasible; return its dual objective and how strongly each row pulls at each class."""
    C, c = problem.n_classes, problem.weights
    a = _balanced_slopes(problem, guess)
    R = -c[:, None] * a
    R[np.arange(len(R)), problem.labels] = -R.sum(axis=1)
    V = problem.rows.transpose_dot(R).T
    budgets = c[:, None] * problem.loss.dual_scale(a.ravel()).reshape(a.shape)
    absorbed = _absorbed(problem, guess, budgets)
    flows = _flows(problem, guess, V, budgets, c[:, None] * a, absorbed)
    sizes = sizes_of_sums(problem, c * a.sum(axis=1))
    # with noise even a column of zeros has rounding errors, as large as those of the other columns
    exact = problem.sets.exact_features(problem.rows.n_features)
    allowed = MISSED * sizes + np.where(exact, 0.0, 1e-15 * sizes.max())
    if np.any(np.abs(V - _gathered(flows, C)) > allowed):
        return 0.0, 0.0 * R
    constraints = [
        _constraint(problem, guess, a, pair, target, None if problem.sets.is_isotropic else sizes, absorbed[pair])
        for pair, target in flows.items()
    ]
    bound, share = dual_objective(problem.loss, constraints, lambda share: problem.dual_value(share * a))
    return bound, share * R


def _balanced_slopes(problem: PairwiseProblem, guess: DualGuess) -> Array:
    """Return the guess's dual weights a, made feasible: class flows balance, no class pulls in an exact direction."""
    C, c, labels = problem.n_classes, problem.weights, problem.labels
    a = problem.admissible(guess.slopes)
    sent = np.array([(c[own, None] * a[own]).sum(axis=0) for own in problem.members])
    # pairs too far apart to matter have no budgets to bear their flows
    a = a * (sent + sent.T > FORSAKEN * sent.sum())[labels]
    if problem.alpha == 0:
        Z = exact_columns(problem)
        if Z is not None:
            # no budget can bear a pull in an exact direction
            a = drawn_to(a, _ExactPulls(problem, Z), np.zeros(C * Z.shape[1]))
    if problem.fit_intercept:
        # last, because it only multiplies weights and keeps them feasible
        a = a * _circulating(np.array([(c[own, None] * a[own]).sum(axis=0) for own in problem.members]))[labels]
    return a


def _constraint(
    problem: PairwiseProblem,
    guess: DualGuess,
    a: Array,
    pair: tuple[int, int],
    target: Array,
    sizes: Array | None,
    absorbed: Array,
) -> PairConstraint:
    """Return the constraint of a pair: its rows have to absorb the target pull."""
    k, other = pair
    rows = np.concatenate([problem.members[k], problem.members[other]])
    column = np.where(problem.labels[rows] == k, other, k)
    return PairConstraint(
        partial(problem.pair_sets, rows, k),
        problem.weights[rows],
        a[rows, column],
        target,
        guess.scale[rows, column],
        guess.direction[k] - guess.direction[other],
        2 * problem.alpha / problem.n_classes,
        sizes,
        absorbed,
    )


class _ExactPulls(NamedTuple):
    """The pulls of dual weights, shape (n_samples, n_classes), at each class in directions Z without noise."""

    problem: PairwiseProblem
    Z: Array

    def _sent(self, a: Array) -> Array:
        """Return the pull of each row on each class: -a on a rival, and the sum of its a on its own class."""
        foreign = self.problem.labels[:, None] != np.arange(self.problem.n_classes)
        return np.where(foreign, -a, a.sum(axis=1)[:, None]) * self.problem.weights[:, None]

    def sums(self, a: Array) -> Array:
        return np.ravel(self._sent(a).T @ self.Z)

    def sizes(self, a: Array) -> Array:
        return np.ravel(np.abs(self._sent(a)).T @ np.abs(self.Z))

    def moves(self, potential: Array) -> Array:
        leads = self.Z @ potential.reshape(self.problem.n_classes, -1).T
        return np.take_along_axis(leads, self.problem.labels[:, None], axis=1) - leads

    def potential(self, room: Array, missed: Array) -> Array:
        C, k = self.problem.n_classes, self.Z.shape[1]
        H = np.zeros((C, k, C, k))
        for i, own in enumerate(self.problem.members):
            for j in set(range(C)) - {i}:
                gram = (self.Z[own] * (self.problem.weights[own] * room[own, j])[:, None]).T @ self.Z[own]
                H[i, :, i] += gram
                H[j, :, j] += gram
                H[i, :, j] -= gram
                H[j, :, i] -= gram
        return solve_scaled(H.reshape(C * k, C * k), missed)


def _circulating(flow: Array) -> Array:
    """Return factors in [0, 1] on flow[k, l] >= 0, sent from k to l, so that classes receive as much as they send."""
    kept = flow
    for _ in range(30):
        surplus = kept.sum(axis=1) - kept.sum(axis=0)
        if np.all(np.abs(surplus) <= 1e-15 * (kept.sum(axis=1) + kept.sum(axis=0))):
            return ratio(kept, flow)
        # a class that sends too much has its flows cut in proportion; potentials determine by how much
        downhill = 0.5 * (kept + kept.T)
        for _ in range(3):
            potential = _potentials(np.diag(downhill.sum(axis=1)) - downhill, surplus)
            drop = potential[:, None] - potential
            downhill = np.where(drop > 0, kept, kept.T)
        kept = kept * (1 - np.clip(drop, 0.0, 1.0))
    return ratio(np.minimum(kept, kept.T), flow)


def _potentials(laplacian: Array, supply: Array) -> Array:
    """Return potentials whose differences, times the conductances in the Laplacian, are flows that carry the supply."""
    # adding a constant to all potentials changes no flow: a term for their mean makes the matrix regular
    return solve_scaled(laplacian + np.trace(laplacian) / len(laplacian) ** 2, supply)


def _gathered(flows: dict[tuple[int, int], Array], n_classes: int) -> Array:
    """Return the total flow sent by each class, shape (n_classes, n_features)."""
    out = np.zeros((n_classes, len(next(iter(flows.values())))))
    for (k, other), flow in flows.items():
        out[k] += flow
        out[other] -= flow
    return out


def _absorbed(problem: PairwiseProblem, guess: DualGuess, budgets: Array) -> dict[tuple[int, int], Array]:
    """Return the pull that every pair's sets bear along the guess's direction."""
    sets = problem.sets if guess.sets is None else guess.sets
    bearing = [sets.take(own).against_labels(np.ones(len(own))) for own in problem.members]
    absorbed = {}
    for k, other in combinations(range(problem.n_classes), 2):
        difference = guess.direction[k] - guess.direction[other]
        ours = bearing[k].adjoint(difference, budgets[problem.members[k], other])
        absorbed[k, other] = ours - bearing[other].adjoint(-difference, budgets[problem.members[other], k])
    return absorbed


def _flows(
    problem: PairwiseProblem,
    guess: DualGuess,
    V: Array,
    budgets: Array,
    pulls: Array,
    absorbed: dict[tuple[int, int], Array],
) -> dict[tuple[int, int], Array]:
    """Return a flow for every pair, near the pull that its noise bears along the guess's direction; the flows sum to V.

    `pulls` are the dual weights times the row weights, from which V is computed.
    """
    C, W = problem.n_classes, guess.direction
    pairs = list(combinations(range(C), 2))
    incidence = np.zeros((len(pairs), C))
    flows = np.zeros((len(pairs), W.shape[1]))
    stiffness, straight, pulled = np.zeros((3, len(pairs)))
    for p, (k, other) in enumerate(pairs):
        incidence[p, k], incidence[p, other] = 1.0, -1.0
        difference = W[k] - W[other]
        for i, j, sign in ((k, other, 1.0), (other, k, -1.0)):
            own = problem.members[i]
            shares, t = ratio(budgets[own, j], guess.scale[own, j]), problem.own_sets[i].support(sign * difference)
            stiffness[p] += float(np.sum(shares))
            straight[p] += float(np.sum(shares * np.square(ratio(t, guess.scale[own, j]))))
            pulled[p] += float(np.sum(pulls[own, j]))
        flows[p] = absorbed[k, other] + 2 * problem.alpha / C * difference
    stiffness += 2 * problem.alpha / C
    if problem.alpha == 0:
        # nothing can flow along features without noise
        differences = incidence @ np.where(problem.sets.exact_features(W.shape[1]), 0.0, W)
        unit = ratio(differences, norm(differences, axis=1)[:, None])
        missing = V - incidence.T @ flows
        flows += _routed(missing, incidence, stiffness, NEARLY * ratio(straight, stiffness), unit)
    # the second round removes the first one's rounding; the third routes the rest in proportion to the
    # pulls: pairs with a = 1 have no budgets, but at a smaller multiple of a they have
    for conductance in (stiffness, stiffness, pulled):
        laplacian = (incidence * conductance[:, None]).T @ incidence
        flows += conductance[:, None] * (incidence @ _potentials(laplacian, V - incidence.T @ flows))
    return dict(zip(pairs, flows, strict=True))


def _routed(missing: Array, incidence: Array, stiffness: Array, straight: Array, unit: Array) -> Array:
    """Return flows that sum to `missing`; where `straight` is 1 they are orthogonal to the `unit` vectors, else partly.

    They minimise the sum of squares over stiffness: the flow of a pair is its stiffness times the difference of two
    potentials, less its part along the unit vector. The potentials solve a Laplacian system, by conjugate gradients.
    """

    def flow(potential: Array) -> Array:
        difference = incidence @ potential
        along = straight * np.einsum("pj,pj->p", difference, unit)
        return stiffness[:, None] * (difference - along[:, None] * unit)

    # only proportions matter; a class cannot be served if the stiffness of all its pairs is negligible
    stiffness = ratio(stiffness, np.max(stiffness))
    scale = (np.abs(incidence).T @ stiffness)[:, None]
    typical = np.where(scale > 1e-30, scale, 0.0)
    scale = np.where(scale > 1e-30, scale, np.inf)
    potential, residual = np.zeros_like(missing), missing
    best, left = potential, float(norm(missing))
    wanted = 1e-6 * left
    direction = residual / scale
    progress = float(np.vdot(residual, direction))
    for _ in range(300):
        step = incidence.T @ flow(direction)
        curvature = float(np.vdot(direction, step))
        # in flat directions, such as equal potentials, the curvature is mere rounding and steps would be unbounded
        if left <= wanted or curvature <= FLAT * float(np.vdot(direction, typical * direction)):
            break
        potential = potential + progress / curvature * direction
        residual = residual - progress / curvature * step
        before, progress = progress, float(np.vdot(residual, residual / scale))
        direction = residual / scale + progress / before * direction
        if float(norm(residual)) < left:
            best, left = potential, float(norm(residual))
    return flow(best)
