"""What missing entries may change, and which of them to measure next."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, owens_t
from sklearn.utils import _safe_indexing, check_random_state

from holdfast._certificates.pipelines import view_of
from holdfast._core.allowed import SEED, Count, arguments
from holdfast._core.arithmetic import dense
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.rounding import Array
from holdfast._core.summary import Summary, counted, percent, share, spread
from holdfast.evaluate.certificates import certified_interval
from holdfast.evaluate.completions import Law, Together, covered, law_of_step, laws_of, missing_of
from holdfast.evaluate.fitted import classes_of, linear_only
from holdfast.features.rows import n_columns, numbers_of, others_than_numbers

BLOCK_ENTRIES = 1 << 22
"""How many entries of completed rows are predicted at a time."""
IN_A_BIN = 100
"""About how many draws are grouped as having one value."""
HELPS = 1e-3
"""A measurement is advised if it reduces the flip probability by this much at least."""


@dataclass(frozen=True, kw_only=True)
class MissingEntries(Summary):
    """What the missing entries of some rows may change, and which one to measure next."""

    columns: tuple[Any, ...]
    """The columns of X, by name or number."""
    missing: NDArray[np.bool_]
    """Which entries are missing, (n_samples, n_features)."""
    predicted: NDArray[Any]
    """The predicted classes of the rows as they are, (n_samples,)."""
    flip_probability: Array
    """The probability that the true values of the missing entries would change the predicted class, (n_samples,)."""
    flip_after: Array
    """The flip probability to expect once an entry is known and the then likeliest class is predicted, (n_samples,
    n_features); NaN for entries that are not missing."""
    certain: NDArray[np.bool_] | None
    """Whether the class is the same for all possible values of the missing entries: any category, and any number in its
    interval, (n_samples,). None if no certificate is known."""
    method: str
    """How the probabilities were computed."""

    @property
    def reduction(self) -> Array:
        """By how much the flip probability is expected to fall once an entry is known, (n_samples, n_features)."""
        return self.flip_probability[:, None] - self.flip_after

    @property
    def next_measurement(self) -> NDArray[Any]:
        """For each row, the column that reduces the flip probability most; None if no measurement would help."""
        gains = np.where(self.missing, self.reduction, -np.inf)
        best = gains.argmax(axis=1)
        helps = gains[np.arange(len(best)), best] >= HELPS
        return np.array([self.columns[j] if any_ else None for j, any_ in zip(best, helps, strict=True)], dtype=object)

    @property
    def worth(self) -> Array:
        """The mean reduction over all rows if a column is measured wherever it is missing, (n_features,)."""
        gains = np.where(self.missing, np.nan_to_num(self.reduction), 0.0)
        return np.asarray(np.maximum(gains, 0.0).mean(axis=0))

    def _title(self) -> str:
        return f"MissingEntries of {counted(len(self.predicted), 'row')} and {counted(len(self.columns), 'column')}"

    def _lines(self) -> list[tuple[str, str]]:
        rows = np.any(self.missing, axis=1)
        asked = Counter(name for name in self.next_measurement if name is not None)
        advice = ", ".join(f"{name} ({count})" for name, count in asked.most_common(3)) or "nothing"
        found = [("rows that lack entries", share(rows)), ("missing entries", percent(float(self.missing.mean())))]
        if np.any(rows):
            found.append(("flip probability of these", spread(self.flip_probability[rows])))
        if self.certain is not None:
            found.append(("certain all the same", share(self.certain)))
        return [*found, ("measure next", f"{advice}, in so many rows"), ("method", self.method)]


@arguments(n_draws=Count(20), random_state=SEED)
def missing_report(
    model: Any, X: Any, *, given: Any = None, n_draws: int = 1000, random_state: Any = 0
) -> MissingEntries:
    r"""Return what the missing entries of each row may change, and which of them to measure next.

    The law of the missing entries is that of the model's own steps (ConditionalImputer, SpreadImputer,
    CategoryEncoder), or is learned from similar rows, `given`. For each row the report has the flip probability, that
    the true values would change the predicted class, and the flip probability to expect once one of the missing entries
    is known. The entry that reduces it most is the one to measure next.

    For linear scores f of two classes, and Gaussian entries with the covariance C, the flip probability is
    :math:`\Phi(-|f| / t)`, :math:`t^2 = w^\top C w`. Knowing entry j moves the score by :math:`a_j Z`, with
    :math:`a_j = (Cw)_j / \sqrt{C_{jj}}` and Z standard normal, and leaves it the variance :math:`t^2 - a_j^2`. So the
    flip probability to expect is :math:`\mathbb E\,\Phi(-|f + a_j Z| / \sqrt{t^2 - a_j^2})`, twice Owen's function
    :math:`T(f/t, \sqrt{t^2 - a_j^2}/a_j)`.

    In other cases the model predicts `n_draws` completed copies of each row. To know an entry, copies are grouped by
    its value; one half of a group chooses its likeliest class, the other half estimates how often the class differs.

    Parameters
    ----------
    model : classifier
        Fitted; any classifier that predicts rows with missing entries: a pipeline with imputers, scikit-learn's trees,
        ``FeatureDeletionClassifier(missing="delete")``.
    X : {array-like, frame} of shape (n_samples, n_features)
        Missing entries are NaN, missing categories None or NaN.
    given : ConditionalImputer or table, default=None
        A fitted imputer of the columns of X, or rows like X, such as the training rows, with or without missing
        entries. Required if no step of the model has a law for a missing entry.
    n_draws : int, default=1000
        Draws of each row, at least 20. One draw of 1000 is a probability of 0.1 %, with a standard error of 0.1 %.
    random_state : int, RandomState instance or None, default=0

    Returns
    -------
    MissingEntries
        With `flip_probability`, `next_measurement`, `flip_after`, `worth`, `certain` and `method`.

    Examples
    --------
    >>> from holdfast import ConditionalImputer, GaussianRobustClassifier, make_uncertain_pipeline
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> X, _, y, names = load_breast_cancer_errors()
    >>> model = make_uncertain_pipeline(ConditionalImputer(), GaussianRobustClassifier()).fit(X / X.std(axis=0), y)
    >>> row = (X / X.std(axis=0))[3:4].copy()
    >>> row[0, [0, 1, 7]] = np.nan
    >>> report = missing_report(model, row)
    >>> names[report.next_measurement[0]], report.flip_probability.round(3)
    ('texture', array([0.036]))
    """
    call = "missing_report"
    classes = classes_of(model)
    X = X if hasattr(X, "shape") else np.asarray(X)
    missing = missing_of(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        predicted = np.asarray(model.predict(X))
    question = _Question(model, X, missing, predicted, classes, _laws(model, X, missing, given, call))
    flips, after = np.zeros(len(missing)), np.where(missing, 0.0, np.nan)
    rows = np.flatnonzero(np.any(missing, axis=1))
    exact = _by_formula(question, rows, flips, after) if len(rows) else rows
    rest = np.setdiff1d(rows, exact)
    if len(rest):
        rng = np.random.default_rng(check_random_state(random_state).randint(1 << 31))
        _by_draws(question, rest, flips, after, int(n_draws), rng)
    names = tuple(X.columns) if hasattr(X, "columns") else tuple(range(n_columns(X)))
    return MissingEntries(
        columns=names,
        missing=missing,
        predicted=predicted,
        flip_probability=flips,
        flip_after=after,
        certain=_certain(model, X, missing),
        method="; ".join(
            [f"by formula in {counted(len(exact), 'row')}"] * (len(exact) > 0)
            + [f"by {n_draws} draws in {counted(len(rest), 'row')}"] * (len(rest) > 0)
        )
        or "nothing is missing",
    )


def _laws(model: Any, X: Any, missing: NDArray[np.bool_], given: Any, call: str) -> list[Law]:
    """Return the laws of missing entries, after checking that every column with missing entries has one."""
    if given is None:
        found = laws_of(model, X)
    elif hasattr(given, "law"):
        law = law_of_step(given, np.arange(n_columns(X)))
        assert law is not None
        found = [law]
    else:
        rows: Any = given if hasattr(given, "shape") else np.asarray(given)
        if (
            len(rows.shape) not in (1, 2)
            or n_columns(rows) != n_columns(X)
            or (hasattr(X, "columns") and list(rows.columns) != list(X.columns))
        ):
            raise ValueError(f"{call}(..., given=...): its columns are not those of X. Give rows like X.")
        try:
            found = [Together(rows)]
        except ValueError as error:
            raise ValueError(f"{call}(..., given=...): {error}") from error
    lost = np.setdiff1d(np.flatnonzero(np.any(missing, axis=0)), covered(found))
    if len(lost):
        name = list(X.columns)[lost[0]] if hasattr(X, "columns") else int(lost[0])
        raise ValueError(
            f"{call}: entries of column {name!r} are missing, and no step of the model says what they may be. Give rows like "
            "these, given=X_train; or let the model fill them in by ConditionalImputer, or CategoryEncoder for categories."
        )
    return found


def _certain(model: Any, X: Any, missing: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Return whether each row's class is the same for all missing values; None if no certificate is known."""
    if hasattr(model, "is_certain"):
        return np.asarray(model.is_certain(X))
    lost = np.flatnonzero(np.any(missing, axis=0))
    if len(np.setdiff1d(lost, covered(laws_of(model, X)))):
        return None
    try:
        return np.asarray(certified_interval(model, X, X_lower=X, X_upper=X).certified)
    except (NoCertificateError, ValueError):
        return None


