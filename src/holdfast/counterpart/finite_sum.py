"""The same problem as a sum over rows, for solvers that visit them one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast._core.problem import FiniteSum
from holdfast._core.rows import RowArrays
from holdfast.counterpart.certificate import certificate

if TYPE_CHECKING:
    from holdfast._core.uncertainty import BoundSet
    from holdfast.counterpart.margin_scale import MarginScaleProblem


def is_finite_sum(problem: MarginScaleProblem) -> bool:
    """Return whether the noise is independent by feature."""
    return problem.tilt is None and problem.target == 1.0 and problem.bound.deviations() is not None


def finite_sum(problem: MarginScaleProblem) -> FiniteSum:
    """Return the problem with one weight vector, that of the positive class."""

    def certify(parameters: np.ndarray) -> tuple[float, float]:
        proof = certificate(problem, *problem.split(parameters))
        return proof.objective, proof.gap

    return FiniteSum(
        rows=problem.rows.arrays(),
        n_features=problem.rows.n_features,
        labels=(problem.signs > 0).astype(np.int64),
        weights=problem.weights,
        loss=problem.loss,
        **steps_for(problem.bound, problem.rows.n_features),
        largest_scale_slope=problem.loss.largest_scale_slope(),
        ridge=problem.alpha,
        n_vectors=1,
        fit_intercept=problem.fit_intercept,
        norm_bound=lambda: problem.norm_bound(problem.rows.transpose_dot(problem.pull_per_class())),
        certify=certify,
    )


def steps_for(bound: BoundSet, n_features: int) -> dict[str, Any]:
    """Return the kernel that suits the noise, what it has to know of it, and the largest deviation."""
    s = bound.deviations()
    assert s is not None
    if s.ndim == 0:
        return {"kernel": "lazy_steps", "noise": (float(s),), "largest_deviation": float(s)}
    noise = RowArrays.of(s if s.ndim == 2 else s.reshape(1, n_features))
    return {"kernel": "plain_steps", "noise": tuple(noise), "largest_deviation": float(noise.values.max(initial=0.0))}
