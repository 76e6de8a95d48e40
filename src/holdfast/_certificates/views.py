"""Fitted classifiers, ours and scikit-learn's, alone or after steps, as certificates see them at certain rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, NuSVC
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.validation import validate_data

from holdfast._certificates.decisions import LargestScore, Leads, Votes, one_score
from holdfast._certificates.models import FourierModel, KernelModel, LinearModel, Model
from holdfast._certificates.rounded_map import RoundedMap
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.operations import Cast
from holdfast._core.rounding import Array
from holdfast._core.uncertainty import BoundSet, UncertaintySet
from holdfast.features.carrying import added, carry, effects_of, refuse_inexact, together
from holdfast.features.composed import InSequence
from holdfast.features.curved import RbfValues, Waves
from holdfast.features.effects import AffineForm, Effect
from holdfast.features.rows import (
    coarsest_dtype,
    is_flat,
    is_numeric,
    known_numbers,
    n_columns,
    numbers_of,
    others_than_numbers,
)
from holdfast.features.steps import TextStepError, UnknownStepError, may_add_errors
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.clouds import dense

SUPPORTED = (
    "holdfast's classifiers; scikit-learn's linear classifiers (LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, "
    "Perceptron, LinearDiscriminantAnalysis, ...), SVC and NuSVC with kernel='linear' or 'rbf'; these after affine steps, "
    "imputers and encoders of categories in a Pipeline, and linear ones after RBFSampler or Nystroem(kernel='rbf')"
)
SMOOTHED = "Any classifier with predict takes certified_radius(..., method='smoothing'), which is smoothed."
BLOCK = 1 << 18
"""Entries that are looked at at a time: what is made of them stays in cache."""
BOTH_ENDS = 2
"""Errors of a score that a lead is made smaller by: one of the score here, one of the model's own wherever the row goes."""


@singledispatch
def model_of(model: Any) -> Model:
    """Return what certificates see of a fitted classifier by itself; NoCertificateError where it is none that is known.

    A classifier of one's own has a method ``certificate_model()``, or joins by ``model_of.register``.
    """
    if hasattr(model, "certificate_model"):
        found: Model = model.certificate_model()
        return found
    raise NoCertificateError(f"{model!r:.120}: no certificate is known for it. Supported are {SUPPORTED}. {SMOOTHED}")


def linear_model(coef: Any, intercept: Any) -> LinearModel:
    """Return the model of linear scores: one for two classes, else one for each class, the largest of which wins."""
    W = np.atleast_2d(dense(coef))
    b = np.broadcast_to(np.ravel(intercept), len(W))
    return LinearModel(RoundedMap(W, b), one_score() if len(W) == 1 else LargestScore(len(W)))


def kernel_model(centres: Any, width: float, coef: Any, intercept: Any) -> KernelModel:
    """Return the model of scores that are linear in values of an RBF kernel, decided as those of :func:`linear_model`."""
    W = np.atleast_2d(coef)
    decision = one_score() if len(W) == 1 else LargestScore(len(W))
    return KernelModel(dense(centres).astype(np.float64), width, RoundedMap(W, intercept), decision)


@model_of.register(LinearClassifierMixin)
def _(model: Any) -> Model:
    return linear_model(model.coef_, model.intercept_) if hasattr(model, "coef_") else model_of.dispatch(object)(model)


@model_of.register(SVC)
@model_of.register(NuSVC)
def _(model: Any) -> Model:
    centres, a, K = dense(model.support_vectors_), dense(model.dual_coef_), len(model.classes_)
    decision: Votes = one_score()
    if K > 2:
        # libsvm keeps the weights of all contests of a class with its own support vectors
        owner, pairs = np.repeat(np.arange(K), model.n_support_), list(combinations(range(K), 2))
        a = np.array([np.where(owner == i, a[j - 1], np.where(owner == j, a[i], 0.0)) for i, j in pairs])
        decision = Votes(np.array(pairs), K, needs_lead=bool(model.break_ties))
    if model.kernel == "linear":
        return LinearModel(RoundedMap(a, model.intercept_, AffineMap(centres)), decision)
    if model.kernel == "rbf":
        return KernelModel(centres, model._gamma, RoundedMap(a, model.intercept_), decision)
    raise NoCertificateError(
        f"{model!r:.80}: of kernels only 'linear' and 'rbf' are certified. Supported are {SUPPORTED}."
    )


