"""The classifier that learns how large the errors of each feature are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from holdfast._core.allowed import NOTHING, Choice, Count, Instance, Number, short
from holdfast._core.caller import warn_caller
from holdfast._core.exceptions import NothingLearnedWarning, UnitsWarning
from holdfast._core.labels import check_columns
from holdfast._core.loss import Array
from holdfast._core.metadata import NoiseByRow, takes_metadata
from holdfast._core.solution import Solution
from holdfast._core.solver import Report
from holdfast._core.uncertainty import UncertaintySet
from holdfast._data import rows_of
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._proofs.certificate import Certificate
from holdfast._training.lengths import ValidatedLengths, ellipsoids
from holdfast._training.stochastic_lengths import stochastic_lengths
from holdfast.estimators.callbacks import with_callbacks
from holdfast.estimators.inputs import labelled_rows, one_blas_thread, seed_of
from holdfast.estimators.linear import Task
from holdfast.estimators.mapped_scores import MappedScores
from holdfast.estimators.validation import Distrust, Rows, Validation, stated_lengths
from holdfast.estimators.worst_case import CollapsingClassifier
from holdfast.features.expected_features import checked_rows
from holdfast.features.robust_features import RobustFeatures
from holdfast.features.row_noise import RowNoise
from holdfast.losses import Hinge
from holdfast.uncertainty import Ellipsoid
from holdfast.uncertainty.ellipsoids import CommonEllipsoid

NAME = "SafeClassifier"
NOISE = ("X_std", "X_cov", "X_factor")
STARTS = (0.35, 0.75)
"""Further starts lie between these shares of the way from the smallest to the largest lengths, on a log scale.

