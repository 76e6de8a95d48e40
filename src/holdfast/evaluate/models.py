"""What certificates see of a fitted classifier: its scores, how far off these may be, and how fast they can change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property, singledispatch
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, NuSVC
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from holdfast._core.rounding import Array, gamma
from holdfast.estimators import MinimaxProbabilityClassifier
from holdfast.estimators.linear import LinearClassifier
from holdfast.evaluate.decisions import Decision, LargestScore, Votes, one_score
from holdfast.evaluate.steps import AffineMap, Multiply, NoCertificateError, Operation, Product, affine_operations
from holdfast.uncertainty.checks import nonnegative, per_feature
from holdfast.uncertainty.clouds import norm as euclidean
from holdfast.uncertainty.clouds import ratio

SUPPORTED = (
    "holdfast's classifiers; scikit-learn's linear classifiers (LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, "
    "Perceptron, LinearDiscriminantAnalysis, ...), SVC and NuSVC with kernel='linear' or 'rbf'; these after affine steps in a "
    "Pipeline, and linear ones after RBFSampler or Nystroem(kernel='rbf')"
)
NORMS = (1, 2, np.inf)
LAST_BITS = 1e-14
"""Share by which a quotient or a root is made smaller, more than its last roundings."""


def dual_norms(V: Array, norm: float) -> Array:
    r"""Return the dual norm of each row v: the largest :math:`v^\top \delta` with :math:`\|\delta\| \le 1`."""
    return {
        1: lambda: np.abs(V).max(axis=1, initial=0.0),
        2: lambda: _lengths(V),
        np.inf: lambda: np.abs(V).sum(axis=1),
    }[norm]()


def _lengths(V: Array) -> Array:
    """Return the l2 norm of each row, whatever its scale."""
    largest = np.abs(V).max(axis=1, initial=0.0)
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    return unit * np.sqrt(np.sum(np.square(V / unit[:, None]), axis=1))


class Model(ABC):
    """A classifier by scores whose changes are bounded.

    Parameters
    ----------
    decision : Decision
        What makes classes of the scores.
    """

    method: str
    """How its certificates come about."""
    decision: Decision
    n_features: int
    is_linear = False

    @property
    def n_columns(self) -> int:
        """Numbers that are made of a row on the way to its leads."""
        return max(self.n_features, self.decision.n_scores)

    @abstractmethod
    def scores(self, X: Any) -> tuple[Array, Array]:
        """Return the scores of rows, and bounds on what rounding makes of them here or in the model, (n_samples, n_scores)."""

    @abstractmethod
    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        r"""Return what `radii` needs to know about perturbations :math:`\|\delta / weights\| \le r`, by `Decision.table`."""

    @abstractmethod
    def radii(self, leads: Array, reach: Array) -> Array:
        """Return up to which r no perturbation makes a lead <= 0, given the rows' leads > 0 and their `reach`."""

    @abstractmethod
    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        """Return by how much combinations C f can fall where entries go down by up to `below` and up by `above`, >= 0."""

    @abstractmethod
    def gradients(self, X: Array, C: Array) -> Array:
        """Return for each row x_i of an array the gradient of c_i'f there, shape (n_samples, n_features)."""

    def after(self, operations: list[Operation]) -> Model:
        """Return the same model of rows that go through these operations first."""
        raise NotImplementedError


class LinearModel(Model):
    """Scores that are an affine map of the rows. Certificates are exact, but for rounding.

    Parameters
    ----------
    map : AffineMap
    decision : Decision
    """

    method = "linear: margin over the dual norm of differences of weights"
    is_linear = True

    def __init__(self, map: AffineMap, decision: Decision):
        self.map, self.decision, self.n_features = map, decision, map.n_features

    @property
    def coef(self) -> Array:
        """The weights of the scores in the units of X, shape (n_scores, n_features)."""
        return self.map.coef

    @property
    def intercept(self) -> Array:
        """Their intercepts, shape (n_scores,)."""
        return self.map.intercept

    def scores(self, X: Any) -> tuple[Array, Array]:
        return self.map(X)

    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        blur, digits = self.map.gamma(dtype), 1 + gamma(self.n_features + 4)

        def of(C: Array) -> Array:
            rounding = blur * dual_norms((np.abs(C) @ self.map.sizes) * weights, norm)
            return (dual_norms((C @ self.coef) * weights, norm) + 2 * rounding) * digits

        return self.decision.table(of)

    def radii(self, leads: Array, reach: Array) -> Array:
        return _quotients(leads, reach)

    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        V, sizes = C @ self.coef, 2 * self.map.gamma(dtype) * (np.abs(C) @ self.map.sizes)
        fall = below @ np.maximum(V, 0.0).T + above @ np.maximum(-V, 0.0).T + (below + above) @ sizes.T
        return np.asarray(fall * (1 + gamma(self.n_features + 4)))

    def gradients(self, X: Array, C: Array) -> Array:
        return C @ self.coef

    def after(self, operations: list[Operation]) -> LinearModel:
        return LinearModel(self.map.after(operations), self.decision)