def refuse_own_predicts(model: Any) -> None:
    """Raise NoCertificateError where a class derived from a known one, or the last step in it, predicts in a way of its own."""
    inner = getattr(model, "best_estimator_", None) if isinstance(model, BaseSearchCV) else None
    inner = model.steps[-1][1] if isinstance(model, Pipeline) else inner
    if inner is not None:
        refuse_own_predicts(inner)
    if any("certificate_model" in vars(one) and not _is_known(one) for one in type(model).__mro__):
        return
    known = model_of.dispatch(type(model))
    is_ours = hasattr(model, "certificate_model") or isinstance(model, Pipeline | BaseSearchCV)
    if known is model_of.registry[object] and not is_ours:
        return  # of which nothing is known at all
    for method in ("predict", "decision_function"):
        home = next((one for one in type(model).__mro__ if method in vars(one)), None)
        if home is not None and not _is_known(home) and known not in _own_registrations(home):
            raise NoCertificateError(
                f"{type(model).__name__}: has a {method} of its own, of which its weights say nothing. Give it a method "
                f"certificate_model(), or smooth it. {SMOOTHED}"
            )


def _is_known(cls: type) -> bool:
    return cls.__module__.split(".")[0] in ("sklearn", "holdfast")


def _own_registrations(home: type) -> list[Any]:
    """Return what is registered for a class itself, or for those derived from it."""
    return [found for kind, found in model_of.registry.items() if kind is not object and issubclass(kind, home)]


def _check_names(model: Any, X: Any) -> None:
    """Raise where a frame has other columns than that of fit, or in another order."""
    known = getattr(model, "feature_names_in_", None)
    if known is not None and hasattr(X, "columns") and list(X.columns) != list(known):
        lacking = [name for name in known if name not in list(X.columns)]
        what = f"lacks the column {lacking[0]!r}" if lacking else "has other columns than in fit, or in another order"
        raise ValueError(f"X {what}. Give X[{list(known)!r:.120}], the columns of fit in their order.")


@singledispatch
def _before(effect: Effect, model: Model) -> Model | None:
    """Return a model of what a step makes of rows as a model of the rows themselves; None where no such model is known."""
    return None if effect.map is None or effect.adds_errors or len(effect.exact) else model.after(effect.map)


@_before.register
def _(effect: InSequence, model: Model) -> Model | None:
    found: Model | None = model
    for part, _ in reversed(effect.parts):
        found = None if found is None else _before(part, found)
    return found


@_before.register
def _(effect: Waves, model: Model) -> Model | None:
    linear = model.as_linear()
    if linear is None:
        return None
    angles = RoundedMap(effect.weights, effect.offset, follows_rows=True)
    return FourierModel(angles, linear.map, linear.decision)


@_before.register
def _(effect: RbfValues, model: Model) -> Model | None:
    linear = model.as_linear()
    if linear is None:
        return None
    return KernelModel(effect.centres.astype(np.float64), effect.width_of_kernel, linear.map, linear.decision)


@dataclass(frozen=True)
class Passage:
    """Steps that rows go through before a model, and how much of them is known by a model of the rows themselves."""

    steps: Sequence[tuple[str, Any]]
    effects: Sequence[Effect]
    n_curved: int
    """How many steps come before those that the model accounts for: sets are carried through them."""
    nonlinear: str = "auto"

    @property
    def is_curved(self) -> bool:
        """Whether the model is one of what some steps make of rows, not of the rows."""
        return self.n_curved > 0

    def rows(self, X: Any) -> Any:
        """Return what the curved steps make of rows."""
        for _, step in self.steps[: self.n_curved]:
            X = step.transform(X) if hasattr(step, "transform") else X
        return X

    def exact(self, n_features: int) -> NDArray[np.intp]:
        """Return the columns of X that must have no error."""
        return together(self.steps, self.effects, n_features).exact