At a start w must not be 0.
"""
DEVIATIONS = 2.0
"""Learned lengths are used only if they lower the validation loss by more than this many standard errors."""
LEAST_ROWS = 4
"""The fewest validation rows for that test."""
LARGEST_SLOPES = 5e7
"""The most entries of the derivatives of features (400 MB)."""
SHIFTED = 5.0
"""If validation rows are more standard deviations than this from the training rows, in more than half of the columns,
probably only one of the two was scaled."""
SHORTEST, LONGEST = 0.01, 1.0
"""Default bounds of the lengths, in standard deviations of the columns."""


@dataclass(kw_only=True)
class LengthsTask(Task):
    """The problems that `fit` has to solve when the lengths have been chosen."""

    rows: Rows
    judged: Validation | None
    lower: Array
    upper: Array
    rng: np.random.Generator


class SafeClassifier(MappedScores, CollapsingClassifier):
    r"""Linear SVM, robust against errors whose size it learns for each feature: the safe SVM.

    All rows are known up to the same ellipsoid, with the half-axis :math:`\sigma_k`, called length, along feature k,

    .. math:: \min_{w, b}\; \sum_i c_i \bigl(1 - y_i (w^\top x_i + b) + |\sigma \circ w|_2\bigr)_+ + \frac\alpha2 |w|_2^2,

    and the lengths, between `sigma_min` and `sigma_max`, are those with the lowest hinge loss on *validation* rows. The
    classifier distrusts a feature with a large length.

    Lengths can only be learned if validation rows differ from training rows. State the difference in one of two ways:

    - ``fit(X, y, X_val=..., y_val=...)``: validation rows like those at prediction;
    - ``fit(X, y, X_std=...)``: validation rows are `n_copies` noisy copies of the training rows, with errors of `deploy_noise`
      times these standard deviations.

    Learned lengths are tested. Lengths learned from one half of the validation rows have to lower the hinge loss on the
    other half, and the other way round; over both halves, paired by row, the mean loss has to fall by more than two
    standard errors. If it does not, or if no validation rows or noise are given, the lengths are `sigma_min`, and there
    is a :class:`holdfast.exceptions.NothingLearnedWarning`. Learned lengths need not be due to noise: with few training
    rows larger lengths may also help in the way that a penalty does.

    ``method="implicit"`` smooths the hinge, so that the validation loss has a gradient in the squared lengths, by the
    implicit function theorem. It minimises by L-BFGS within the bounds, with less and less smoothing in three stages,
    from several starts. ``method="stochastic"`` takes stochastic steps on both levels at once, as Couellan & Wang do,
    with a gradient through one step only: cheap for many rows, but rough and biased. The problem is not convex in the
    lengths, so the lowest validation loss need not be found. For given lengths it is convex, and `gap_` certifies the
    final fit, which is that of ``RobustLinearClassifier(Ellipsoid(shape=model.learned_shape_), alpha=alpha)``.

    With more than two classes, each is trained against the rest, all with the lengths of the lowest total loss.

    With a feature map :math:`\phi` (`features`), lengths are still those of the inputs. The fit is robust against
    errors to first order: the term is :math:`|\sigma \circ J_i^\top w|_2` with the derivatives :math:`J_i` of the
    features at row i. This is accurate for small lengths, and not a bound for large ones (certificates do not rely on
    it). One radius in feature space for all rows, as published, would not do: for any lengths, it only changes the
    strength of the penalty.

    Parameters
    ----------
    sigma_min, sigma_max : float or array-like of shape (n_features,), default=None
        Bounds of the lengths, in the units of the features: one number, or one for each feature. If they are equal for
        a feature its length is fixed; otherwise `sigma_min` must be above 0. None: 0.01 and 1 standard deviations of
        each column.
    features : RobustFourierFeatures, RobustNystroem or None, default=None
        A feature map; None for the features themselves.
    method : {"implicit", "stochastic"}, default="implicit"
    deploy_noise : float, default=1.0
        The noise of rows at prediction, in multiples of ``X_std``.
    n_copies : int, default=5
        Noisy copies of each row.
    n_starts : int, default=3
        The number of starts. The first has squared lengths by how much more validation rows vary within classes than
        training rows; in the others all lengths are at the same share of the way between their bounds.
    alpha : float, default=1.0
        Strength of the ridge, > 0: 1/C of scikit-learn. It is not learned.
    fit_intercept : bool, default=True
    class_weight : dict or "balanced", default=None
        Factors on the weights of the classes, in training and in validation.
    solver : str or Solver, default=None
        The solver of fits for given lengths, as for :class:`RobustLinearClassifier`. None picks one.
    tol : float, default=1e-6
        The largest certified relative gap to accept.
    max_iter : int, default=1000
    verbose : int, default=0
        1 logs progress to the logger "holdfast".
    random_state : int, RandomState instance or None, default=0
        Seeds noisy copies and stochastic steps.

    Attributes
    ----------
    lengths_ : ndarray of shape (n_features,)
        The lengths that the model was trained for, in the units of the features.
    learned_shape_ : ndarray of shape (n_features,)
        The squared lengths, as ``Ellipsoid(shape=...)`` takes them; by default `certify` uses that ellipsoid.
    is_learned_ : bool
        Whether learned lengths are used; otherwise they are the smallest ones.
    gain_, gain_error_ : float
        The mean hinge loss on validation rows with the smallest lengths minus that with learned ones, and its standard
        error; nan if there was nothing to learn from. With more than two classes, losses are summed over the classes.
    spreads_ : ndarray of shape (n_features,)
        The standard deviation of each column.
    feature_map_ : RobustFourierFeatures or RobustNystroem
        With `features`: the fitted feature map.
    coef_, intercept_, classes_, objective_, lower_bound_, gap_, collapsed_, proof_weights_, norm_bound_, n_iter_, solution_
        As for :class:`RobustLinearClassifier`, for the final fit; with `features`, `coef_` are the weights of mapped
        features.
    holdfast_version_, n_features_in_, feature_names_in_

    Notes
    -----
    `X_val` belongs to the fit as a whole: scikit-learn's cross-validation passes it to every fold unchanged, if its
    number of rows differs from that of X. So X and `X_val` must not share rows. A ``Pipeline`` transforms `X_val` only
    if it is made with ``transform_input=["X_val"]``.

    References
    ----------
    N. Couellan, S. Jan, "Feature uncertainty bounds for explicit feature maps and large robust nonlinear SVM classifiers"
    (2020).
    N. Couellan, W. Wang, "Bi-level stochastic gradient for large scale support vector machine" (2015).

    Examples
    --------
    >>> from holdfast import SafeClassifier
    >>> rng = np.random.default_rng(0)
    >>> def measured(n_rows, noise):
    ...     X = rng.normal(size=(n_rows, 4))
    ...     return X + noise * rng.normal(size=X.shape), np.where(X.sum(axis=1) > 0, "yes", "no")
    >>> X, y = measured(200, 0)
    >>> X_val, y_val = measured(400, [0, 0, 2, 2])
    >>> model = SafeClassifier().fit(X, y, X_val=X_val, y_val=y_val)
    >>> bool(model.is_learned_), model.gap_ < 1e-6
    (True, True)
    >>> bool(model.lengths_[2:].min() > 2 * model.lengths_[:2].max())
    True
    """

    parameter_table = {
        "features": Instance(RobustFeatures, "give RobustFourierFeatures(...) or RobustNystroem(...)") | NOTHING,
        "method": Choice("implicit", "stochastic"),
        "deploy_noise": Number(),
        "n_copies": Count(),
        "n_starts": Count(),
        "alpha": Number(strictly=True),
    }

    def __init__(
        self,
        sigma_min: Any = None,
        sigma_max: Any = None,
        *,
        features: Any = None,
        method: str = "implicit",
        deploy_noise: float = 1.0,
        n_copies: int = 5,
        n_starts: int = 3,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        solver: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        verbose: int = 0,
        random_state: Any = 0,
    ):
        self.sigma_min = sigma_min
        self.sigma_max = sigma_max
        self.features = features
        self.method = method
        self.deploy_noise = deploy_noise
        self.n_copies = n_copies
        self.n_starts = n_starts
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    @takes_metadata
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        **metadata: Unpack[NoiseByRow],
    ) -> Self:
        """Learn the lengths, and fit the classifier for them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two classes or more.
        sample_weight : array-like of shape (n_samples,), default=None
        X_std : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            Standard deviation of each entry's error, for noisy copies of the rows as validation rows.
        X_cov : array-like of shape (n_samples, n_features, n_features), default=None
            Covariance of each row's errors.
        X_factor : array-like of shape (n_samples, n_features, r), default=None
            A factor F of each row's covariance F F'.
        X_val : array-like of shape (n_validation, n_features), default=None
            Validation rows, instead of noisy copies; they all have the same weight, except for `class_weight`.
        y_val : array-like of shape (n_validation,), default=None
            Their classes, which must be among those of `y`.
        """
        return self._fitted(X, y, sample_weight, metadata, X_val=X_val, y_val=y_val)

    def _task(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any], **others: Any) -> Task:
        X_val, y_val = others["X_val"], others["y_val"]
        self._refuse_two(metadata, X_val, y_val)
        rows = self._checked(X, y, sample_weight, metadata)
        lower, upper = self._limits(rows.spreads)
        rng = np.random.default_rng(seed_of(self.random_state))
        judged = self._copies(rows, metadata, rng) if X_val is None else self._given(rows, X_val, y_val)
        return LengthsTask([], {"spreads_": rows.spreads}, rows=rows, judged=judged, lower=lower, upper=upper, rng=rng)

    def _learn(self, task: Task, report: Report) -> None:
        assert isinstance(task, LengthsTask)
        squares = np.square(task.lower)
        self.gain_, self.gain_error_, self.is_learned_ = np.nan, np.nan, False
        if task.judged is not None and np.any(task.upper > task.lower):
            with one_blas_thread:
                squares = self._safest(task.rows, task.judged, task.lower, task.upper, task.rng, report)
        task.learned |= {"lengths_": np.sqrt(squares), "learned_shape_": squares}
        task.problems = self._problems_for(task.rows, squares)

    def _warn(self, task: Task) -> None:
        self._warn_of_learning()
        self._warn_of_collapse("a smaller sigma_min, class_weight='balanced', or a smaller alpha")
        self._warn_uncertified()

    def _refuse_two(self, metadata: Mapping[str, Any], X_val: Any, y_val: Any) -> None:
        """Raise if validation rows are stated incompletely, or twice."""
        if (X_val is None) != (y_val is None):
            given, lacking = ("X_val", "y_val") if y_val is None else ("y_val", "X_val")
            raise ValueError(f"{NAME}.fit(..., {given}=...): validation rows need both. Pass {lacking} too.")
        if X_val is not None and metadata:
            raise ValueError(
                f"{NAME}.fit(..., {next(iter(metadata))}=..., X_val=...): validation rows are given, or noisy copies of X. "
                "State one."
            )

    def _checked(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any]) -> Rows:
        found = labelled_rows(
            self, X, y, sample_weight, metadata, by_feature=("sigma_min", "sigma_max"), check=checked_rows
        )
        inputs, codes, weights, counts, self.classes_ = found
        middle = np.average(inputs, axis=0, weights=counts)
        spreads = np.sqrt(np.average(np.square(inputs - middle), axis=0, weights=counts))
        factors = np.bincount(codes, weights) / np.bincount(codes, counts)
        if self.features is None:
            return Rows(inputs, inputs, codes, weights, factors, spreads, None)
        self.feature_map_ = clone(self.features).fit(inputs, sample_weight=counts)
        features = self.feature_map_.transform(inputs)
        return Rows(inputs, features, codes, weights, factors, spreads, self._slopes(inputs, features.shape[1]))

    def _limits(self, spreads: Array) -> tuple[Array, Array]:
        """Return the smallest and the largest lengths, checked."""
        least, largest = (
            default * spreads if value is None else stated_lengths(value, f"{NAME}({name}", len(spreads))
            for name, value, default in (
                ("sigma_min", self.sigma_min, SHORTEST),
                ("sigma_max", self.sigma_max, LONGEST),
            )
        )
        call = f"{NAME}(sigma_min={short(self.sigma_min):.80}, sigma_max={short(self.sigma_max):.80})"
        if np.any(least > largest):
            k = int(np.argmax(least - largest))
            raise ValueError(
                f"{call}: feature {k} has the least length {least[k]:.3g} and the largest {largest[k]:.3g}. State both in the "
                "units of the features; by default they are 0.01 and 1 standard deviations of the column."
            )
        if np.any((least == 0) & (largest > 0)):
            raise ValueError(
                f"{call}: at a length of 0 the loss has no slope in the length, so it would not be learned. Give a "
                "sigma_min > 0, such as a thousandth of sigma_max, or sigma_max=0 too for features that are exact."
            )
        return least, largest

    def _copies(self, rows: Rows, metadata: Mapping[str, Any], rng: np.random.Generator) -> Validation | None:
        """Return noisy copies of the rows; None if no noise is stated."""
        if not metadata:
            return None
        noise = RowNoise.stated(rows.inputs, metadata).times(float(self.deploy_noise))
        if not np.any(noise.deviations):
            return None
        own, n = np.flatnonzero(rows.weights), int(self.n_copies)
        drawn = np.concatenate([rows.inputs[own] + noise.take(own).drawn(rng) for _ in range(n)])
        weights = np.tile(rows.weights[own], n)
        return self._enough(Validation(drawn, np.tile(rows.codes[own], n), weights / weights.sum(), len(own)))

    def _given(self, rows: Rows, X_val: Any, y_val: Any) -> Validation:
        """Return the given validation rows, checked."""
        call = f"{NAME}.fit(..., X_val=..., y_val=...)"
        check_columns(X_val, {"y_val": y_val}, self)
        inputs, y = checked_rows(self, X_val, y_val, call=call, reset=False)
        known = np.isin(y, self.classes_)
        if not np.all(known):
            raise ValueError(
                f"{call}: y_val holds {np.unique(y[~known]).tolist()!r:.80}, y has {self.classes_.tolist()}."
            )
        codes = np.searchsorted(self.classes_, y)
        self._warn_of_place(rows, inputs, call)
        weights = rows.factors[codes]
        return self._enough(Validation(inputs, codes, weights / weights.sum(), len(codes)))

    @staticmethod
    def _enough(judged: Validation) -> Validation:
        if judged.n_units < LEAST_ROWS:
            raise ValueError(
                f"{NAME}.fit: {judged.n_units} validation rows are too few to test whether lengths help; give "
                f"{LEAST_ROWS} at least, better hundreds."
            )
        return judged

    @staticmethod
    def _warn_of_place(rows: Rows, inputs: Array, call: str) -> None:
        """Warn if validation rows are so far from the training rows that probably only one of the two was scaled."""
        away = np.abs(np.median(inputs, axis=0) - np.median(rows.inputs, axis=0))
        far = away > SHIFTED * rows.spreads
        if 2 * np.sum(far & (rows.spreads > 0)) > np.sum(rows.spreads > 0):
            warn_caller(
                f"{call}: in {np.sum(far)} of {len(far)} columns the validation rows lie more than {SHIFTED:g} standard "
                "deviations from the others. Was X scaled and X_val not? A Pipeline transforms both with "
                "transform_input=['X_val'].",
                UnitsWarning,
            )

    def _safest(
        self, rows: Rows, judged: Validation, lower: Array, upper: Array, rng: np.random.Generator, report: Report
    ) -> Array:
        """Return the squared lengths to train for; set `is_learned_`, `gain_` and `gain_error_`."""
        low, high = np.square(lower), np.square(upper)
        plain, starts, found = self._losses(rows, judged, low, report), self._first_lengths(rows, judged, low, high), []
        other = np.empty_like(plain)
        for half in judged.halves():
            report(f"lengths from {np.sum(half)} of {len(half)} validation rows, to be tested on the others")
            own = judged._replace(weights=np.where(half, judged.weights, 0.0))
            found.append(self._learned(rows, own, starts, low, high, rng, report))
            other[~half] = self._losses(rows, judged, found[-1], report)[~half]
        self.gain_, self.gain_error_ = judged.mean(plain - other)
        base = float(judged.weights @ plain)
        report(f"validation loss {base:.4g}, lower by {self.gain_:.3g}, standard error {self.gain_error_:.2g}")
        least = self.tol * base
        if self.gain_ > DEVIATIONS * self.gain_error_ + least:
            squares = self._learned(rows, judged, found, low, high, rng, report)
            self.is_learned_ = judged.weights @ self._losses(rows, judged, squares, report) < base - least
        return squares if self.is_learned_ else low

    def _first_lengths(self, rows: Rows, judged: Validation, low: Array, high: Array) -> list[Array]:
        """Return squared lengths to start from: extra variances of validation rows within classes, then even ones."""
        more = np.zeros(len(low))
        for k in range(len(self.classes_)):
            own, others = rows.codes == k, judged.codes == k
            if np.any(judged.weights[others]):
                X, c = rows.inputs[own], rows.weights[own]
                middle = c @ X / c.sum()
                away = judged.weights[others] @ np.square(judged.inputs[others] - middle)
                more += away - judged.weights[others].sum() * (c @ np.square(X - middle)) / c.sum()
        shares = np.linspace(*STARTS, int(self.n_starts) - 1)
        alike = [np.where(high > 0, low ** (1 - share) * high**share, 0.0) for share in shares]
        return [np.clip(more, low, high), *alike]

    def _losses(self, rows: Rows, judged: Validation, squares: Array, report: Report) -> Array:
        """Return the hinge losses of validation rows, summed over classes, after training for squared lengths."""
        problems = self._problems_for(rows, squares)
        fits: list[tuple[Solution, Certificate]] = self._solved(Task(problems, {}), report)
        found, features = np.zeros(len(judged.codes)), self._mapped(judged.inputs)
        for problem, (fit, _), signs in zip(problems, fits, self._signs(judged.codes), strict=True):
            w, b = problem.split(fit.parameters)
            found += np.maximum(1 - signs * (features @ w + b), 0.0)
        return found

    def _learned(
        self,
        rows: Rows,
        judged: Validation,
        starts: Sequence[Array],
        low: Array,
        high: Array,
        rng: np.random.Generator,
        report: Report,
    ) -> Array:
        """Return squared lengths between `low` and `high` with a low validation loss."""
        problem = self._validated(rows, judged)
        if self.method == "stochastic":
            return stochastic_lengths(problem, starts[0], low, high, rng=rng, report=report)
        return problem.minimised(starts, low, high, report=report)

    def _validated(self, rows: Rows, judged: Validation) -> ValidatedLengths:
        """Return the validation loss as a function of squared lengths."""
        asked, none, b = rows_of(self._mapped(judged.inputs)), CommonEllipsoid(np.zeros(())), bool(self.fit_intercept)
        others = [
            MarginScaleProblem(asked, y, judged.weights, Hinge(), none, 0.0, b) for y in self._signs(judged.codes)
        ]
        return ValidatedLengths(self._problems_for(rows, np.zeros(len(rows.spreads))), others, rows.slopes)

    def _slopes(self, inputs: Array, width: int) -> Array:
        """Return the derivatives of the features at each row."""
        n, d = inputs.shape
        if n * d * width > LARGEST_SLOPES:
            raise ValueError(
                f"{NAME}(features={self.features!r:.60}).fit: the derivatives of {width} features at {n} rows of {d} inputs "
                f"would take {8 * n * d * width:.2g} bytes. Use fewer components or fewer rows."
            )
        ones = RowNoise.mixed(np.broadcast_to(np.eye(d), (n, d, d)))
        return np.asarray(self.feature_map_.uncertainty_effect(d).linearised(inputs, ones).factor)

    def _signs(self, codes: NDArray[np.intp]) -> list[Array]:
        """Return the labels, 1 and -1, of two classes, or of each class against the rest."""
        positives = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [np.where(codes == k, 1.0, -1.0) for k in positives]

    def _problems_for(self, rows: Rows, squares: Array) -> list[MarginScaleProblem]:
        """Return one problem for two classes, or one for each of more classes, for given squared lengths."""
        features, sets = rows_of(rows.features), ellipsoids(squares, rows.slopes)
        alpha, b = float(self.alpha), bool(self.fit_intercept)
        return [MarginScaleProblem(features, y, rows.weights, Hinge(), sets, alpha, b) for y in self._signs(rows.codes)]

    def _warn_of_learning(self) -> None:
        """If the lengths are the smallest ones although others were possible, warn, and say why."""
        least, largest = self._limits(self.spreads_)
        if self.is_learned_ or not np.any(largest > least):
            return
        why = (
            "pass X_val and y_val, or X_std with deploy_noise > 0: lengths are learned from validation rows that differ"
            if np.isnan(self.gain_)
            else f"learned ones lower the validation loss by {self.gain_:.2g}, standard error {self.gain_error_:.2g}, and "
            f"{DEVIATIONS:g} of these are asked for"
        )
        warn_caller(f"{NAME}.fit: nothing was learned, the lengths are sigma_min; {why}.", NothingLearnedWarning)

    def distrust(self) -> Distrust:
        """Return the lengths by feature, sorted by length over the column's standard deviation, the largest first."""
        check_is_fitted(self)
        shares = np.divide(self.lengths_, self.spreads_, out=np.zeros_like(self.lengths_), where=self.spreads_ > 0)
        order = np.argsort(-shares, kind="stable")
        given = getattr(self, "feature_names_in_", [f"x{k}" for k in range(len(shares))])
        names = [str(given[k]) for k in order]
        return Distrust(names, self.lengths_[order], shares[order], self.gain_, self.gain_error_, self.is_learned_)

    def _own_set(self, rows: Any, stated: Mapping[str, Any], call: str) -> UncertaintySet:
        return Ellipsoid(shape=self.learned_shape_)