class KernelModel(Model):
    r"""Scores :math:`f(x) = \sum_i a_i k(x_i, z) + b` with :math:`k(z, z') = e^{-\gamma \|z - z'\|^2}`, z an affine map of x.

    By the reproducing property :math:`|f(z) - f(z')| \le \|f\|_H \sqrt{2 - 2 e^{-\gamma \|z - z'\|^2}}`, with
    :math:`\|f\|_H^2 = a^\top K a`: sound, not tight.

    Parameters
    ----------
    centres : ndarray of shape (n_centres, n_inputs)
    width : float
        gamma.
    output : AffineMap
        From values of the kernel to scores: a and b.
    decision : Decision
    map : AffineMap, default=None
        From x to z, none where they are the same.
    """

    method = "RBF kernel: RKHS norm"

    def __init__(
        self, centres: Array, width: float, output: AffineMap, decision: Decision, map: AffineMap | None = None
    ):
        self.centres, self.width, self.output, self.decision, self.map = centres, float(width), output, decision, map
        self.n_features = centres.shape[1] if map is None else map.n_features

    @property
    def n_columns(self) -> int:
        return max(super().n_columns, len(self.centres))

    def gradients(self, X: Array, C: Array) -> Array:
        Z = X if self.map is None else self.map(X)[0]
        pulls = (C @ self.output.coef) * rbf_kernel(Z, self.centres, gamma=self.width)
        inner = 2 * self.width * (pulls @ self.centres - pulls.sum(axis=1, keepdims=True) * Z)
        return np.asarray(inner if self.map is None else inner @ self.map.coef)

    def after(self, operations: list[Operation]) -> KernelModel:
        n = self.centres.shape[1]
        same = AffineMap(np.eye(n), np.zeros(n)) if self.map is None else self.map
        return KernelModel(self.centres, self.width, self.output, self.decision, same.after(operations))

    def _error(self, dtype: Any) -> Array:
        r"""Return a bound on the rounding of any score, wherever the row is, shape (n_scores,).

        Squared distances as :math:`\|z\|^2 + \|x\|^2 - 2 z^\top x` are off by no more than a share of
        :math:`\|z\|^2 + \|x\|^2`; far from all centres that is little beside the distance itself, and the kernel is 0.
        """
        eta = gamma(self.centres.shape[1] + 8, self.output.kind(dtype))
        spread = self.width * float(np.max(np.sum(np.square(self.centres), axis=1), initial=0.0))
        each = eta * (20 * spread + 32) if eta * 20 * spread < 1 else np.inf
        total = self.output.sizes.sum(axis=1)
        return each * total + self.output.gamma(dtype) * (2 * total + self.output.offset_sizes)

    @cached_property
    def _gram(self) -> Array:
        """Inner products of the scores in the kernel's space, shape (n_scores, n_scores)."""
        size, a = max(1, int(1e7 / len(self.centres))), self.output.coef
        parts = (slice(i, i + size) for i in range(0, len(self.centres), size))
        blocks = (a[:, part] @ (rbf_kernel(self.centres[part], self.centres, gamma=self.width) @ a.T) for part in parts)
        return np.asarray(sum(blocks))

    def norms(self, C: Array) -> Array:
        """Return upper bounds on the norms of combinations C f of scores in the kernel's space, shape (n_combinations,)."""
        sizes = self.output.sizes.sum(axis=1)
        share = float(np.max(ratio(self._error(np.float64), sizes))) + gamma(2 * len(self.centres) + 2 * len(sizes))
        squares = np.maximum(np.einsum("ri,ij,rj->r", C, self._gram, C), 0.0)
        return np.sqrt(squares + 2 * share * np.square(np.abs(C) @ sizes)) * (1 + LAST_BITS)

    def scores(self, X: Any) -> tuple[Array, Array]:
        Z, blur = (X, None) if self.map is None else self.map(X)
        kernel = rbf_kernel(Z.astype(np.float64, copy=False), self.centres, gamma=self.width)
        values = kernel @ self.output.coef.T + self.output.intercept
        errors = np.broadcast_to(self._error(X.dtype), values.shape)
        if blur is not None:
            steepness = np.sqrt(2 * self.width) * self.norms(np.eye(values.shape[1]))
            errors = errors + np.outer(_lengths(blur), steepness) * (1 + 1e-9)
        return values, errors

    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        stretch = _stretch(self.map, weights, self.n_features, norm, dtype)
        table = self.decision.table(self.norms)
        return np.stack([table, np.full_like(table, stretch)], axis=-1)

    def radii(self, leads: Array, reach: Array) -> Array:
        shares = 0.5 * np.square(_quotients(leads, reach[..., 0])) * (1 - LAST_BITS)
        with np.errstate(divide="ignore"):
            distances = np.sqrt(-np.log1p(-np.minimum(shares, 1.0)) / self.width)
        return _quotients(distances, reach[..., 1])

    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        farthest = np.maximum(_dense(below), _dense(above))
        if self.map is not None:
            farthest = farthest @ (np.abs(self.map.coef) + 2 * self.map.gamma(dtype) * self.map.sizes).T
        distances = _lengths(farthest) * (1 + gamma(self.n_features + farthest.shape[1] + 4))
        shares = np.sqrt(-2 * np.expm1(-self.width * np.square(distances))) * (1 + LAST_BITS)
        return np.outer(shares, self.norms(C))