class _Question(NamedTuple):
    """A model, rows with missing entries, and the laws of these."""

    model: Any
    X: Any
    missing: NDArray[np.bool_]
    predicted: NDArray[Any]
    classes: NDArray[Any]
    laws: Sequence[Law]


def _by_formula(question: _Question, rows: NDArray[np.intp], flips: Array, after: Array) -> NDArray[np.intp]:
    """Write the probabilities of rows with linear scores and Gaussian missing entries, and return these rows."""
    model, X, missing, predicted, classes, laws = question
    known = [law for law in laws if law.factor is not None]
    chosen = np.zeros(missing.shape[1], dtype=bool)
    chosen[covered([law for law in laws if law.factor is not None or not len(law.columns)])] = True
    rows = rows[~np.any(missing[rows] & ~chosen, axis=1)]
    for law in known:
        rows = rows[law.is_gaussian(_safe_indexing(X, rows))] if len(rows) else rows  # type: ignore[attr-defined]
    if not len(rows) or len(classes) != 2:
        return rows[:0]
    some = _safe_indexing(X, rows)
    means: dict[int, NDArray[Any]] = {}
    parts: list[tuple[NDArray[np.intp], Array]] = []
    for law in known:
        assert law.factor is not None
        filled, factor = law.factor(some)
        means |= dict(zip(law.columns.tolist(), filled.T, strict=True))
        parts.append((law.columns, factor))
    complete = with_values(some, missing[rows], means)
    try:
        view = view_of(model, complete)
        linear = linear_only(view, "missing_report")
    except (NoCertificateError, ValueError):
        return rows[:0]
    if view.is_curved or view.model.decision.n_scores != 1:
        return rows[:0]
    w = linear.coef[0, : view.n_features]
    f = np.asarray(view.model.scores(view.rows)[0])[:, 0]
    squares, pulls, own = np.zeros(len(rows)), np.zeros((len(rows), len(w))), np.zeros((len(rows), len(w)))
    for columns, factor in parts:
        root = np.einsum("nij,i->nj", factor, w[columns])
        squares += np.square(root).sum(axis=1)
        pulls[:, columns] = np.einsum("nij,nj->ni", factor, root)
        own[:, columns] = np.square(factor).sum(axis=2)
    t, side = np.sqrt(squares), np.where(predicted[rows] == classes[1], 1.0, -1.0)
    flips[rows] = _lost(side * f, t)
    # a_j, from the regression of the score on entry j: their covariance (Cw)_j over the entry's standard deviation
    moves = np.divide(pulls, np.sqrt(own), out=np.zeros_like(pulls), where=own > 0)
    gone = missing[rows]
    i, j = np.nonzero(gone)
    after[rows[i], j] = flip_once_known(f[i], t[i], np.abs(moves[i, j]))
    return rows


