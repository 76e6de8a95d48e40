"""The classifier that learns which features to distrust."""

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
"""Further starts lie at these shares of the way from the least to the largest lengths, in logarithms: w must not be 0 there."""
DEVIATIONS = 2.0
"""The validation loss has to fall by so many standard errors, or the learned lengths are not used."""
LEAST_ROWS = 4
"""The fewest validation rows for that test."""
LARGEST_SLOPES = 5e7
"""Most entries of the derivatives of features (400 MB)."""
SHIFTED = 5.0
"""Where validation rows lie so many standard deviations from the training rows in half of the columns, only one of the two
was scaled."""
SHORTEST, LONGEST = 0.01, 1.0
"""Bounds of the lengths by default, in standard deviations of the columns."""


@dataclass(kw_only=True)
class LengthsTask(Task):
    """The problems that `fit` has to solve once the lengths are chosen."""

    rows: Rows
    judged: Validation | None
    lower: Array
    upper: Array
    rng: np.random.Generator


class SafeClassifier(MappedScores, CollapsingClassifier):
    r"""Linear SVM, robust against errors whose size it learns, feature by feature: the safe SVM.

    Rows are known up to an ellipsoid with a length :math:`\sigma_k` along each feature k, the same for all rows,

    .. math:: \min_{w, b}\; \sum_i c_i \bigl(1 - y_i (w^\top x_i + b) + |\sigma \circ w|_2\bigr)_+ + \frac\alpha2 |w|_2^2,

    and the lengths are those for which the classifier has the lowest hinge loss on *validation* rows, between `sigma_min` and
    `sigma_max`. A feature with a large length is one that the classifier distrusts.

    Lengths are identified only by a difference between training and validation rows, so there has to be one. It is stated in
    one of two ways:

    - ``fit(X, y, X_val=..., y_val=...)``: validation rows as the model will meet them;
    - ``fit(X, y, X_std=...)``: validation rows are `n_copies` noisy copies of the training rows, with errors of `deploy_noise`
      times these standard deviations.

    And it is tested: lengths that are learned from one half of the validation rows have to lower the hinge loss on the other
    half, both ways taken together and row by row, by two standard errors. Unless they do, or where neither is stated, the
    lengths are `sigma_min`, and a :class:`holdfast.exceptions.NothingLearnedWarning` says so. It need not be noise that is
    found: with few training rows larger lengths may pay as a penalty does.

    ``method="implicit"``: the hinge is rounded, so that the validation loss has a gradient in the squares of the lengths, by
    the implicit function theorem; L-BFGS within the bounds, the rounding taken back in three stages, from several starts.
    ``method="stochastic"``: stochastic steps on both levels at once, in the manner of Couellan & Wang, the gradient taken
    through one step only: cheap for many rows, rough and biased. The problem is not convex in the lengths, and the least
    validation loss need not be found. For given lengths it is convex, and `gap_` certifies the final fit, that of
    ``RobustLinearClassifier(Ellipsoid(shape=model.learned_shape_), alpha=alpha)``.

    More than two classes are trained one against the rest, for the same lengths: those that have the lowest loss together.

    With `features`, :math:`\phi`, lengths are still those of the inputs, and rows are robust against what errors do to their
    features to first order: :math:`|\sigma \circ J_i^\top w|_2` with the derivatives :math:`J_i` of the features at row i. That
    is exact for small lengths and no bound for large ones (certificates do not rely on it). One radius in feature space for all
    rows, as published, would not do: whatever the lengths, it changes no more than the strength of the penalty.

    Parameters
    ----------
    sigma_min, sigma_max : float or array-like of shape (n_features,), default=None
        Bounds of the lengths, in the units of the features, one or one for each; `sigma_min` is above 0 where it is below
        `sigma_max`. Where they are equal nothing is learned. None: 0.01 and 1 standard deviations of each column.
    features : RobustFourierFeatures, RobustNystroem or None, default=None
        A feature map; None for the features themselves.
    method : {"implicit", "stochastic"}, default="implicit"
    deploy_noise : float, default=1.0
        How noisy rows will be when the model is used, in multiples of ``X_std``.
    n_copies : int, default=5
        Noisy copies of each row.
    n_starts : int, default=3
        The first one is by how much more validation rows vary within classes; all lengths are alike in the others.
    alpha : float, default=1.0
        Strength of the ridge, > 0, what scikit-learn calls 1/C. Not learned.
    fit_intercept : bool, default=True
    class_weight : dict or "balanced", default=None
        Factors on the weights of the classes, in training and in validation.
    solver : str or Solver, default=None
        Of fits for given lengths, as for :class:`RobustLinearClassifier`. None picks one.
    tol : float, default=1e-6
        Largest certified relative gap to accept.
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
        Their squares, as ``Ellipsoid(shape=...)`` takes them; `certify` asks about that ellipsoid unless told otherwise.
    is_learned_ : bool
        Whether they are more than the least ones.
    gain_, gain_error_ : float
        By how much the mean hinge loss on validation rows is lower than with the least lengths, and the standard error of that;
        nan where there was nothing to learn from. Over classes it is added up.
    spreads_ : ndarray of shape (n_features,)
        The standard deviation of each column.
    feature_map_ : RobustFourierFeatures or RobustNystroem
        With `features`: fitted.
    coef_, intercept_, classes_, objective_, lower_bound_, gap_, collapsed_, proof_weights_, norm_bound_, n_iter_, solution_
        As for :class:`RobustLinearClassifier`, of the final fit; with `features`, the weights of these.
    holdfast_version_, n_features_in_, feature_names_in_

    Notes
    -----
    `X_val` belongs to the fit as a whole: scikit-learn's cross-validation hands it to every fold as it is, if it has another
    number of rows than X, so none of its rows may be among those of X. A ``Pipeline`` does not transform it unless it is
    made with ``transform_input=["X_val"]``.

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
            Standard deviation of each entry's own error, for noisy copies of the rows as validation rows.
        X_cov : array-like of shape (n_samples, n_features, n_features), default=None
            Covariance of each row's errors.
        X_factor : array-like of shape (n_samples, n_features, r), default=None
            A factor F of each row's covariance F F'.
        X_val : array-like of shape (n_validation, n_features), default=None
            Validation rows, in the place of noisy copies; they all count alike.
        y_val : array-like of shape (n_validation,), default=None
            Their classes, which have to be among those of `y`.
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
        """Return the least and the largest lengths."""
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
                f"{call}: at a length of 0 the loss has no slope in it, so that none would be learned. Give a sigma_min > 0, "
                "such as a thousandth of sigma_max, or sigma_max=0 too for features that are exact."
            )
        return least, largest

    def _copies(self, rows: Rows, metadata: Mapping[str, Any], rng: np.random.Generator) -> Validation | None:
        """Return noisy copies of the rows; None where no noise is stated."""
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
        """Return validation rows as they are given."""
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
                f"{NAME}.fit: {judged.n_units} validation rows do not tell whether lengths pay; {LEAST_ROWS} are the least, "
                "and hundreds are better."
            )
        return judged

    @staticmethod
    def _warn_of_place(rows: Rows, inputs: Array, call: str) -> None:
        """Warn where validation rows lie so far from the training rows that only one of the two was scaled."""
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
        """Return the squares of the lengths to train for; set whether they were learned, and the gain."""
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
        """Return squares of lengths to start from: by how much validation rows vary more within classes, then lengths alike."""
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
        """Return the hinge losses of validation rows, added up over classes, after training for lengths."""
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
        """Return squares of lengths, between `low` and `high`, with a low validation loss."""
        problem = self._validated(rows, judged)
        if self.method == "stochastic":
            return stochastic_lengths(problem, starts[0], low, high, rng=rng, report=report)
        return problem.minimised(starts, low, high, report=report)

    def _validated(self, rows: Rows, judged: Validation) -> ValidatedLengths:
        """Return the validation loss as a function of lengths."""
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
        """Return the labels of two classes, or those of each class against the rest."""
        positives = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [np.where(codes == k, 1.0, -1.0) for k in positives]

    def _problems_for(self, rows: Rows, squares: Array) -> list[MarginScaleProblem]:
        """Return the problem of two classes, or one for each of more, for given lengths."""
        features, sets = rows_of(rows.features), ellipsoids(squares, rows.slopes)
        alpha, b = float(self.alpha), bool(self.fit_intercept)
        return [MarginScaleProblem(features, y, rows.weights, Hinge(), sets, alpha, b) for y in self._signs(rows.codes)]

    def _warn_of_learning(self) -> None:
        """Warn that the lengths are the least ones although others were possible, and say why."""
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
        """Return the lengths by feature, those first that are the largest beside the spread of their columns."""
        check_is_fitted(self)
        shares = np.divide(self.lengths_, self.spreads_, out=np.zeros_like(self.lengths_), where=self.spreads_ > 0)
        order = np.argsort(-shares, kind="stable")
        given = getattr(self, "feature_names_in_", [f"x{k}" for k in range(len(shares))])
        names = [str(given[k]) for k in order]
        return Distrust(names, self.lengths_[order], shares[order], self.gain_, self.gain_error_, self.is_learned_)

    def _own_set(self, rows: Any, stated: Mapping[str, Any], call: str) -> UncertaintySet:
        return Ellipsoid(shape=self.learned_shape_)