class FourierModel(Model):
    r"""Scores :math:`\sum_d a_d \cos(\omega_d^\top x + c_d) + b`: linear ones of random Fourier features.

    With :math:`|\sin| \le 1` they change no faster than by :math:`\| |a| |\Omega| \|_*`, nor, for the l2 norm, by
    :math:`\|a\|_2 \|\Omega\|_2`: sound, not tight.

    Parameters
    ----------
    map : AffineMap
        From x to the angles.
    output : AffineMap
        From cosines to scores: a and b.
    decision : Decision
    """

    method = "random Fourier features: Lipschitz constant"

    def __init__(self, map: AffineMap, output: AffineMap, decision: Decision):
        self.map, self.output, self.decision, self.n_features = map, output, decision, map.n_features

    @property
    def n_columns(self) -> int:
        return max(super().n_columns, len(self.map.coef))

    def gradients(self, X: Array, C: Array) -> Array:
        return np.asarray(-((C @ self.output.coef) * np.sin(self.map(X)[0])) @ self.map.coef)

    def after(self, operations: list[Operation]) -> FourierModel:
        return FourierModel(self.map.after(operations), self.output, self.decision)

    def scores(self, X: Any) -> tuple[Array, Array]:
        angles, blur = self.map(X)
        sizes = self.output.sizes
        # a cosine is at most 1 and rounded to within a few last bits
        blur = blur + gamma(8, self.map.kind(X.dtype))
        errors = self.output.gamma(X.dtype) * (2 * sizes.sum(axis=1) + self.output.offset_sizes)
        values = np.cos(angles) @ self.output.coef.T + self.output.intercept
        return values, errors + (blur @ sizes.T) * (1 + 1e-9)

    def _slopes(self, C: Array, weights: Array, dtype: Any) -> Array:
        """Return bounds on the partial derivatives of combinations C f, shape (n_combinations, n_features)."""
        sizes = np.abs(self.map.coef) + 2 * self.map.gamma(dtype) * self.map.sizes
        return np.abs(C @ self.output.coef) @ (sizes * weights) * (1 + gamma(sum(sizes.shape)))

    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        n = self.n_features
        spectral = _stretch(self.map, weights, n, 2, dtype) * (np.sqrt(n) if norm == np.inf else 1.0)

        def of(C: Array) -> Array:
            together = _lengths(C @ self.output.coef) * (1 + gamma(len(self.map.coef)))
            return np.minimum(dual_norms(self._slopes(C, weights, dtype), norm), together * spectral)

        return self.decision.table(of) * (1 + LAST_BITS)

    def radii(self, leads: Array, reach: Array) -> Array:
        return _quotients(leads, reach)

    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        farthest = np.maximum(_dense(below), _dense(above))
        slopes = self._slopes(C, np.ones(self.n_features), dtype)
        return np.asarray(farthest @ slopes.T * (1 + gamma(self.n_features + 4)))