def _lost(lead: Array, t: Array) -> Array:
    """Return the probability that a lead with standard deviation t falls below 0."""
    return np.where(t > 0, ndtr(-np.divide(lead, t, out=np.zeros_like(lead), where=t > 0)), 1.0 * (lead < 0))


def flip_once_known(f: Array, t: Array, a: Array) -> Array:
    r"""Return :math:`\mathbb E\,\Phi(-|f + a Z| / \sqrt{t^2 - a^2}) = 2\,T(f/t, \sqrt{t^2 - a^2}/a)` with Owen's T."""
    # it is the probability that A = f + a Z and the final score B, whose correlation is a / t, have different signs:
    # P(A < 0) + P(B < 0) - 2 P(A < 0, B < 0), where by Owen (1956) P(A < 0, B < 0) = (P(A < 0) + P(B < 0)) / 2 - T - T'
    # with T' = T(., 0) = 0
    rest = np.sqrt(np.maximum((t - a) * (t + a), 0.0))
    with np.errstate(over="ignore"):
        ahead, slope = (
            np.divide(part, whole, out=np.full_like(part, np.inf), where=whole > 0)
            for part, whole in ((f, t), (rest, a))
        )
    return np.asarray(2 * owens_t(ahead, slope))


def with_values(X: Any, missing: NDArray[np.bool_], values: dict[int, NDArray[Any]]) -> Any:
    """Return a table with missing entries replaced by values, which are given by column."""
    if not hasattr(X, "columns") and np.asarray(X).dtype.kind in "biuf":
        out = np.array(X, dtype=np.float64)
        for place, found in values.items():
            out[:, place] = np.where(missing[:, place], found, out[:, place])
        return out
    is_text = others_than_numbers(X)
    old = [np.asarray(X[name] if hasattr(X, "columns") else np.asarray(X)[:, j]) for j, name in enumerate(_names(X))]
    made = []
    for place, column in enumerate(old):
        kept = column.astype(object) if is_text[place] else dense(numbers_of(column[:, None]))[:, 0]
        made.append(np.where(missing[:, place], values[place], kept) if place in values else column)
    if hasattr(X, "columns"):
        return type(X)(dict(zip(X.columns, made, strict=True)))
    return np.column_stack([np.asarray(column, dtype=object) for column in made])


