"""Perturbations: what may happen to rows, and to labels, between training and use, at any level."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.allowed import Choice
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.parameters import Parameters
from holdfast._core.rounding import Array
from holdfast._core.uncertainty import UncertaintySet
from holdfast.evaluate.fitted import classes_of, model_of
from holdfast.evaluate.models import LAST_BITS
from holdfast.uncertainty import Box, CorruptedFeatures, FeatureDeletion
from holdfast.uncertainty.checks import nonnegative, numbers, one_number, per_entry, per_feature
from holdfast.uncertainty.clouds import dense, rescaled
from holdfast.uncertainty.deletions import random_deletions, worst_deletions
from holdfast.uncertainty.knapsack import feature_costs

ADVERSARIES = ("random", "greedy", "exact")


class Bounds(NamedTuple):
    """All that a perturbation can do to rows, as a set with its metadata."""

    uncertainty: UncertaintySet
    metadata: dict[str, Any]


class Perturbation(Parameters, ABC):
    """What may happen to rows, of a size that a `level` >= 0 says; at level 0 nothing happens."""

    unit: str
    """What a level counts, for labels of axes."""
    needs_model = False
    """Whether it is aimed at a model."""
    is_random = True
    """Whether repeats differ."""

    @abstractmethod
    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        """Return perturbed copies of rows and labels.

        Parameters
        ----------
        X : {ndarray, csr matrix} of shape (n_samples, n_features)
        y : ndarray of shape (n_samples,)
        level : float
            >= 0.
        rng : Generator
            All that is random comes from it.
        model : classifier, default=None
            What an adversary aims at.
        """

    def bounds(self, X: Any, level: float) -> Bounds | None:
        """Return a set that holds all that can happen to rows at a level; None where there is none, or it is of no use."""
        return None

    def _level(self, level: Any) -> float:
        return one_number(level, f"{self!r}.apply(..., level={level!r:.40})", "level")

    @classmethod
    @abstractmethod
    def examples(cls) -> Sequence[Self]:
        """Return instances for tests that run on every perturbation, on 12 rows of 4 features."""


class RandomNoise(Perturbation):
    r"""Gaussian noise, a second measurement of the same rows: :math:`x + m\,s \circ z`, z standard normal, m the level.

    Parameters
    ----------
    std : float or array-like of shape (n_features,), default=1.0
        s where nothing is stated by row, in the units of the features; one number multiplies what is.
    X_std : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
        Standard deviation of each entry. Sparse ones leave sparse rows sparse.
    X_factor : array-like of shape (n_samples, n_features, r), default=None
        Factors F of the rows' covariances F F', in place of `X_std`, for errors that go together.

    Examples
    --------
    >>> rows, _ = RandomNoise([1.0, 0.0]).apply(np.zeros((2, 2)), np.array([0, 1]), 0.5, np.random.default_rng(0))
    >>> rows.round(2)
    array([[0.06, 0.  ], [0.32, 0.  ]])
    """

    unit = "multiple of the stated noise"

    def __init__(self, std: Any = 1.0, *, X_std: Any = None, X_factor: Any = None):
        self.std = std
        self.X_std = X_std
        self.X_factor = X_factor

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        size, std = self._level(level), _deviations(self, X.shape, "std")
        if self.X_factor is None:
            return _plus(X, size * std, lambda n: rng.standard_normal(n)), y
        factors = numbers(self.X_factor, "RandomNoise(X_factor=...)", "X_factor")
        if factors.ndim != 3 or factors.shape[:2] != X.shape:
            raise ValueError(
                f"RandomNoise(X_factor=...): X_factor has shape {factors.shape}; it must be (n_samples, n_features, r), here "
                f"with {X.shape[0]} rows of {X.shape[1]} features."
            )
        drawn = np.einsum("nij,nj->ni", factors, rng.standard_normal((X.shape[0], factors.shape[2])))
        return dense(X) + size * std * drawn, y

    @classmethod
    def examples(cls) -> Sequence[Self]:
        rng = np.random.default_rng(0)
        return [
            cls(0.3),
            cls([0.1, 0.0, 1.0, 2.0]),
            cls(X_std=rng.uniform(size=(12, 4))),
            cls(0.5, X_factor=rng.normal(size=(12, 4, 2))),
        ]


class UniformNoise(Perturbation):
    r"""Errors that are uniform in a box: :math:`x + m\,h \circ u`, u uniform in [-1, 1], m the level.

    Parameters
    ----------
    half_width : float or array-like of shape (n_features,), default=1.0
        h where nothing is stated by row; one number multiplies what is.
    X_std : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
        Half-width of each entry's interval, as for :class:`Box`.

    Examples
    --------
    >>> rows, _ = UniformNoise([1.0, 0.0]).apply(np.zeros((2, 2)), np.array([0, 1]), 0.5, np.random.default_rng(0))
    >>> rows.round(2)
    array([[ 0.14,  0.  ], [-0.46,  0.  ]])
    """

    unit = "multiple of the stated half-widths"

    def __init__(self, half_width: Any = 1.0, *, X_std: Any = None):
        self.half_width = half_width
        self.X_std = X_std

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        widths = self._level(level) * _deviations(self, X.shape, "half_width")
        return _plus(X, widths, lambda n: rng.uniform(-1.0, 1.0, size=n)), y

    def bounds(self, X: Any, level: float) -> Bounds | None:
        widths = level * _deviations(self, X.shape, "half_width")
        if np.ndim(widths) == 2:
            moved = rescaled((widths > 0).astype(np.float64), np.ones(X.shape[0]), _rounding(X))
            return Bounds(Box(), {"X_std": widths + moved})
        return Bounds(Box(half_widths=widths + (widths > 0) * _rounding(X)), {})

    @classmethod
    def examples(cls) -> Sequence[Self]:
        return [cls(0.3), cls([0.1, 0.0, 1.0, 2.0]), cls(0.5, X_std=np.random.default_rng(0).uniform(size=(12, 4)))]


class DeleteFeatures(Perturbation):
    r"""Features of each row are set to 0, up to a budget, which is the level.

    ============  =====================================================================================================
    ``"random"``  features that are not 0, drawn at random while they fit the budget
    ``"greedy"``  those that take the most off the label's lead per value, one rival class at a time
    ``"exact"``   whole features whose deletion takes the most off the label's lead over the rival that gains the most
    ============  =====================================================================================================

    The last two know linear models only.

    Parameters
    ----------
    adversary : {"random", "greedy", "exact"}, default="random"
    values : array-like of shape (n_features,), default=None
        What deleting a feature costs, >= 0; 1 each by default, and the level is a number of features; inf cannot be deleted.

    Examples
    --------
    >>> rows, _ = DeleteFeatures().apply(np.ones((2, 3)), np.array([0, 1]), 2, np.random.default_rng(0))
    >>> rows.sum(axis=1)
    array([1., 1.])
    """

    def __init__(self, adversary: str = "random", *, values: Any = None):
        self.adversary = adversary
        self.values = values

    @property
    def unit(self) -> str:  # type: ignore[override]
        """Features, or their values."""
        return "deleted features of each row" if self.values is None else "value of the deleted features of each row"

    @property
    def needs_model(self) -> bool:  # type: ignore[override]
        """Whether the adversary is more than chance."""
        return not (isinstance(self.adversary, str) and self.adversary == "random")

    @property
    def is_random(self) -> bool:  # type: ignore[override]
        """Whether the adversary is chance."""
        return not self.needs_model

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        budget = self._level(level)
        Choice(*ADVERSARIES).checked(self.adversary, "DeleteFeatures(adversary")
        if self.is_random:
            chosen = random_deletions(X, budget, self.values, random_state=rng)
        else:
            chosen = _worst(
                self, X, y, model, lambda gains: worst_deletions(gains, budget, self.values, method=self.adversary)
            )
        if sparse.issparse(X):
            kept = sparse.csr_matrix(X - X.multiply(chosen)) if chosen.nnz else X.copy()
            kept.eliminate_zeros()
            return kept, y
        return np.where(chosen, 0, X), y

    def bounds(self, X: Any, level: float) -> Bounds | None:
        costs = feature_costs(self.values, X.shape[1], "DeleteFeatures(values=...)")
        return Bounds(FeatureDeletion(level, self.values), {}) if level < costs.sum() else None

    @classmethod
    def examples(cls) -> Sequence[Self]:
        return [cls(), cls("greedy", values=[1.0, 2.0, 1.0, np.inf]), cls("exact")]


class CorruptFeatures(Perturbation):
    r"""As many features of each row as the level says are replaced by independent noise of mean 0.

    :class:`CorruptedFeatures` with a scale: features are chosen first, noise is drawn afterwards.

    Parameters
    ----------
    adversary : {"random", "greedy"}, default="random"
        Which features: any, or those that a linear model leans on most, as for :class:`DeleteFeatures`.
    noise : {"uniform", "sign"}, default="uniform"
        Uniform in [-1, 1], or -1 or 1; times `scale`.
    scale : float or array-like of shape (n_features,), default=1.0
        In the units of the features.

    Examples
    --------
    >>> rows, _ = CorruptFeatures().apply(np.zeros((2, 3)), np.array([0, 1]), 2, np.random.default_rng(0))
    >>> (rows != 0).sum(axis=1)
    array([2, 2])
    """

    unit = "corrupted features of each row"

    def __init__(self, adversary: str = "random", *, noise: str = "uniform", scale: Any = 1.0):
        self.adversary = adversary
        self.noise = noise
        self.scale = scale

    @property
    def needs_model(self) -> bool:  # type: ignore[override]
        """Whether the adversary is more than chance."""
        return not (isinstance(self.adversary, str) and self.adversary == "random")

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        Choice(*ADVERSARIES[:2]).checked(self.adversary, "CorruptFeatures(adversary")
        count = self._level(level)
        if count != int(count) or count > X.shape[1]:
            raise ValueError(f"{self!r}: level={level!r:.40} is a number of features, of which X has {X.shape[1]}.")
        scale = per_feature(self.scale, X.shape[1], "CorruptFeatures(scale=...)", "scale")
        scale = np.broadcast_to(nonnegative(scale, "CorruptFeatures(scale=...)", "scale"), X.shape[1])
        rows = dense(X)
        chosen = None
        if self.needs_model:
            chosen = _worst(
                self, rows, y, model, lambda gains: worst_deletions(gains, count, method="greedy").astype(np.float64)
            )
        drawn = CorruptedFeatures(int(count), noise=self.noise).sample(
            np.full(rows.shape, np.nan), gains=chosen, random_state=rng
        )
        return np.where(np.isnan(drawn), rows, scale * drawn), y

    @classmethod
    def examples(cls) -> Sequence[Self]:
        return [cls(), cls("greedy", noise="sign", scale=[1.0, 2.0, 0.5, 3.0])]


class FlipLabels(Perturbation):
    """A share of the labels, the level in [0, 1], is replaced by another class, any of the others alike.

    The rows stay as they are: it shows how far accuracies can be trusted where test labels are wrong.

    Examples
    --------
    >>> FlipLabels().apply(np.zeros((4, 1)), np.array([0, 0, 1, 1]), 0.5, np.random.default_rng(0))[1]
    array([1, 0, 0, 1])
    """

    unit = "share of labels that are flipped"

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        share = self._level(level)
        if share > 1:
            raise ValueError(f"{self!r}: level={level!r:.40} is a share of the labels, from 0 to 1.")
        classes = np.unique(y) if model is None else classes_of(model)
        if len(classes) < 2:
            raise ValueError(f"{self!r}: y holds one class only, so that there is nothing to flip to.")
        codes = _codes(self, classes, y)
        chosen = rng.permutation(len(codes))[: round(share * len(codes))]
        flipped = codes.copy()
        flipped[chosen] = (codes[chosen] + rng.integers(1, len(classes), size=len(chosen))) % len(classes)
        return X, classes[flipped]

    @classmethod
    def examples(cls) -> Sequence[Self]:
        return [cls()]


class Quantize(Perturbation):
    r"""Values are rounded to multiples of a step, :math:`m\,h \operatorname{round}(x / (m h))`, m the level.

    Parameters
    ----------
    step : float or array-like of shape (n_features,), default=1.0
        h, in the units of the features; 0 leaves a feature as it is.

    Examples
    --------
    >>> Quantize(0.5).apply(np.array([[0.3, 1.1]]), np.array([0]), 1.0, np.random.default_rng(0))[0]
    array([[0.5, 1. ]])
    """

    unit = "multiple of the step"
    is_random = False

    def __init__(self, step: Any = 1.0):
        self.step = step

    def _steps(self, n_features: int, level: float) -> Array:
        call = "Quantize(step=...)"
        step = nonnegative(per_feature(self.step, n_features, call, "step"), call, "step")
        return np.broadcast_to(level * step, n_features)

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        steps = self._steps(X.shape[1], self._level(level))
        if not sparse.issparse(X):
            return _rounded(X, steps), y
        rounded = sparse.csr_matrix(X, copy=True)
        rounded.data = _rounded(rounded.data, steps[rounded.indices])
        rounded.eliminate_zeros()
        return rounded, y

    def bounds(self, X: Any, level: float) -> Bounds | None:
        steps = self._steps(X.shape[1], level)
        return Bounds(Box(half_widths=0.5 * steps + (steps > 0) * (_rounding(X) + LAST_BITS * steps)), {})

    @classmethod
    def examples(cls) -> Sequence[Self]:
        return [cls(0.3), cls([0.1, 0.0, 1.0, 2.0])]


def _rounded(values: Any, steps: Array) -> Any:
    """Return values rounded to multiples of steps, as they are where a step is 0."""
    safe = np.where(steps > 0, steps, 1.0)
    return np.where(steps > 0, np.round(values / safe) * safe, values).astype(_kind(values), copy=False)


def _kind(values: Any) -> Any:
    """Return the type of values in floating point: float64 for integers."""
    return values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)


def _rounding(X: Any) -> Array:
    """Return what floating point may add to a move of each feature, shape (n_features,)."""
    largest = np.abs(X).max(axis=0)
    return 4 * np.finfo(_kind(X)).eps * dense(largest).ravel().astype(np.float64)


def _deviations(perturbation: Any, shape: tuple[int, int], name: str) -> Any:
    """Return the sizes of errors: a number, one a feature, or a matrix of them times one number."""
    call = f"{type(perturbation).__name__}({name}=...)"
    common = getattr(perturbation, name)
    size = nonnegative(per_feature(common, shape[1], call, name), call, name)
    by_row = [key for key in ("X_std", "X_factor") if getattr(perturbation, key, None) is not None]
    if by_row and size.ndim:
        raise ValueError(f"{call} together with {by_row[0]}: let {name} be one number that multiplies it.")
    if len(by_row) > 1:
        raise ValueError(
            f"{type(perturbation).__name__}: X_std and X_factor say the same thing twice. Give one of them."
        )
    if by_row != ["X_std"]:
        return size
    own = per_entry(perturbation.X_std, shape, "X_std", f"{type(perturbation).__name__}({name}=...)")
    return float(size) * nonnegative(own, "X_std=...", "X_std")


def _plus(X: Any, sizes: Any, draw: Any) -> Any:
    """Return rows plus errors of given sizes, sparse where both are."""
    if not sparse.issparse(sizes):
        return dense(X) + sizes * draw(X.shape)
    errors = sparse.csr_array((sizes.data * draw(sizes.nnz), sizes.indices, sizes.indptr), shape=sizes.shape)
    return sparse.csr_matrix(X + errors) if sparse.issparse(X) else X + errors.toarray()


def _codes(perturbation: Perturbation, classes: NDArray[Any], y: Any) -> NDArray[np.intp]:
    """Return the numbers of labels among the classes of a model."""
    if not np.all(known := np.isin(y, classes)):
        raise ValueError(
            f"{perturbation!r}: y holds {np.unique(np.asarray(y)[~known]).tolist()!r:.80}, which the model does not know: "
            f"its classes are {classes.tolist()!r:.200}. Leave these rows out."
        )
    return np.searchsorted(classes, y)


def _worst(perturbation: Perturbation, X: Any, y: Any, model: Any, choose: Any) -> Any:
    """Return the features of each row that an adversary chooses, by what each adds to the label's lead over its rivals."""
    if model is None:
        raise ValueError(
            f"{perturbation!r}: the adversary needs to know the model. Pass model=..., or adversary='random'."
        )
    view = model_of(model).as_linear()
    if view is None or not view.decision.is_by_duels:
        raise NoCertificateError(
            f"{perturbation!r}: adversaries are known for linear models only, not for {model!r:.80}. Use adversary='random'."
        )
    codes = _codes(perturbation, classes_of(model), y)
    scores = view.scores(X)[0]
    parts, order = [], []
    for code in np.unique(codes):
        own = np.flatnonzero(codes == code)
        C, _ = view.decision.duels(int(code))
        smallest, kept = np.full(len(own), np.inf), 0.0
        for duel, v in zip(C, C @ view.coef, strict=True):
            gains = rescaled(X[own].astype(np.float64), np.ones(len(own)), v)
            found = choose(gains)
            leads = scores[own] @ duel - np.asarray((gains * found).sum(axis=1)).ravel()
            better = leads < smallest
            smallest = np.where(better, leads, smallest)
            others = rescaled(kept, (~better).astype(np.float64)) if np.ndim(kept) else 0.0 * gains
            kept = rescaled(found.astype(np.float64), better.astype(np.float64)) + others
        parts.append(kept)
        order.append(own)
    stacked = sparse.vstack(parts, format="csr") if sparse.issparse(X) else np.concatenate(parts)
    return stacked[np.argsort(np.concatenate(order))]
