"""Recover a model from its dual weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_array

from holdfast._core.allowed import Number, Switch, arguments, as_numbers, short
from holdfast._core.arithmetic import norm
from holdfast._core.loss import Array
from holdfast.estimators.inputs import class_codes
from holdfast.features.rows import checked_weights
from holdfast.losses.gaussian_hinge import density

NAME = "recover_from_dual"
WELL_CONDITIONED = 3.0
"""Largest :math:`|\\Phi^{-1}(a)|` of the rows that lengths are read from: beyond it a says little about the margin."""


@arguments(noise=Number(strictly=True), fit_intercept=Switch())
def recover_from_dual(
    proof_weights: Any, X: Any, y: Any, noise: float, *, fit_intercept: bool = True, sample_weight: Any = None
) -> tuple[Array, Array]:
    r"""Return the coefficients and the intercept that belong to given dual weights, without solving a problem.

    This is for ``GaussianRobustClassifier(noise, loss="hinge")`` with two classes, one number for the noise and no
    ridge. At the optimum w has the direction :math:`\hat w` of :math:`\sum_i c_i a_i y_i x_i` and
    :math:`a_i = \Phi(z_i)`, so that :math:`q_i = \sigma \Phi^{-1}(a_i) + y_i \hat w^\top x_i = (1 - y_i b) / |w|` is
    the same for all rows of a class. So

    .. math:: |w| = \frac{2}{q_+ + q_-}, \quad b = \frac{q_- - q_+}{q_+ + q_-}, \qquad
              \text{without intercept } |w| = \frac1q.

    q is averaged over the rows with :math:`|\Phi^{-1}(a_i)| < 3`, weighted by :math:`\varphi(z_i)^2`, the inverse of
    the variance due to errors of a. The result is as accurate as the dual weights allow: an error of a causes an error
    of q that is up to 200 times larger.

    Parameters
    ----------
    proof_weights : array-like of shape (1, n_samples) or (n_samples,)
        :math:`c_i a_i y_i`, as `proof_weights_` of a fit.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Two classes; the second in order is the positive one.
    noise : float
        Standard deviation :math:`\sigma > 0`.
    fit_intercept : bool, default=True
    sample_weight : array-like of shape (n_samples,), default=None
        c, including the class weights of the fit.

    Returns
    -------
    coef : ndarray of shape (1, n_features)
    intercept : ndarray of shape (1,)

    Examples
    --------
    >>> from holdfast import GaussianRobustClassifier
    >>> X, y = [[1.0, 2.0], [0.5, 1.0], [0.0, 0.0], [1.0, 0.0]], [1, 1, 0, 0]
    >>> model = GaussianRobustClassifier(0.5, loss="hinge").fit(X, y)
    >>> coef, intercept = recover_from_dual(model.proof_weights_, X, y, noise=0.5)
    >>> np.allclose(coef, model.coef_), np.allclose(intercept, model.intercept_)
    (True, True)
    """
    sigma, X = float(noise), check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    if np.shape(y) != (X.shape[0],):
        raise ValueError(
            f"{NAME}(proof_weights, X, y, ...): y has shape {np.shape(y)}; X has {X.shape[0]} rows. Give the rows that were "
            "fitted."
        )
    classes, codes = class_codes(np.asarray(y), NAME)
    if len(classes) > 2:
        raise ValueError(
            f"{NAME}(..., y, ...): y has {len(classes)} classes. Only the dual of two classes is understood."
        )
    signs = 2.0 * codes - 1.0
    weights = checked_weights(sample_weight, X, NAME)
    try:
        pulls = as_numbers(proof_weights)
    except TypeError:
        raise ValueError(
            f"{NAME}(proof_weights={short(proof_weights):.80}, ...): give the numbers proof_weights_ of a fit."
        ) from None
    if pulls.shape not in ((len(signs),), (1, len(signs))) or weights.shape != signs.shape or X.shape[0] != len(signs):
        raise ValueError(
            f"{NAME}(proof_weights, X, y, ...): proof_weights has shape {pulls.shape}, X {X.shape}, y ({len(signs)},), "
            f"sample_weight {weights.shape}. Give the rows that were fitted."
        )
    pulls = pulls.ravel()
    used = weights > 0
    a = np.divide(signs * pulls, weights, out=np.zeros(len(signs)), where=used)
    if not np.all((a >= 0) & (a <= 1)) or np.any(pulls[~used]):
        raise ValueError(
            f"{NAME}(proof_weights, ...): proof_weights is not c a y with 0 <= a <= 1, y = -1 for {classes.tolist()[0]!r} and "
            f"+1 for {classes.tolist()[1]!r}. Give proof_weights_ of a binary fit, with its y and its weights (class weights "
            "too)."
        )
    pull = np.asarray(X.T @ pulls, dtype=np.float64)
    if not np.any(pull):
        raise ValueError(f"{NAME}(proof_weights, ...): proof_weights @ X = 0. The model has collapsed: coef_ = 0.")
    unit = pull / norm(pull)
    z = ndtri(a)
    trust = weights * np.square(density(z))
    q = sigma * z + signs * (X @ unit)
    legible = used & (np.abs(z) < WELL_CONDITIONED)
    groups = [legible & (signs < 0), legible & (signs > 0)] if fit_intercept else [legible]
    if not all(np.any(group) for group in groups):
        raise ValueError(
            f"{NAME}(proof_weights, ...): all rows of some class have dual weights too near 0 or 1 (|ndtri(a)| >= "
            f"{WELL_CONDITIONED:g}) to read the length of w from them. Fit the model instead."
        )
    below, above = (float(np.average(q[group], weights=trust[group])) for group in (groups[0], groups[-1]))
    return (2 / (above + below) * unit)[None], np.array([(below - above) / (above + below)])
