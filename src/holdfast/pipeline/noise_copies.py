"""Any classifier, trained on random draws of uncertain rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, Unpack, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_method_params, check_is_fitted, has_fit_parameter, validate_data

from holdfast._core.allowed import NOTHING, SEED, VERBOSE, Count, Number, Several
from holdfast._core.caller import warn_caller
from holdfast._core.labels import check_columns, check_features
from holdfast._core.loss import Array
from holdfast._core.metadata import METADATA, NOTHING_STATED, SetsByRow, takes_metadata
from holdfast._core.offers import offered_if
from holdfast._core.progress import reporter
from holdfast._core.uncertainty import UncertaintySet
from holdfast._core.whole_fits import WholeFits
from holdfast.estimators.inputs import class_codes, refuse_exact_alone, row_weights, seed_of
from holdfast.estimators.units import warn_of_units
from holdfast.pipeline.inner_fit import CLASSIFIER, InnerFit
from holdfast.pipeline.stated_sets import meaning

NAME = "NoiseCopies"
AVERAGED = ("predict_proba", "decision_function")
"""Methods that are averaged over draws; `predict` uses the first of these that the estimator has."""
QUESTIONS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score")
STOPS_EARLY = 10_000
"""With more rows than this, scikit-learn's ``early_stopping="auto"`` sets some of them aside."""


def _has(method: str) -> Callable[[NoiseCopies], bool]:
    def check(meta: NoiseCopies) -> bool:
        try:
            getattr(getattr(meta, "estimator_", meta.estimator), method)
        except AttributeError as error:
            raise AttributeError(f"NoiseCopies has no {method}, as its estimator has none: {error}") from error
        return True

    return check


