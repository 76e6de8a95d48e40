"""Critical sizes of sets: where nothing can be learned any more, and up to where the classes can be separated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, cast

from sklearn.exceptions import ConvergenceWarning

from holdfast._core.allowed import arguments
from holdfast._core.caller import warn_caller
from holdfast._core.loss import Loss
from holdfast._core.metadata import SetsByRow, takes_metadata
from holdfast._core.uncertainty import UncertaintySet
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._training.collapse import critical_factor
from holdfast._training.critical import critical_size
from holdfast._training.separation import separable_size
from holdfast.estimators.gaussian_robust import GaussianRobustClassifier
from holdfast.estimators.inputs import one_blas_thread, shape_of
from holdfast.estimators.robust_linear import RobustLinearClassifier
from holdfast.uncertainty import Ball, GaussianNoise


@arguments()
@takes_metadata
def critical_radius(
    X: Any,
    y: Any,
    uncertainty: UncertaintySet | None = None,
    *,
    loss: str | Loss = "hinge",
    penalty: str | None = "l2",
    alpha: float = 1.0,
    kappa: float = 1.0,
    fit_intercept: bool = True,
    class_weight: Any = None,
    sample_weight: Any = None,
    **metadata: Unpack[SetsByRow],
) -> float:
    r"""Return the smallest size of the sets at which :class:`RobustLinearClassifier` collapses to w = 0.

    If the losses' slopes :math:`a_i` at w = 0 are known, as for all smooth losses and for the hinge with classes of
    equal weight, it is :math:`\min\{k : \sum_i c_i a_i y_i x_i \in k \sum_i c_i (\kappa a_i + 1 - \kappa) S_i\}`. For
    example, with two classes of equal weight and the hinge, it is :math:`\frac12 |\mu_+ - \mu_-|` for a common `Ball`
    and :math:`\max_j |\sum_i y_i x_{ij}| / \sum_i s_{ij}` for a `Box`. Otherwise the smallest size over all slopes is
    enclosed by certified fits. A ridge or a box on the weights does not change it; an l1 penalty is allowed for.

    Parameters
    ----------
    X, y, loss, penalty, alpha, kappa, fit_intercept, class_weight, sample_weight
        As for :class:`RobustLinearClassifier` and its `fit`. Two classes.
    uncertainty : UncertaintySet, default=None
        The shape of the sets. None means ``Ball(1.0)``; a set without a stated size has size 1.
    **metadata
        The sizes of sets that differ by row, as in `fit`.

    Returns
    -------
    float
        The smallest multiple of `uncertainty` (by default, the smallest radius) at which w = 0 is optimal, to a
        relative accuracy of 1e-6. inf if w = 0 is never optimal, 0 if it always is.

    Examples
    --------
    >>> from holdfast import Box
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = X / X.std(axis=0)
    >>> round(critical_radius(X, y, class_weight="balanced"), 3)
    3.021
    >>> round(critical_radius(X, y, Box(), loss="logistic"), 3)
    0.821
    """
    model = RobustLinearClassifier(
        shape_of(uncertainty, Ball(1.0)),
        loss=loss,
        penalty=penalty,
        alpha=alpha,
        kappa=kappa,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
    )
    problem = _problem_of_two_classes("critical_radius", model, X, y, sample_weight, metadata)
    if problem.push is not None:
        raise ValueError(
            f"critical_radius(..., uncertainty={uncertainty!r}): not known for the sum of a noise and a set. Ask for "
            "either one."
        )
    with one_blas_thread:
        low, high = critical_size(problem)
    _warn_if_apart("critical_radius", low, high)
    return high


@arguments()
@takes_metadata
def separability_radius(
    X: Any, y: Any, uncertainty: UncertaintySet | None = None, **metadata: Unpack[SetsByRow]
) -> float:
    r"""Return the size of the sets up to which the classes can be separated wherever training rows are in their sets.

    For a set common to all rows, with the support function h, it is
    :math:`1 / \min\{h(w) : y_i(w^\top x_i + b) \ge 1\}`: half the width of the widest gap between the classes, in units
    of the set. For a `Ball` it is the geometric margin of the hard-margin SVM.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Two classes.
    uncertainty : UncertaintySet, default=None
        The shape of the sets. None means ``Ball(1.0)``; a set without a stated size has size 1. Noise without bounds is
        refused.
    **metadata
        The sizes of sets that differ by row, as in :meth:`RobustLinearClassifier.fit`.

    Returns
    -------
    float
        The multiple of `uncertainty`, to a relative accuracy of 1e-6, below which some w and b classify every
        admissible row correctly. 0 if none do so even without uncertainty, inf if some do so at any size.

    Examples
    --------
    >>> X, y = [[0.0, 0.0], [1.0, 0.0], [4.0, 0.0], [5.0, 9.0]], [0, 0, 1, 1]
    >>> round(separability_radius(X, y), 6)
    1.5
    """
    model = RobustLinearClassifier(shape_of(uncertainty, Ball(1.0)), penalty=None)
    problem = _problem_of_two_classes("separability_radius", model, X, y, None, metadata)
    if problem.push is not None or not problem.loss.is_worst_case:
        raise ValueError(
            f"separability_radius(..., uncertainty={uncertainty!r}): noise without bounds reaches the wrong side at any size. "
            "State a set: ChanceConstraint(epsilon, 'gaussian') bounds what happens with probability 1 - epsilon."
        )
    with one_blas_thread:
        low, high = separable_size(problem)
    _warn_if_apart("separability_radius", low, high)
    return low


def _warn_if_apart(name: str, low: float, high: float) -> None:
    if high > low * (1 + 2e-6):
        warn_caller(
            f"{name}: proved to lie between {low:.10g} and {high:.10g} only. Put the features on similar scales.",
            ConvergenceWarning,
        )


def _problem_of_two_classes(
    name: str, model: RobustLinearClassifier, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any]
) -> MarginScaleProblem:
    model.check_parameters(name)
    problems = model._problems(X, y, sample_weight, metadata)
    if len(problems) > 1:
        raise ValueError(
            f"{name}(X, y): y has {len(problems)} classes. It is defined for two: call it on one class against the rest."
        )
    return problems[0]


@arguments()
def critical_noise(
    X: Any,
    y: Any,
    *,
    noise: float | GaussianNoise | None = None,
    loss: str | Loss = "hinge",
    sample_weight: Any = None,
    class_weight: Any = None,
) -> float:
    """Return the smallest noise at which :class:`GaussianRobustClassifier` with an intercept collapses to w = 0.

    Parameters
    ----------
    X, y, sample_weight, class_weight
        As for :class:`GaussianRobustClassifier`.
    noise : float or GaussianNoise, default=None
        The shape of the noise, common to all rows. None means a standard deviation of 1.0 in all directions.
    loss : str or Loss, default="hinge"

    Returns
    -------
    float
        The smallest multiple of `noise` (by default, the smallest standard deviation) at which w = 0 is optimal. inf if
        w = 0 is never optimal (logistic loss, or classes of equal weight), 0 if it always is.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> round(critical_noise(X, y))
    1531
    """
    model = GaussianRobustClassifier(shape_of(noise, 1.0), loss=loss, class_weight=class_weight, alpha=0.0)
    model.check_parameters("critical_noise")
    problem = model._problems(X, y, sample_weight, {})[0]
    if len(model.classes_) > 2:
        raise ValueError(
            f"critical_noise(X, y): y has {len(model.classes_)} classes. It is defined for two; with more, pairs of classes "
            "collapse one by one: call it on the rows of a pair, or look at collapsed_pairs_ of a fit."
        )
    with one_blas_thread:
        return critical_factor(cast(MarginScaleProblem, problem))
