"""The same problem as a cone program, where loss and set have one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from holdfast._core.problem import ConeProgram

if TYPE_CHECKING:
    from holdfast.counterpart.margin_scale import MarginScaleProblem


def is_conic(problem: MarginScaleProblem) -> bool:
    """Return whether loss and set both have a conic form."""
    return problem.bound.is_conic and problem.tilt is None and problem.loss.epigraph() is not None


def cone_program(problem: MarginScaleProblem) -> ConeProgram:
    """Return the problem with variables (w, b, scales, extra variables of the loss row by row).

    Each distinct set contributes one second-order cone t >= |F'w|; each row the cones of its loss's epigraph.
    """
    shape, factors = problem.loss.epigraph(), problem.bound.factors_of_support(problem.rows.n_features)
    assert shape is not None
    n, d, k = problem.rows.n_samples, problem.rows.n_features, len(shape.cost) - 2
    first_scale = problem.n_parameters
    first_extra = first_scale + len(factors)
    size = first_extra + n * k

    def pick(columns: Any) -> sparse.csr_array:
        return sparse.csr_array((np.ones(n), (np.arange(n), columns)), shape=(n, size))

    X = sparse.vstack([sparse.csr_array(block) for _, block in problem.rows.dense_blocks()], format="csr")
    with_b = [X, np.ones((n, 1))] if problem.fit_intercept else [X]
    deficit = sparse.diags_array(-problem.signs) @ sparse.hstack(with_b, format="csr")
    deficit = sparse.csr_array(sparse.hstack([deficit, sparse.csr_array((n, size - first_scale))]))
    scale = pick(first_scale + (np.arange(n) if len(factors) > 1 else np.zeros(n, dtype=int)))
    parts = [deficit, scale, *(pick(first_extra + k * np.arange(n) + j) for j in range(k))]

    slabs, offsets, cones = [], [], []
    constants = shape.constants or [[0.0] * len(G) for _, G in shape.cones]
    for (kind, G), shift in zip(shape.cones, constants, strict=True):
        rows = [
            sum((g * part for g, part in zip(line, parts, strict=True) if g), start=sparse.csr_array((n, size)))
            for line in G
        ]
        order = np.arange(n * len(G)).reshape(len(G), n).T.ravel()
        slabs.append(sparse.csr_array(sparse.vstack(rows))[order])
        offsets.append(np.repeat([line[0] * problem.target + g for line, g in zip(G, shift, strict=True)], n)[order])
        cones += [(kind, len(G))] * n if kind != "nonnegative" else [(kind, len(G) * n)]
    for j, factor in enumerate(factors):
        slab = sparse.lil_array((factor.shape[1] + 1, size))
        slab[0, first_scale + j] = 1.0
        slab[1:, :d] = factor.T
        slabs.append(sparse.csr_array(slab))
        offsets.append(np.zeros(factor.shape[1] + 1))
        cones.append(("second_order", factor.shape[1] + 1))
    cost = sum(price * (part.T @ problem.weights) for price, part in zip(shape.cost, parts, strict=True))
    ridge = np.zeros(size)
    ridge[:d] = problem.alpha
    return ConeProgram(
        P=sparse.csc_matrix(sparse.diags_array(ridge)),
        q=np.asarray(cost),
        A=sparse.csc_matrix(-sparse.vstack(slabs)),
        b=np.concatenate(offsets),
        cones=cones,
        n_parameters=problem.n_parameters,
        constant=float(shape.cost[0] * problem.target * problem.weights.sum()),
    )