@dataclass(frozen=True)
class View:
    """A fitted classifier as certificates see it at certain rows."""

    model: Model
    """Of the numbers in `rows`."""
    X: Any
    """The rows as given."""
    rows: Any
    """Their numbers, (n_samples, n_features), 0 for what is none or missing; then what steps put beside them by themselves."""
    n_features: int
    slack: tuple[Array, Array] | None = None
    """How far below and above what steps put there the true numbers may lie; None where they are exact."""
    std: Array | None = None
    """Their standard deviations, where errors are averaged over."""
    missing: NDArray[np.bool_] | None = None
    """Entries of X that are missing and filled in by numbers without errors, (n_samples, n_features): they do not move."""
    passage: Passage = Passage((), (), 0)

    @property
    def is_curved(self) -> bool:
        """Whether `rows` are not those given, but what curved steps make of them."""
        return self.passage.is_curved

    @property
    def numbers(self) -> Any:
        """The numbers of the rows, without what steps put beside them."""
        return self.rows if self.rows.shape[1] == self.n_features else self.rows[:, : self.n_features]

    def take(self, which: NDArray[np.intp] | slice) -> View:
        """Return the same at some of the rows."""
        slack = None if self.slack is None else (self.slack[0][which], self.slack[1][which])
        std = None if self.std is None else self.std[which]
        rows = self.rows[which]
        X = rows if sparse.issparse(self.X) else _safe_indexing(self.X, which)
        missing = None if self.missing is None else self.missing[which]
        return replace(self, X=X, rows=rows, slack=slack, std=std, missing=missing)

    def whole(self, Z: Any, which: Any = slice(None)) -> Any:
        """Return numbers Z of rows `which`, moved or not, with what steps put beside them."""
        given = self.rows[which][:, self.n_features :]
        if given.shape[1] == 0:
            return Z
        if sparse.issparse(Z) or sparse.issparse(given):
            return sparse.csr_array(sparse.hstack([Z, given]))
        return np.hstack([Z, given])

    def spread(self, values: Array, rest: float) -> Array:
        """Return numbers by feature with `rest` for what steps put beside the features."""
        return np.concatenate([values, np.full(self.rows.shape[1] - self.n_features, rest)])

    @property
    def fixed(self) -> NDArray[np.bool_]:
        """Which columns of X have to stay as they are: categories, and what is no number."""
        n = self.n_features
        fixed = np.zeros(n, dtype=bool)
        fixed[self.passage.exact(n)] = True
        return fixed if self.is_curved else fixed | others_than_numbers(self.X)

    @property
    def has_missing(self) -> bool:
        """Whether entries of X are missing, which steps fill in."""
        return self.missing is not None or self.slack is not None

    def patterns(self, which: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], Array]]:
        """Yield places in `which` whose rows lack the same entries, and 0 for these features, 1 for the others."""
        if self.missing is None:
            yield np.arange(len(which)), np.ones(self.n_features)
            return
        found, inverse = np.unique(self.missing[which], axis=0, return_inverse=True)
        for k, lost in enumerate(found):
            yield np.flatnonzero(inverse.ravel() == k), 1.0 - lost

    def sets(self, uncertainty: UncertaintySet, metadata: Mapping[str, Any]) -> tuple[BoundSet | None, BoundSet | None]:
        """Return the sets to maximise over, and those to average over, of the first `n_features` numbers of `rows`."""
        passage = self.passage
        if not passage.is_curved:
            refuse_inexact(passage.exact(self.n_features), uncertainty, metadata, self.X)
            return uncertainty.split(self.numbers, metadata)
        n = passage.n_curved
        steps, effects = passage.steps[:n], passage.effects[:n]
        made = carry(uncertainty, metadata, self.X, passage.rows(self.X), steps, effects, passage.nonlinear)
        return made.uncertainty.split(self.numbers, made.metadata)

    def parts(self) -> Iterator[slice]:
        """Yield parts of the rows that stay in cache with what is made of them."""
        size = max(1, BLOCK // max(self.model.n_entries(self.rows), 1))
        for start in range(0, self.rows.shape[0], size):
            yield slice(start, start + size)

    def lead_blocks(self, errors: int = BOTH_ENDS) -> Iterator[tuple[slice, Any, Leads]]:
        """Yield parts of the rows, which they are, and their leads less so many errors; what is no number is no lead.

        Leads are the smallest over what steps put there, wherever that may truly be.
        """
        for part in self.parts():
            block = self.rows[part]
            with np.errstate(over="ignore", invalid="ignore"):
                scores, error = self.model.scores(block)
                found = self.model.decision.leads(scores, errors * error)
            found = found._replace(leads=np.where(np.isnan(found.leads), -np.inf, found.leads))
            if self.slack is not None and errors:
                which = np.arange(part.start, part.start + block.shape[0])
                falls = self.falls(found, partial(self._falls_at, which))
                found = found._replace(leads=found.leads - falls)
            yield part, block, found

    def falls(self, found: Leads, of: Callable[[NDArray[np.intp], Array], Any]) -> Array:
        """Return by how much leads can fall, `of(rows, C)` being what combinations C of the scores can fall by."""
        out = np.zeros(found.leads.shape)
        for some, C in self.model.decision.groups(found.codes):
            turned = found.is_turned if len(found.is_turned) == 1 else found.is_turned[some]
            out[some] = of(some, C)
            if np.any(turned):
                out[some] = np.where(turned, of(some, -C), out[some])
        return out

    def margins(self, sets: BoundSet) -> tuple[NDArray[np.intp], Array]:
        """Return the numbers of the predicted classes, and by how much they lead at the worst points of their sets.

        Less what rounding may account for, here and wherever the row goes: a margin > 0 is proof.
        """
        codes, margin = np.zeros(self.rows.shape[0], dtype=np.intp), np.zeros(self.rows.shape[0])
        for part, _, found in self.lead_blocks():
            falls = self.falls(found, partial(self._falls_in, sets, part.start))
            codes[part], margin[part] = found.codes, (found.leads - falls).min(axis=1)
        return codes, margin

    def _falls_in(self, sets: BoundSet, start: int, some: NDArray[np.intp], C: Array) -> Array:
        """Return by how much combinations C of scores can fall where rows `some`, from `start` on, move in their sets."""
        out, which = np.zeros((len(some), len(C))), start + some
        for few, weights in self.patterns(which):
            out[few] = self.model.falls_in(sets.take(which[few]), len(few), weights, C, self.rows.dtype)
        return out

    def worst_duels(
        self, sets: BoundSet, codes: NDArray[np.intp]
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_], Array, Array]]:
        """Yield rows of one class, which duels it wins at 0, its worst leads by linear scores, and how far off these may be."""
        linear = self.linear
        size = max(1, BLOCK // max(linear.n_entries(self.rows), 1))
        for code in np.unique(codes):
            own = np.flatnonzero(codes == code)
            C, wins = linear.decision.duels(int(code))
            for start in range(0, len(own), size):
                some = own[start : start + size]
                scores, errors = linear.scores(self.rows[some])
                falls, doubts = np.zeros((2, len(some), len(C)))
                for few, weights in self.patterns(some):
                    falls[few], doubts[few] = linear.pushed(sets.take(some[few]), len(few), weights, C, self.rows.dtype)
                doubts = doubts + BOTH_ENDS * errors @ np.abs(C).T + self._own_falls(some, C)
                yield some, wins, scores @ C.T - falls, doubts

    def _falls_at(self, which: NDArray[np.intp], some: NDArray[np.intp], C: Array) -> Array | float:
        return self._own_falls(which[some], C)

    def _own_falls(self, some: Any, C: Array) -> Array | float:
        """Return by how much combinations C of scores may fall since what steps put beside rows `some` is not exact."""
        if self.slack is None:
            return 0.0
        down, up = (end[some] for end in self.slack)
        none = np.zeros((len(down), self.n_features))
        return self.model.falls(np.hstack([none, down]), np.hstack([none, up]), C, self.rows.dtype)

    def worst_moves(self, sets: BoundSet, codes: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return the points of the sets at which classes `codes` do worst by linear scores, and their leads there."""
        moves, found = np.zeros((self.rows.shape[0], self.n_features)), np.zeros(self.rows.shape[0])
        for some, _, leads, _ in self.worst_duels(sets, codes):
            rivals = leads.argmin(axis=1)
            found[some] = leads.min(axis=1)
            directions = self.linear.decision.duels(int(codes[some[0]]))[0] @ self.coef
            for rival in np.unique(rivals):
                own = some[rivals == rival]
                for part, weights in self.patterns(own):
                    few = own[part]
                    moves[few] = weights * sets.take(few).maximizer(-weights * directions[rival])
        return moves, found

    @property
    def linear(self) -> LinearModel:
        """The model, which must be linear."""
        found = self.model.as_linear()
        assert found is not None
        return found

    @property
    def coef(self) -> Array:
        """The weights of the features of X by linear scores, (n_scores, n_features)."""
        return self.linear.coef[:, : self.n_features]


def view_of(model: Any, X: Any) -> View:
    """Return what certificates see of a fitted classifier at rows X; NoCertificateError for those not known."""
    steps, last, claims, nonlinear = _unfolded(model)
    _check_names(model, X)
    refuse_own_predicts(model)
    found = model_of(last)
    if not steps:
        return View(found, X, rows := numbers_for(model, X), rows.shape[1])
    effects = _effects(steps, X, claims)
    stop = first = len(steps)
    while True:
        first = 1 + max((i for i in range(stop) if effects[i].map is None), default=-1)
        passage = Passage(steps, effects, first, nonlinear)
        inner = together(steps[first:stop], effects[first:stop], _width(effects[:first], n_columns(X)))
        Z = passage.rows(X)
        form = inner.affine_form(Z)
        assert form is not None
        map = _in_arithmetic_of(Z, form.map) if first == 0 else form.map
        found = found.after(map) if map.operations else found
        made = _before(effects[first - 1], found) if first and form.given is None else None
        if made is None:
            break
        found, stop = made, first - 1
    numbers = numbers_for(model, X) if first == 0 else known_numbers(Z)
    is_exact = form.below is None or not (np.any(form.below) or np.any(form.above) or np.any(form.std))
    slack, std = (None, None) if is_exact else ((form.below, form.above), form.std)
    missing = _not_moving(form, X) if first == 0 else None
    view = View(found, X, numbers, numbers.shape[1], slack, std, missing, passage)
    return view if form.given is None else _with_given(view, form.given)


def _effects(steps: Sequence[tuple[str, Any]], X: Any, claims: Mapping[str, str]) -> list[Effect]:
    """Return the effects of steps; NoCertificateError where one is not known."""
    try:
        return effects_of(steps, X, claims, fills_are_exact=True)
    except TextStepError as error:
        raise NoCertificateError(str(error)) from error
    except UnknownStepError as error:
        raise NoCertificateError(f"{error} {SMOOTHED}") from error


def _with_given(view: View, given: Any) -> View:
    numbers = view.rows
    is_sparse = sparse.issparse(numbers) or sparse.issparse(given)
    rows = sparse.csr_array(sparse.hstack([numbers, given])) if is_sparse else np.hstack([numbers, given])
    return replace(view, rows=rows.astype(numbers.dtype))


def _not_moving(form: AffineForm, X: Any) -> NDArray[np.bool_] | None:
    """Return which entries of X are missing and filled in without errors; None where there are none."""
    if form.lost is None:
        return None
    missing = np.isnan(dense(numbers_of(X))) & ~others_than_numbers(X)
    for column, is_filled, errors in zip(
        form.lost.columns, form.lost.mask.T, (form.below + form.above + form.std).T, strict=True
    ):
        if column < missing.shape[1]:
            missing[:, column] &= ~(is_filled & (errors > 0))
    return missing if np.any(missing) else None


def fills_with_errors(model: Any, X: Any) -> bool:
    """Return whether steps of a model fill in entries of X that have errors."""
    steps, _, claims, _ = _unfolded(model)
    if not may_add_errors(step for _, step in steps):
        return False
    try:
        return added(X, steps, effects_of(steps, X, claims, fills_are_exact=True))
    except UnknownStepError:
        return bool(np.any(np.isnan(dense(numbers_of(X))[:, ~others_than_numbers(X)])))


def exact_columns(model: Any, X: Any) -> NDArray[np.intp]:
    """Return the columns of X that a model takes as categories, or as anything but numbers."""
    steps, _, claims, _ = _unfolded(model)
    others = np.flatnonzero(others_than_numbers(X)) if steps else np.zeros(0, dtype=np.intp)
    try:
        found = together(steps, effects_of(steps, X, claims), n_columns(X)).exact
    except UnknownStepError:
        return others
    return np.union1d(found, others)


def _in_arithmetic_of(X: Any, map: AffineMap) -> AffineMap:
    """Return a map with the coarsest arithmetic that columns of a frame bring, of which its numbers together say nothing."""
    dtype = coarsest_dtype(X)
    return map if dtype == np.float64 else map.after(AffineMap.computed(map.n_features, Cast(dtype)))


def _width(effects: Sequence[Effect], n_features: int) -> int:
    for effect in effects:
        n_features = effect.width(n_features)
    return n_features


def _unfolded(model: Any) -> tuple[list[tuple[str, Any]], Any, dict[str, str], str]:
    """Return all steps before a classifier, those of nested pipelines too, the classifier, and what is said of the steps."""
    steps: list[tuple[str, Any]] = []
    claims: dict[str, str] = {}
    path, nonlinear = "", "auto"
    while True:
        if isinstance(model, BaseSearchCV):
            model = model.best_estimator_
        elif isinstance(model, Pipeline):
            steps += [(f"{path}{name}", step) for name, step in model.steps[:-1]]
            claims |= {f"{path}{name}": said for name, said in (getattr(model, "effects", None) or {}).items()}
            nonlinear = getattr(model, "nonlinear", nonlinear)
            path, model = f"{path}{model.steps[-1][0]}__", model.steps[-1][1]
        else:
            return steps, model, claims, nonlinear


def linear_in_x(model: Any, call: str) -> LinearModel:
    """Return what is seen of a linear model, after affine steps or alone, without any rows; NoCertificateError for others."""
    steps, last, claims, _ = _unfolded(model)
    refuse_own_predicts(model)
    found, n = model_of(last), int(_taker(model)[0].n_features_in_)
    if steps:
        map = together(steps, _effects(steps, np.zeros((1, n)), claims), n).map
        if map is None:
            raise NoCertificateError(f"{call}: for linear models after affine steps only; {model!r:.80} has others.")
        found = found.after(map)
    linear = found.as_linear()
    if linear is None:
        raise NoCertificateError(f"{call}: for linear models only; this one is certified by '{found.method}'.")
    return linear


def numbers_for(model: Any, X: Any) -> Any:
    """Return rows as an array or CSR matrix of finite floats, 0 for what is no number or missing and a step fills in."""
    _check_names(model, X)
    taker, is_pipeline = _taker(model)
    if is_pipeline and is_flat(X):
        _effects(_unfolded(model)[0], X, {})  # which says what takes texts
    elif is_pipeline and not is_numeric(X):
        return known_numbers(X)
    options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32, np.float16], "ensure_all_finite": "allow-nan"}
    is_known = isinstance(taker, BaseEstimator) and not (
        hasattr(X, "columns") and not hasattr(taker, "feature_names_in_")
    )
    rows = validate_data(taker, X, reset=False, **options) if is_known else check_array(X, **options)
    missing = np.isnan(rows.data if sparse.issparse(rows) else rows)
    if not np.any(missing):
        return rows
    if is_pipeline and not sparse.issparse(rows):
        return np.where(missing, rows.dtype.type(0), rows)
    raise ValueError(
        "X: Input X contains NaN, around which nothing is known. Leave rows with missing entries out, or fill them in by an "
        "imputer in a pipeline."
    )


def _taker(model: Any) -> tuple[Any, bool]:
    """Return the part of a fitted model that X goes to first, and whether that is a step of a pipeline."""
    steps, last, _, _ = _unfolded(model)
    first = next((step for _, step in steps if step not in (None, "passthrough")), last)
    return first, bool(steps)
