"""A problem as a cone program, if its loss and its sets have conic forms."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from holdfast._core.arithmetic import ratio
from holdfast._core.loss import Array
from holdfast._core.programs import ConeProgram, LinearProgram
from holdfast._core.row_forms import above_absolute
from holdfast._core.solution import DualGuess
from holdfast._problems.margin_scale import MarginScaleProblem

LINEAR = {"zero", "nonnegative"}


def _cones(problem: MarginScaleProblem) -> set[str] | None:
    """Return the kinds of cones of the loss and the sets, None if one of these has no conic form."""
    shape = problem.loss.epigraph()
    if shape is None or problem.tilt is not None or problem.push is not None:
        return None
    support = problem.sets.take(slice(0, 1)).support_program(problem.rows.n_features)
    return None if support is None else {kind for kind, *_ in shape.cones} | {kind for kind, *_ in support.cones}


def is_conic(problem: MarginScaleProblem) -> bool:
    """Return whether the loss and the sets have conic forms."""
    return _cones(problem) is not None


def is_linear(problem: MarginScaleProblem) -> bool:
    """Return whether the problem has a conic form whose cones are all linear."""
    cones = _cones(problem) if problem.alpha == 0 else None
    return cones is not None and cones <= LINEAR


@MarginScaleProblem.seen_as(LinearProgram, is_linear)
def linear_program(problem: MarginScaleProblem) -> LinearProgram:
    """Return the cone program, whose cones are all linear."""
    return LinearProgram(**vars(cone_program(problem)))


@MarginScaleProblem.seen_as(ConeProgram, is_conic)
def cone_program(problem: MarginScaleProblem) -> ConeProgram:
    r"""Return the problem with variables (w, b, extra variables of the supports, of the penalty, of the losses row by row).

    Each row contributes the cones of its loss's epigraph, whose t is a row of :class:`SupportProgram`; a penalty
    other than the ridge is a price or a limit on :math:`z \ge |w|`. With the multipliers :math:`\lambda` of the lines
    :math:`G_u u + \dots` of its epigraph, a row's dual weight is the slope in u of its share of the Lagrangian,
    cost_u - :math:`G_u^\top \lambda / c`.
    """
    shape, d, penalty = problem.loss.epigraph(), problem.rows.n_features, problem.penalty
    supports = problem.sets.support_program(d)
    assert shape is not None
    assert supports is not None
    n, k = problem.rows.n_samples, len(shape.cost) - 2
    first_support = problem.n_parameters
    first_size = first_support + supports.T.shape[1] - d
    first_extra = first_size + (0 if penalty is None else d)
    size = first_extra + n * k

    def pick(columns: Any) -> sparse.csr_array:
        return sparse.csr_array((np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), size))

    def placed(matrix: sparse.csr_array, first: int) -> sparse.csr_array:
        """Return a matrix over (w, z) as one over all variables, z beginning at `first`."""
        return sparse.csr_array(matrix @ pick([*range(d), *range(first, first + matrix.shape[1] - d)]))

    X = sparse.vstack([sparse.csr_array(block) for _, block in problem.rows.blocks()], format="csr")
    scores = X @ pick(range(d)) + (pick([d] * n) if problem.fit_intercept else sparse.csr_array((n, size)))
    deficit = sparse.diags_array(-problem.signs) @ scores
    scale = placed(supports.T, first_support)[np.zeros(n, dtype=int) if supports.T.shape[0] == 1 else slice(None)]
    parts = [deficit, scale, *(pick(first_extra + k * np.arange(n) + j) for j in range(k))]
    cost = sum(price * (part.T @ problem.weights) for price, part in zip(shape.cost, parts, strict=True))

    slabs, offsets, cones, by_deficit, by_scale = [], [], [], [], []
    constants = shape.constants or [[0.0] * len(G) for _, G in shape.cones]
    for (name, G), shift in zip(shape.cones, constants, strict=True):
        lines = [
            sum((g * part for g, part in zip(line, parts, strict=True) if g), start=sparse.csr_array((n, size)))
            for line in G
        ]
        order = np.arange(n * len(G)).reshape(len(G), n).T.ravel()
        slabs.append(sparse.csr_array(sparse.vstack(lines))[order])
        asked = np.broadcast_to(problem.target, n)
        offsets.append((np.outer(asked, [line[0] for line in G]) + np.asarray(shift)).ravel())
        cones += [(name, len(G))] * n if name not in LINEAR else [(name, len(G) * n)]
        by_deficit.append(sparse.kron(sparse.eye_array(n), np.array([[float(line[0]) for line in G]])))
        by_scale.append(sparse.kron(sparse.eye_array(n), np.array([[float(line[1]) for line in G]])))
    for name, sizes, G in supports.cones:
        slabs.append(placed(G, first_support))
        offsets.append(np.zeros(G.shape[0]))
        cones += [(name, count) for count in sizes]
    if penalty is not None:
        slabs.append(placed(above_absolute(d), first_size))
        offsets.append(np.zeros(2 * d))
        cones.append(("nonnegative", 2 * d))
        cost[first_size:first_extra] = penalty.absolute
        if np.isfinite(penalty.limit):
            slabs.append(-pick(range(first_size, first_extra)))
            offsets.append(np.full(d, penalty.limit))
            cones.append(("nonnegative", d))
    ridge = np.zeros(size)
    ridge[:d] = problem.alpha
    in_u, in_t = sparse.hstack(by_deficit), sparse.hstack(by_scale)
    stops = np.cumsum([in_u.shape[1], sum(G.shape[0] for _, _, G in supports.cones)])

    def dual_guess(parameters: Array, multipliers: Array) -> DualGuess:
        of_losses, of_supports, _ = np.split(multipliers, stops)
        w, _ = problem.split(parameters)
        slopes = shape.cost[0] - ratio(in_u @ of_losses, problem.weights)
        guess = DualGuess(slopes, w, problem.sets.support(w))
        if problem.sets.interval_form() is not None:
            # the certificate finds the best points without a guess and without a matrix of them
            return guess
        used = problem.weights * shape.cost[1] - in_t @ of_losses
        points = supports.points(np.sum(used, keepdims=True) if supports.T.shape[0] == 1 else used, of_supports)
        return guess._replace(points=points)

    return ConeProgram(
        P=sparse.csc_matrix(sparse.diags_array(ridge)),
        q=np.asarray(cost),
        A=sparse.csc_matrix(-sparse.vstack(slabs)),
        b=np.concatenate(offsets),
        cones=cones,
        n_parameters=problem.n_parameters,
        constant=float(shape.cost[0] * np.sum(problem.target * problem.weights)),
        dual_guess=dual_guess if problem.has_kinks else None,
    )