def _names(X: Any) -> list[Any]:
    return list(X.columns) if hasattr(X, "columns") else list(range(np.shape(X)[1]))


def _by_draws(
    question: _Question, rows: NDArray[np.intp], flips: Array, after: Array, n_draws: int, rng: np.random.Generator
) -> None:
    """Write the probabilities of rows by draws of their missing entries."""
    model, X, missing, predicted, classes, laws = question
    size = max(1, BLOCK_ENTRIES // (n_draws * missing.shape[1]))
    for start in range(0, len(rows), size):
        own = rows[start : start + size]
        some, gone = _safe_indexing(X, own), missing[own]
        drawn: dict[int, NDArray[Any]] = {}
        for law in laws:
            drawn |= dict(zip(law.columns.tolist(), law.draws(some, rng, n_draws), strict=True))
        which = np.tile(np.arange(len(own)), n_draws)
        many = with_values(_safe_indexing(some, which), gone[which], {j: one.ravel() for j, one in drawn.items()})
        with warnings.catch_warnings():
            # completed rows carry no error metadata; ignore the warning about it
            warnings.simplefilter("ignore", UserWarning)
            labels = np.asarray(model.predict(many)).reshape(n_draws, len(own))
        codes = np.searchsorted(classes, labels)
        flips[own] = np.mean(labels != predicted[own], axis=0)
        for j in np.flatnonzero(np.any(gone, axis=0)):
            lacking = np.flatnonzero(gone[:, j])
            if int(j) not in drawn:  # the column makes no difference to the model
                after[own[lacking], j] = flips[own[lacking]]
                continue
            after[own[lacking], j] = _after_knowing(drawn[int(j)][:, lacking], codes[:, lacking], len(classes))


def _after_knowing(values: NDArray[Any], codes: NDArray[np.intp], n_classes: int) -> Array:
    """Return, for each row, the share of draws whose class is not the likeliest class of draws with a similar value."""
    n_draws, n = values.shape
    if values.dtype.kind == "O":
        bins = np.unique(values, return_inverse=True)[1].reshape(values.shape)
    else:
        # bins of equal numbers of draws, by their ranks
        ranks = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0)
        bins = ranks * max(1, n_draws // IN_A_BIN) // n_draws
    # a class chosen and checked by the same draws would seem better than it is, most of all in small bins
    n_bins, halves = int(bins.max()) + 1, (np.arange(n_draws) % 2)[:, None]
    places = ((np.arange(n) * n_bins + bins) * 2 + halves) * n_classes + codes
    counts = np.bincount(places.ravel(), minlength=n * n_bins * 2 * n_classes).reshape(n, n_bins, 2, n_classes)
    # one half of each bin chooses the class, the other half counts the draws with another class
    total = np.zeros(n)
    for half in (0, 1):
        told, tried = counts[:, :, half], counts[:, :, 1 - half]
        best = told.argmax(axis=2)
        total += tried.sum(axis=(1, 2)) - np.take_along_axis(tried, best[:, :, None], axis=2)[:, :, 0].sum(axis=1)
    return total / n_draws