def _dense(X: Any) -> Array:
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def _quotients(leads: Array, reach: Array) -> Array:
    """Return leads / reach rounded down: inf where nothing is reached, 0 where that is not finite."""
    leads, reach = np.broadcast_arrays(leads, reach)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = np.where(reach == 0, np.inf, leads / reach * (1 - LAST_BITS))
    return np.where(np.isnan(found) | np.isnan(reach), 0.0, found)


def _stretch(map: AffineMap | None, weights: Array, n_features: int, norm: float, dtype: Any) -> float:
    r"""Return a bound on the l2 length of A delta over :math:`\|\delta / weights\| \le 1`, and of what rounding adds to it."""
    if map is None:
        each = np.broadcast_to(weights, n_features)
        return float(euclidean(each) if norm == np.inf else np.max(np.abs(each))) * (1 + gamma(n_features + 4))
    A, sizes = map.coef * weights, map.sizes * weights
    blur = 2 * map.gamma(dtype) * euclidean(sizes.sum(axis=1) if norm == np.inf else sizes)
    if norm == 1:
        found = float(np.max(_lengths(A.T), initial=0.0))
    else:
        # a bound from the Gram matrix's row sums costs no decomposition and would do; the largest singular value is smaller
        spectral = float(np.linalg.norm(A, 2)) * (1 + 1e-10) + gamma(sum(A.shape)) * float(euclidean(A))
        boxed = float(euclidean(np.abs(A).sum(axis=1)))
        found = min(spectral * np.sqrt(n_features), boxed) if norm == np.inf else spectral
    return (found + float(blur)) * (1 + gamma(sum(A.shape)))


@singledispatch
def model_of(model: Any) -> Model:
    """Return what certificates see of a fitted classifier; NoCertificateError where it is none that is known.

    A classifier of one's own joins by ``model_of.register``.
    """
    raise NoCertificateError(
        f"{model!r:.120}: no certificate is known for it. Supported are {SUPPORTED}. Any classifier with predict takes "
        "certified_radius(..., method='smoothing'), which is smoothed."
    )


def _of_linear_scores(last: Any, offset: Any, operations: tuple[Operation, ...] = ()) -> LinearModel:
    W = np.atleast_2d(last)
    b = np.broadcast_to(np.ravel(offset), len(W))
    return LinearModel(AffineMap(W, b, operations), one_score() if len(W) == 1 else LargestScore(len(W)))


@model_of.register(LinearClassifier)
@model_of.register(LinearClassifierMixin)
def _(model: Any) -> Model:
    if not hasattr(model, "coef_"):
        return model_of.dispatch(object)(model)
    return _of_linear_scores(_dense(model.coef_), model.intercept_)


@model_of.register
def _(model: MinimaxProbabilityClassifier) -> Model:
    if hasattr(model, "coef_"):
        return _of_linear_scores(model.coef_, model.intercept_)
    if model.kernel != "rbf":
        raise NoCertificateError(
            f"{model!r:.80}: of kernels only kernel='rbf' is certified. Supported are {SUPPORTED}."
        )
    decision = one_score() if len(model.dual_coef_) == 1 else LargestScore(len(model.dual_coef_))
    output = AffineMap(model.dual_coef_, model.intercept_)
    return KernelModel(_dense(model.X_fit_).astype(np.float64), model.gamma_, output, decision)