class NoiseCopies(WholeFits, InnerFit, ClassifierMixin, BaseEstimator):
    r"""Any classifier, trained on random draws of uncertain rows; its predictions can be averaged over draws too.

    The rows :math:`x_i` become :math:`x_i + \delta_{ik}`, k = 1, ..., n_copies, with independent draws
    :math:`\delta_{ik} \sim N(0, C_i)` of Gaussian noise, or uniform draws from a set. The measured rows themselves are
    not among them unless `levels` has a 0. The copies of a row share its weight :math:`c_i`, so that penalties have the
    same meaning as without copies. In this way boosting, and other models that take no error bars, can be trained with
    them. For a linear model NoiseCopies is the sampled version of :class:`GaussianRobustClassifier`, which needs no
    draws, nor memory for them.

    With ``average_draws=k``, rows at prediction are drawn too, if their errors are given. `predict_proba`,
    `predict_log_proba` and `decision_function` average over k draws of each row. `predict` and `score` use the class
    with the largest averaged probability, or averaged score if the estimator has no `predict_proba`. (A decision
    threshold of your own belongs around NoiseCopies, not inside it.) At four times the errors of the breast-cancer
    data, ten draws made boosting on copies 0.6 points more accurate, and its log loss 0.014 lower
    (``benchmarks/noise_copies.md``). Draws come in pairs, :math:`x + \delta` and :math:`x - \delta`, so let k be even.
    All rows share the same standard normal (or uniform) numbers, which the seed of `fit` determines: a row always gets
    the same answer, whatever other rows are predicted with it. Only the draws of sparse rows depend on the other rows.

    Parameters of the estimator that count rows count copies: ``min_samples_leaf=20``, the default of boosting, may be
    two rows. Where errors are small compared with the distances between rows, the copies of a row lie close together,
    and the model overfits: with ``min_samples_leaf=20 * n_copies``, boosting on copies was 1.9 (standard error 1.0)
    points more accurate on clean digits, as good as without copies. With large errors it made little difference: 0.2
    (0.1) points at four times the errors of the breast-cancer data (``benchmarks/noise_copies.md``).

    Draws of one row must not be split between training and validation: put ``GridSearchCV`` or ``cross_validate``
    around NoiseCopies, never inside it. A model that sets rows aside by itself (boosting with ``early_stopping``, which
    is on above 10 000 rows, *copies included*; ``LogisticRegressionCV``; ``CalibratedClassifierCV``) validates on
    copies of rows that it is trained on. Switch that off, or put such a model around NoiseCopies. `fit` warns of
    ``early_stopping``.

    Scale features and errors together, as :class:`UncertainPipeline` does. In such a pipeline, if the only errors are
    those that an imputer adds, rows without missing entries are drawn as they are. The estimator inside is given no
    errors of rows; it may hold a set of its own.

    Parameters
    ----------
    estimator : classifier
    n_copies : int, default=10
        Draws of each row at each level, 1 or more. Ten are about as good as very many.
    levels : sequence of float, default=(1,)
        Multiples of the stated uncertainty to draw from, n_copies times each; all levels have the same share of a row's
        weight. Level 0 is the row as it is, once (n_copies times if the estimator takes no weights). ``(0, 1, 2, 4)``
        suits a model for both clean and noisy rows.
    average_draws : int, default=None
        Draws of each row at prediction, if its errors are given; without errors rows are exact. None: predictions take
        no errors.
    uncertainty : UncertaintySet, default=None
        The uncertainty that all rows share, such as ``GaussianNoise(std=0.2)`` or ``Box(half_widths=s)``; or how to
        read the metadata of `fit`: ``GaussianNoise(4.0)`` for four times ``X_std``, ``Box()`` for half-widths
        ``X_std``. None: Gaussian noise for ``X_std``, ``X_cov`` and ``X_factor``, intervals for ``X_lower`` and
        ``X_upper``, balls for ``X_radius``. It applies to the rows of `fit`; at prediction, rows have the errors that
        are given with them.
    random_state : int, RandomState or None, default=None
        Seeds the draws. The inner estimator has a seed of its own.
    verbose : int, default=0
        1 logs draws and fits to the logger "holdfast".

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    draw_seed_ : int
        The seed drawn from `random_state`; it determines the draws of `fit` and of predictions.
    row_noise_ : bool
        Whether `fit` was given errors of rows; with `average_draws`, predictions without errors then warn.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from holdfast import GaussianNoise, NoiseCopies
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> data = load_breast_cancer_errors()
    >>> boosting = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    >>> model = NoiseCopies(boosting, 5, uncertainty=GaussianNoise(4.0), random_state=0)  # for four times the noise
    >>> bool(model.fit(data.X, data.y, X_std=data.X_std).score(data.X, data.y) > 0.9)
    True
    >>> model = NoiseCopies(boosting, 2, levels=(0, 1, 4), average_draws=10, random_state=0)
    >>> model = model.fit(data.X, data.y, X_std=data.X_std)
    >>> sure, unsure = (model.predict_proba(data.X[3:4], X_std=m * data.X_std[3:4])[0, 0] for m in (0, 4))
    >>> f"{sure:.2f} {unsure:.2f}"
    '0.85 0.44'
    """

    draws_errors = True
    """`fit` draws from errors of rows, so it requires them, and passes none to the estimator inside."""
    parameter_table = {
        "estimator": CLASSIFIER,
        "n_copies": Count(),
        "levels": Several(Number()),
        "average_draws": Count() | NOTHING,
        "random_state": SEED,
        "verbose": VERBOSE,
    }
    estimator_: Any

    def __init__(
        self,
        estimator: Any,
        n_copies: int = 10,
        *,
        levels: Any = (1,),
        average_draws: int | None = None,
        uncertainty: UncertaintySet | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.estimator = estimator
        self.n_copies = n_copies
        self.levels = levels
        self.average_draws = average_draws
        self.uncertainty = uncertainty
        self.random_state = random_state
        self.verbose = verbose

    @property
    def averages_errors(self) -> bool:
        """Whether predictions take errors of their rows."""
        return self.average_draws is not None

    def get_metadata_routing(self) -> Any:
        """Return the metadata that `fit` takes and hands on, and errors for predictions if these average over them."""
        router = super().get_metadata_routing()
        for method in QUESTIONS:
            asked = getattr(router._self_request, method)
            for name in METADATA:
                if asked.requests[name] is None:  # the user has not set a request
                    asked.add_request(param=name, alias=self.averages_errors)
        return router

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.input_tags.sparse, inner.input_tags.allow_nan
        tags.classifier_tags = inner.classifier_tags
        return tags

    @takes_metadata
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, metadata: SetsByRow = NOTHING_STATED, **params: Any
    ) -> Self:
        """Fit the estimator to draws.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Sparse only if the estimator takes it, and if the errors are sparse too, such as a sparse ``X_std``.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            Only for an estimator whose `fit` takes it.
        **metadata
        **params : dict
            For the estimator's `fit`. Arrays with n_samples entries are repeated along with the rows.
        """
        stated: Mapping[str, Any] = {**metadata}
        check_columns(X, {"sample_weight": sample_weight, **stated})
        check_features(X, {"uncertainty": self.uncertainty})
        tags, given_rows = get_tags(self).input_tags, X
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr" if tags.sparse else False,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan" if tags.allow_nan else True,
        )
        classes, codes = class_codes(y, NAME)
        weights = row_weights(sample_weight, None, X, codes, classes, NAME)
        self.draw_seed_ = seed_of(self.random_state)
        refuse_exact_alone(self.levels, NAME)
        is_weighted = has_fit_parameter(self.estimator, "sample_weight")
        counts = [1 if level == 0 and is_weighted else int(self.n_copies) for level in self.levels]
        copies = self._copies(X, stated, counts)
        warn_of_units(given_rows, stated, f"{NAME}.fit", factor=self._meaning(stated).row_factor * max(self.levels))
        rows = np.tile(np.arange(len(y)), sum(counts))
        given = dict(_check_method_params(X, self._handed_on(params), indices=rows))
        if is_weighted:
            # the copies of a row share its weight: equally among levels, then equally among the draws of a level
            parts = np.repeat(np.multiply(counts, len(counts)), np.multiply(counts, len(y)))
            given["sample_weight"] = weights[rows] / parts
        elif sample_weight is not None:
            raise ValueError(
                f"{NAME}({self.estimator!r:.80}).fit(..., sample_weight=...): the fit of this estimator does not take "
                "sample_weight. Leave it out; of a pipeline wrap the last step alone, inside an UncertainPipeline."
            )
        self._warn_of_early_stopping(len(rows), given)
        report = reporter(self.verbose)
        for name, value in self._settings_of("min_samples_leaf"):
            report(f"{NAME}: {name}={value!r} counts copies, {sum(counts)} a row")
        report(
            f"{NAME}: {len(y)} rows, {len(rows)} copies at the levels {', '.join(f'{level:g}' for level in self.levels)}"
        )
        self.estimator_ = clone(self.estimator).fit(copies, y[rows], **given)
        report(f"{NAME}: fitted {self.estimator!r:.80}")
        self.classes_, self.row_noise_ = classes, bool(stated)
        if self.averages_errors:
            self._averaged_method()  # refuses an estimator that has no method to average
        return self

    def _copies(self, X: Any, metadata: Mapping[str, Any], counts: list[int]) -> Any:
        """Return `counts` draws for each level: the first draw of all rows, then the second of all rows, and so on."""
        uncertainty = self._meaning(metadata)
        rng, copies = np.random.default_rng(self.draw_seed_), []
        for level, count in zip(self.levels, counts, strict=True):
            if level == 0:
                uncertainty.split(X, metadata)  # refuses metadata that make no sense
                copies += [X] * count
            else:
                larger = uncertainty if level == 1 else uncertainty.times(float(level))
                copies += self._moved(X, larger.draws(X, metadata, rng, count), uncertainty, "fit")
        return sparse.vstack(copies, format="csr") if sparse.issparse(X) else np.concatenate(copies)

    def _moved(self, X: Any, drawn: Iterator[Any], uncertainty: UncertaintySet, method: str) -> Iterator[Any]:
        """Return the rows plus each of these errors, in the precision of the rows."""
        for errors in drawn:
            if not sparse.issparse(X):
                yield X + _dense(errors).astype(X.dtype, copy=False)
            elif sparse.issparse(errors):
                yield X + errors.astype(X.dtype)
            else:
                raise ValueError(
                    f"{NAME}(uncertainty={self.uncertainty!r}).{method}: X is sparse, but {uncertainty!r} moves every entry. "
                    "Pass a sparse X_std, or X.toarray()."
                )

    def _warn_of_early_stopping(self, n_rows: int, given: Mapping[str, Any]) -> None:
        """Warn if the estimator would stop early by its loss on copies of rows that it is also trained on."""
        for name, value in self._settings_of("early_stopping"):
            is_on = value is True or (isinstance(value, str) and value == "auto" and n_rows > STOPS_EARLY)
            if is_on and "X_val" not in given:
                warn_caller(
                    f"{NAME}({self.estimator!r:.80}).fit: {name}={value!r} sets some of {n_rows} copies aside to stop by, but "
                    "the rest has copies of the same rows, so it stops too late. Set early_stopping=False, and choose the "
                    "number of rounds by a search around NoiseCopies.",
                    UserWarning,
                )

    def _settings_of(self, setting: str) -> list[tuple[str, Any]]:
        """Return the parameters of this name, of the estimator and of the estimators inside it."""
        found = self.estimator.get_params(deep=True).items()
        return [(name, value) for name, value in found if name.rpartition("__")[2] == setting]

    def _averaged_method(self) -> str:
        """Return the name of the estimator's method that is averaged for predictions."""
        for method in AVERAGED:
            if hasattr(self.estimator_, method):
                return method
        raise ValueError(
            f"{NAME}({self.estimator!r:.80}, average_draws={self.average_draws!r}): this estimator has neither predict_proba "
            "nor decision_function to average. Use average_draws=None, or one that has."
        )

    def _meaning(self, metadata: Mapping[str, Any]) -> UncertaintySet:
        """Return the set to draw from."""
        if isinstance(self.uncertainty, UncertaintySet):
            return self.uncertainty
        if self.uncertainty is not None:
            raise ValueError(
                f"{NAME}(uncertainty={self.uncertainty!r:.80}): give a set, such as GaussianNoise(0.2) or Box(0.1)."
            )
        if not metadata:
            raise ValueError(
                f"{NAME}.fit: no uncertainty is stated. Pass X_std, X_cov, X_factor, X_lower and X_upper, or X_radius; or "
                f"state what is common to all rows, {NAME}(estimator, uncertainty=GaussianNoise(std=...))."
            )
        return meaning(set(metadata))

    def _asked(self, method: str, X: Any, metadata: Mapping[str, Any]) -> Any:
        """Return the estimator's answer for rows, averaged over draws if errors of the rows are stated."""
        check_is_fitted(self)
        stated = {name: value for name, value in metadata.items() if value is not None}
        check_columns(X, stated, self)
        tags = get_tags(self).input_tags
        X = validate_data(
            self,
            X,
            accept_sparse="csr" if tags.sparse else False,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan" if tags.allow_nan else True,
            reset=False,
        )
        if not stated:
            self._warn_of_exact_rows(method)
            return getattr(self.estimator_, method)(X)
        if not self.averages_errors:
            raise ValueError(
                f"{NAME}.{method}(..., {'=..., '.join(stated)}=...): with average_draws=None predictions take no errors. Set "
                f"{NAME}(average_draws=10) to average over draws from them, or leave them out."
            )
        self.check_parameters()
        if method == "predict":
            return self._likeliest(self._mean(self._averaged_method(), X, stated))
        # the logarithm of the mean, not the mean of logarithms, which a single probability near 0 would dominate
        if method == "predict_log_proba":
            return np.log(self._mean("predict_proba", X, stated))
        return self._mean(method, X, stated)

    def _mean(self, method: str, X: Any, stated: Mapping[str, Any]) -> Array:
        """Return the method's result, averaged over draws of the rows."""
        report, mean = reporter(self.verbose), np.zeros(())
        for k, rows in enumerate(self._drawn(method, X, stated), 1):
            mean = mean + (getattr(self.estimator_, method)(rows) - mean) / k  # exact if all draws give the same result
            report(f"{NAME}.{method}: draw {k} of {self.average_draws}")
        return mean

    def _drawn(self, method: str, X: Any, stated: Mapping[str, Any]) -> Iterator[Any]:
        """Return draws of the rows from their errors as stated."""
        uncertainty, rng = self._meaning(stated).as_stated(stated), _SameForEveryRow()
        n_draws = int(self.average_draws or 0)
        moved = self._moved(X, uncertainty.draws(X, stated, cast(Any, rng), n_draws), uncertainty, method)
        for k in range(n_draws):
            # draws x + d and x - d: in the mean of such a pair the odd powers of d cancel, above all the linear part
            rng.begin([self.draw_seed_, k // 2], is_mirrored=k % 2 == 1)
            yield next(moved)

    def _likeliest(self, mean: Array) -> Any:
        """Return the class with the largest average, for each row."""
        if mean.ndim == 2 and mean.shape[1] != len(self.classes_):
            raise ValueError(
                f"{NAME}.predict: the decision_function of {self.estimator!r:.80} has {mean.shape[1]} columns for "
                f"{len(self.classes_)} classes. Let it have one for each, decision_function_shape='ovr'."
            )
        return self.classes_[mean.argmax(axis=1) if mean.ndim == 2 else (mean > 0).astype(int)]

    def _warn_of_exact_rows(self, method: str) -> None:
        if self.averages_errors and self.row_noise_:
            warn_caller(
                f"{NAME}(average_draws={self.average_draws!r}).{method}: fit was given errors of rows, and none are given "
                "here, so nothing is averaged: rows count as exact. Pass X_std=... of these rows, 0 where they are exact.",
                UserWarning,
            )

    @takes_metadata
    def predict(self, X: Any, **metadata: Unpack[SetsByRow]) -> Any:
        """Return the predicted class of each row, shape (n_samples,).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        **metadata
            The errors of these rows as in `fit`, only with `average_draws`. They are taken as stated, never multiplied
            by `levels` or by a number in `uncertainty`: after training with ``uncertainty=GaussianNoise(4.0)`` and
            ``X_std=S``, pass ``X_std=4 * S`` to predict at the same noise. Without errors rows are exact.
        """
        return self._asked("predict", X, metadata)

    @offered_if(_has("predict_proba"))
    @takes_metadata
    def predict_proba(self, X: Any, **metadata: Unpack[SetsByRow]) -> Array:
        """Return class probabilities, averaged over draws where errors are given, shape (n_samples, n_classes).

        Takes errors as `predict` does.
        """
        return self._asked("predict_proba", X, metadata)

    @offered_if(_has("predict_log_proba"))
    @takes_metadata
    def predict_log_proba(self, X: Any, **metadata: Unpack[SetsByRow]) -> Array:
        """Return the logarithm of `predict_proba`."""
        return self._asked("predict_log_proba", X, metadata)

    @offered_if(_has("decision_function"))
    @takes_metadata
    def decision_function(self, X: Any, **metadata: Unpack[SetsByRow]) -> Array:
        """Return the estimator's scores, averaged over draws where errors are given, (n_samples,) or (n_samples, n_classes).

        Takes errors as `predict` does. But `predict` uses averaged probabilities if there are any, so its class need
        not be the one with the largest averaged score.
        """
        return self._asked("decision_function", X, metadata)

    @takes_metadata
    def score(self, X: Any, y: Any, sample_weight: Any = None, **metadata: Unpack[SetsByRow]) -> float:
        """Return the share of rows, weighted by `sample_weight`, whose predicted class is y. Takes errors as `predict` does."""
        predicted = self.predict(X, **metadata)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))


class _SameForEveryRow:
    """Stands in for a random generator: it draws the same numbers for every row, and their negatives in mirrored draws.

    For sparse rows it draws another number for each stored entry.
    """

    rng: np.random.Generator

    def begin(self, seed: list[int], *, is_mirrored: bool) -> None:
        """Begin a draw."""
        self.rng, self.sign = np.random.default_rng(seed), -1.0 if is_mirrored else 1.0

    def __getattr__(self, law: str) -> Callable[..., Any]:
        def drawn(*given: Any, size: Any = None) -> Any:
            *about, size = given if size is None else (*given, size)
            shape = np.broadcast_shapes(size)
            is_by_row = len(shape) == 2 or law in ("chisquare", "exponential")  # otherwise by stored entry
            one = getattr(self.rng, law)(*about, size=shape[1:] if is_by_row else shape)
            is_even = law in ("standard_normal", "choice") or about == [-1.0, 1.0]
            return np.broadcast_to(self.sign * one if is_even else one, size)

        return drawn


def _dense(errors: Any) -> Array:
    return np.asarray(errors.toarray() if sparse.issparse(errors) else errors)
