"""Laws of missing entries, given the rest of the row: by a model's own imputers, or learned from similar rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from holdfast._core.arithmetic import dense
from holdfast._core.rounding import Array
from holdfast.features.effects import Effect
from holdfast.features.row_noise import RowNoise
from holdfast.features.rows import n_columns, numbers_of, others_than_numbers
from holdfast.features.steps import StepContext, effect_of, positions_of
from holdfast.pipeline import CategoryEncoder, ConditionalImputer, SpreadImputer
from holdfast.pipeline.category_encoder import missing_categories


def missing_of(X: Any) -> NDArray[np.bool_]:
    """Return which entries of a table are missing, numbers and categories, (n_samples, n_features)."""
    values = np.asarray(X)
    if values.dtype.kind in "biuf":
        return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)
    return missing_categories(values)


class Law(ABC):
    """The law of the missing entries in some columns of a table, given the rest of the row.

    Parameters
    ----------
    columns : ndarray of int
        The indices of these columns in the table.
    """

    factor: Callable[[Any], tuple[Array, Array]] | None = None
    """Returns means of Gaussian entries, (n, n_columns), and factors of their covariances; None for other laws."""

    def __init__(self, columns: NDArray[np.intp]):
        self.columns = columns
        self.all_columns = columns
        """`columns`, and the columns that make no difference to the model."""

    @abstractmethod
    def draws(self, X: Any, rng: np.random.Generator, n_draws: int) -> list[NDArray[Any]]:
        """Return draws of each column, numbers or categories, (n_draws, n_samples); known entries go unused."""


class Gaussians(Law):
    """The law of numbers, and of one-hot columns among them, by an imputer with conditional means and factors.

    `filled`, `factor_of` and `corners` take the numbers of the rows.
    """

    def __init__(self, columns: Any, filled: Any, factor_of: Any, corners: Any, kept: NDArray[np.intp]):
        super().__init__(columns[kept])
        self.all_columns, self.filled, self.factor_of, self.corners = columns, filled, factor_of, corners

    def _numbers(self, X: Any) -> Array:
        return dense(numbers_of(_safe_indexing(X, self.all_columns, axis=1)))

    @property
    def factor(self) -> Callable[[Any], tuple[Array, Array]]:  # type: ignore[override]
        """A function that returns means and factors."""
        return lambda X: (self.filled(self._numbers(X)), self.factor_of(self._numbers(X)))

    def is_gaussian(self, X: Any) -> NDArray[np.bool_]:
        """Return the rows of which no category is in doubt."""
        doubts = [one.rows for one in self.corners(self._numbers(X))]
        return ~np.any(doubts, axis=0) if doubts else np.ones(len(missing_of(X)), dtype=bool)

    def draws(self, X: Any, rng: np.random.Generator, n_draws: int) -> list[NDArray[Any]]:
        values = self._numbers(X)
        means, factor = self.filled(values), self.factor_of(values)
        noise = rng.standard_normal((n_draws, len(values), factor.shape[2]))
        found = means + np.einsum("nij,dnj->dni", factor, noise)
        for one in self.corners(values):
            chosen = _categories(np.where(one.is_open, one.given, 0.0), rng, n_draws)
            corner = np.eye(one.given.shape[1])[chosen]
            found[:, :, one.columns] = np.where(one.rows[:, None], corner, found[:, :, one.columns])
        return list(np.moveaxis(found, 2, 0))


class Nothing(Law):
    """The law of columns that a model does not use: it draws nothing."""

    def __init__(self, columns: NDArray[np.intp]):
        super().__init__(columns[:0])
        self.all_columns = columns

    def draws(self, X: Any, rng: np.random.Generator, n_draws: int) -> list[NDArray[Any]]:
        return []


class Shares(Law):
    """The law of categories that are drawn by their shares."""

    def __init__(self, columns: NDArray[np.intp], encoder: CategoryEncoder):
        super().__init__(columns)
        self.encoder = encoder

    def draws(self, X: Any, rng: np.random.Generator, n_draws: int) -> list[NDArray[Any]]:
        n, pairs = len(missing_of(X)), zip(self.encoder.categories_, self.encoder.shares_, strict=True)
        return [np.asarray(names, dtype=object)[rng.choice(len(p), size=(n_draws, n), p=p)] for names, p in pairs]


class Together(Law):
    """The joint law of numbers and categories, learned from rows; categories are their one-hot columns.

    Parameters
    ----------
    rows : table
        Rows similar to those to be completed, with or without missing entries.
    """

    def __init__(self, rows: Any):
        super().__init__(np.arange(n_columns(rows)))
        is_text = others_than_numbers(rows)
        self.numbers, self.texts = np.flatnonzero(~is_text), np.flatnonzero(is_text)
        if len(self.texts):
            given = _safe_indexing(rows, self.texts, axis=1)
            self.encoder = CategoryEncoder(missing="nan", unknown="missing").fit(given)
        self.imputer = ConditionalImputer(keep_empty_features=True).fit(self._encoded(rows))
        self.law = self.imputer.law()

    def _encoded(self, X: Any) -> Array:
        parts = [dense(numbers_of(_safe_indexing(X, self.numbers, axis=1)))]
        if len(self.texts):
            parts.append(self.encoder.transform(_safe_indexing(X, self.texts, axis=1)))
        return np.hstack(parts)

    @property
    def factor(self) -> Callable[[Any], tuple[Array, Array]] | None:  # type: ignore[override]
        """A function that returns means and factors; None if there are columns of categories."""
        if len(self.texts):
            return None
        return lambda X: (self.law.filled(self._encoded(X)), self.law.factor(self._encoded(X)))

    def is_gaussian(self, X: Any) -> NDArray[np.bool_]:
        """Return the rows of which no category is in doubt."""
        doubts = [one.rows for one in self.law.corners(self._encoded(X))]
        return ~np.any(doubts, axis=0) if doubts else np.ones(len(missing_of(X)), dtype=bool)

    def draws(self, X: Any, rng: np.random.Generator, n_draws: int) -> list[NDArray[Any]]:
        values, law = self._encoded(X), self.law
        inner = Gaussians(np.arange(values.shape[1]), law.filled, law.factor, law.corners, law.kept)
        found = inner.draws(values, rng, n_draws)
        out: list[NDArray[Any]] = [np.zeros(0)] * len(self.columns)
        for place, column in enumerate(self.numbers):
            out[column] = found[place]
        for column, names, group in zip(
            self.texts,
            *((self.encoder.categories_, self.encoder.groups_) if len(self.texts) else ((), ())),
            strict=True,
        ):
            one_hot = np.stack([found[len(self.numbers) + k] for k in group], axis=2)
            out[column] = np.asarray(names, dtype=object)[one_hot.argmax(axis=2)]
        return out


def _categories(p: Array, rng: np.random.Generator, n_draws: int) -> NDArray[np.intp]:
    """Return draws of category indices for each row, by probabilities p, (n_draws, n_samples)."""
    ends = np.cumsum(p, axis=1)
    # by rounding, probabilities need not sum to exactly 1: scale u by their sum
    u = rng.uniform(size=(n_draws, len(p))) * ends[:, -1]
    return np.minimum((u[:, :, None] >= ends).sum(axis=2), p.shape[1] - 1)


def law_of_step(step: Any, columns: NDArray[np.intp]) -> Law | None:
    """Return the law of missing entries that a fitted step implies for its columns, None if it implies none."""
    if isinstance(step, Pipeline):
        return law_of_step(step.steps[0][1], columns)
    if isinstance(step, CategoryEncoder):
        return Shares(columns, step)
    if isinstance(step, ConditionalImputer):
        law = step.law()
        return Gaussians(columns, law.filled, law.factor, law.corners, law.kept)
    if not isinstance(step, SpreadImputer):
        return None
    n = len(columns)
    effect = _imputed(step, n)
    kept = np.flatnonzero(~np.isnan(np.array([np.nan if one is None else one for one in step.statistics_])))
    kept = np.arange(n) if step.keep_empty_features else kept
    width = len(kept)
    return Gaussians(
        columns,
        lambda X: dense(numbers_of(step.transform(X)))[:, :width],
        lambda X: effect.linearised(X, RowNoise.none(X.shape)).causes[:, :width],
        effect.corners,
        kept,
    )


def _imputed(step: Any, n_features: int) -> Effect:
    return effect_of(step, StepContext(n_features, {}, "imputer", lambda: np.zeros((1, n_features))))


def laws_of(model: Any, X: Any) -> list[Law]:
    """Return the laws of missing entries of X by a model's first steps, those that take the columns of X themselves."""
    while isinstance(model, BaseSearchCV):
        model = model.best_estimator_
    return list(_laws(model, X, np.arange(n_columns(X)))) if isinstance(model, Pipeline) else []


def _laws(step: Any, X: Any, columns: NDArray[np.intp]) -> Iterator[Law]:
    if isinstance(step, Pipeline):
        yield from _laws(step.steps[0][1], X, columns)
    elif isinstance(step, ColumnTransformer):
        names = list(getattr(step, "feature_names_in_", []))
        for _, inner, chosen in step.transformers_:
            own = columns[positions_of(chosen, names, len(columns))]
            if isinstance(inner, str) and inner == "drop":
                yield Nothing(own)
            else:
                yield from _laws(inner, X, own)
    elif (found := law_of_step(step, columns)) is not None:
        yield found


def covered(laws: Sequence[Law]) -> NDArray[np.intp]:
    """Return the columns that have a law, or that make no difference to the model."""
    return np.unique(np.concatenate([np.zeros(0, dtype=np.intp), *(law.all_columns for law in laws)]))