@model_of.register(SVC)
@model_of.register(NuSVC)
def _(model: Any) -> Model:
    centres, a, K = _dense(model.support_vectors_), _dense(model.dual_coef_), len(model.classes_)
    decision: Votes = one_score()
    if K > 2:
        # libsvm keeps the weights of all contests of a class with its own support vectors
        owner, pairs = np.repeat(np.arange(K), model.n_support_), list(combinations(range(K), 2))
        a = np.array([np.where(owner == i, a[j - 1], np.where(owner == j, a[i], 0.0)) for i, j in pairs])
        decision = Votes(np.array(pairs), K, needs_lead=bool(model.break_ties))
    if model.kernel == "linear":
        return LinearModel(AffineMap(a, model.intercept_, (Product(centres),)), decision)
    if model.kernel == "rbf":
        return KernelModel(centres, model._gamma, AffineMap(a, model.intercept_), decision)
    raise NoCertificateError(
        f"{model!r:.80}: of kernels only 'linear' and 'rbf' are certified. Supported are {SUPPORTED}."
    )


@model_of.register
def _(model: BaseSearchCV) -> Model:
    return model_of(model.best_estimator_)


@model_of.register
def _(model: Pipeline) -> Model:
    found = model_of(model.steps[-1][1])
    for _, step in reversed(model.steps[:-1]):
        found = before(step, found)
    return found


@singledispatch
def before(step: Any, model: Model) -> Model:
    """Return what certificates see of a model whose rows go through a fitted step first."""
    return model.after(affine_operations(step))


def _linear_only(step: Any, model: Model) -> LinearModel:
    if not isinstance(model, LinearModel):
        raise NoCertificateError(f"{step!r:.80}: certified before a linear model only. Supported are {SUPPORTED}.")
    return model


@before.register
def _(step: RBFSampler, model: Model) -> Model:
    linear, amplitude = _linear_only(step, model), np.sqrt(2.0 / step.n_components)
    angles = AffineMap(step.random_weights_.T, step.random_offset_, follows_rows=True)
    output = linear.map.after([Multiply(np.full(step.n_components, amplitude))])
    return FourierModel(angles, output, linear.decision)


@before.register
def _(step: Nystroem, model: Model) -> Model:
    linear = _linear_only(step, model)
    if step.kernel != "rbf":
        raise NoCertificateError(f"{step!r:.80}: of kernels only 'rbf' is certified. Supported are {SUPPORTED}.")
    basis = _dense(step.components_).astype(np.float64)
    width = 1.0 / basis.shape[1] if step.gamma is None else step.gamma
    return KernelModel(basis, width, linear.map.after([Product(step.normalization_)]), linear.decision)


def classes_of(model: Any) -> NDArray[Any]:
    """Return the classes of a fitted classifier."""
    check_is_fitted(model)
    return np.asarray(model.classes_)


@singledispatch
def taker_of(model: Any) -> Any:
    """Return the part of a fitted model that X goes to first."""
    return model


@taker_of.register
def _(model: BaseSearchCV) -> Any:
    return taker_of(model.best_estimator_)


@taker_of.register
def _(model: Pipeline) -> Any:
    return taker_of(next(step for _, step in model.steps if step not in (None, "passthrough")))


def rows_for(model: Any, X: Any) -> Any:
    """Return rows as an array or CSR matrix of finite floats, with the features that the model was fitted with."""
    check_is_fitted(model)
    types, taker = [np.float64, np.float32, np.float16], taker_of(model)
    if not isinstance(taker, BaseEstimator):
        return check_array(X, accept_sparse="csr", dtype=types)
    return validate_data(taker, X, accept_sparse="csr", dtype=types, reset=False)


def as_given(X: Any, rows: Array) -> Any:
    """Return rows in a frame like X, so that a model finds the names of its features; as they are where X is no frame."""
    if hasattr(X, "iloc"):
        return type(X)(rows, columns=X.columns)
    return type(X)(rows, schema=list(X.columns)) if hasattr(X, "columns") else rows


def scale_of(weights: Any, n_features: int, call: str) -> Array:
    """Return the units of perturbations, shape (n_features,)."""
    given = per_feature(1.0 if weights is None else weights, n_features, f"{call}(..., weights=...)", "weights")
    return np.broadcast_to(nonnegative(given, f"{call}(..., weights=...)", "weights"), n_features)
