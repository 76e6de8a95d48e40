"""Perturbations of rows and labels by sets and by rounding, at random or by an adversary, at any level."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._certificates.models import LAST_BITS
from holdfast._certificates.pipelines import linear_in_x
from holdfast._core.allowed import Choice, Count, Switch, short
from holdfast._core.arithmetic import dense, rescaled
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.labels import column_name
from holdfast._core.parameters import Parameters
from holdfast._core.rounding import Array
from holdfast._core.uncertainty import UncertaintySet
from holdfast.ambiguity import LabelFlips
from holdfast.evaluate.attacks import worst_case
from holdfast.evaluate.fitted import classes_of, told
from holdfast.features.carrying import extents, refuse_inexact
from holdfast.features.rows import as_given
from holdfast.uncertainty import Box, CorruptedFeatures, DropoutNoise, FeatureDeletion
from holdfast.uncertainty.checks import feature_costs, nonnegative, one_number, per_feature, stated_number
from holdfast.uncertainty.deletions import random_deletions, worst_deletions

ADVERSARIES = ("random", "greedy", "exact", "relaxed")
"""All adversaries; each perturbation takes some of them."""
NEEDS_MODEL = "{0!r}: the adversary needs to know the model. Pass model=..., or adversary='random'."


class Bounds(NamedTuple):
    """All that a perturbation can do to rows, as a set with its metadata."""

    uncertainty: UncertaintySet
    metadata: Mapping[str, Any]


class Perturbation(ABC):
    """A change of rows or labels, whose size is a `level` >= 0; at level 0 nothing changes."""

    adversaries: ClassVar[tuple[str, ...]] = ("random",)
    """The adversaries that it takes."""
    unit: str
    """The unit of the levels, for labels of axes."""
    adversary: str = "random"

    @property
    def needs_model(self) -> bool:
        """Whether it is chosen against a model."""
        return self.adversary != "random"

    @property
    def is_random(self) -> bool:
        """Whether repeats differ."""
        return not self.needs_model

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
            The source of all randomness.
        model : classifier, default=None
            The model that an adversary attacks.
        """

    def told(self, model: Any, X: Any, level: float) -> dict[str, Any]:
        """Return the metadata at a level for `predict`, if the model averages over errors; else an empty dict."""
        return {}

    def bounds(self, X: Any, level: float) -> Bounds | None:
        """Return a set that holds all changes of rows at a level; None if there is none, or none that is of use."""
        return None

    def refuse_categories(self, exact: NDArray[np.intp], X: Any) -> None:
        """Raise if it would change columns of X that are not numbers, whose indices are `exact`."""
        return

    def _level(self, level: Any) -> float:
        return one_number(level, f"{self!r}.apply(..., level={level!r:.40})", "level")


@singledispatch
def perturbation_of(uncertainty: Any, adversary: str, metadata: Mapping[str, Any], X: Any, call: str) -> Perturbation:
    """Return the perturbation of the rows X by a set; `metadata` are those of these rows."""
    raise ValueError(
        f"{call}(..., uncertainty={short(uncertainty):.80}): give a set, such as GaussianNoise(0.3), Box(0.1), Ball(0.5), "
        "IntervalBox(), FeatureDeletion(1), CorruptedFeatures(1) or LabelFlips(0.1), or Quantize(step)."
    )


@dataclass(frozen=True)
class Errors(Perturbation):
    """Errors of the values: drawn from noise, drawn uniformly from a set, or the worst point of each row's set."""

    adversaries = ("random", "greedy", "exact")
    uncertainty: UncertaintySet
    metadata: Mapping[str, Any] = field(repr=False)
    given: Any = field(repr=False)
    """The rows as they were given, such as a frame for models that need one."""
    adversary: str

    @property
    def unit(self) -> str:  # type: ignore[override]
        """Multiples of the stated size."""
        return f"multiple of the stated {self.uncertainty.size_name}"

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        size = self._level(level)
        if self.is_random:
            [errors] = self.uncertainty.draws(X, self.metadata, rng, 1)
            return _plus(X, size * errors), y
        if model is None:
            raise ValueError(NEEDS_MODEL.format(self))
        method = "closed_form" if self.adversary == "exact" else "auto"
        try:
            found = worst_case(
                model, as_given(self.given, X), y, self.uncertainty.times(size), method=method, **self.metadata
            )
        except NoCertificateError as error:
            raise NoCertificateError(f"adversary='exact': {error} adversary='greedy' searches.") from error
        return dense(X) + found.moves, y

    def told(self, model: Any, X: Any, level: float) -> dict[str, Any]:
        if not self.uncertainty.is_expectation:
            return {}
        return told(model, self.uncertainty.at(X, self.metadata).scaled(level), X.shape)

    def bounds(self, X: Any, level: float) -> Bounds | None:
        if self.uncertainty.is_expectation or self.uncertainty.split(X, self.metadata)[1] is not None:
            return None
        moved = self.uncertainty.times(level)
        if level == 0:
            return Bounds(moved, self.metadata)
        # x + d is rounded, and may lie outside the set by a rounding error: certify a set that is larger by as much
        reach = np.max(extents(self.uncertainty.at(X, self.metadata), X.shape), axis=(0, 1))
        return Bounds(moved + Box(half_widths=(reach > 0) * _rounding(X)), self.metadata)

    def refuse_categories(self, exact: NDArray[np.intp], X: Any) -> None:
        refuse_inexact(exact, self.uncertainty, self.metadata, X)


@perturbation_of.register
def _(uncertainty: UncertaintySet, adversary: str, metadata: Mapping[str, Any], X: Any, call: str) -> Perturbation:
    if uncertainty.is_expectation and adversary != "random":
        raise ValueError(
            f"{call}(..., adversary={adversary!r}): {uncertainty!r} is a noise, which has no bounds, so that no row is the "
            "worst. Use adversary='random', or a set such as Box or Ball."
        )
    return Errors(uncertainty.as_shape(), metadata, X, adversary)


@dataclass(frozen=True)
class Dropouts(Perturbation):
    """Entries go missing at random, and are replaced by a filler."""

    uncertainty: DropoutNoise
    metadata: Mapping[str, Any] = field(repr=False)

    @property
    def unit(self) -> str:  # type: ignore[override]
        """Shares of entries, or multiples of the stated share."""
        is_share = np.ndim(self.uncertainty.share) == 0 and self.uncertainty.share == 1
        return "share of entries that are missing" if is_share else "multiple of the stated share of missing entries"

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        size = self._level(level)
        if isinstance(self.uncertainty.share, str):
            raise ValueError(
                f"{self.uncertainty!r}: a level multiplies the shares, so state them, as in DropoutNoise(1.0)."
            )
        stated = self.uncertainty.get_params(deep=False)
        larger = DropoutNoise(**stated | {"share": np.multiply(size, stated["share"])})
        [errors] = larger.draws(X, self.metadata, rng, 1)
        return _plus(X, errors), y

    def refuse_categories(self, exact: NDArray[np.intp], X: Any) -> None:
        refuse_inexact(exact, self.uncertainty, self.metadata, X)


@perturbation_of.register
def _(uncertainty: DropoutNoise, adversary: str, metadata: Mapping[str, Any], X: Any, call: str) -> Perturbation:
    return Dropouts(uncertainty, metadata)


@dataclass(frozen=True)
class Deletions(Perturbation):
    """Features of each row are deleted, up to a budget."""

    adversaries = ADVERSARIES
    uncertainty: FeatureDeletion
    adversary: str

    @property
    def unit(self) -> str:  # type: ignore[override]
        """Features, their values, or multiples of a budget."""
        what = "deleted features in each row"
        what = what if self.uncertainty.values is None else f"value of the {what}"
        return what if self._budget == 1 else "multiple of the stated budget"

    @property
    def _budget(self) -> float:
        return stated_number(self.uncertainty.budget, "FeatureDeletion", "budget")

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        stated, budget = self.uncertainty, self._level(level) * self._budget
        if Switch().checked(stated.exactly, "FeatureDeletion(exactly"):
            raise ValueError(
                f"{stated!r}: a level is the most that may be deleted, not an exact amount. Use exactly=False."
            )
        filler = stated.fillers(X.shape[1])
        lost = dense(X) - filler if np.any(filler) else X
        share = stated_number(stated.share, "FeatureDeletion", "share")
        if self.is_random:
            chosen = random_deletions(lost, budget, stated.values, random_state=rng)
        else:
            choose = lambda gains: worst_deletions(gains, budget, stated.values, adversary=self.adversary)
            chosen = _worst(self, X, share * lost, y, model, choose)
        gone: Any = share * lost
        if not (sparse.issparse(X) and sparse.issparse(gone)):
            return dense(X) - np.where(chosen, chosen * dense(gone), 0), y
        kept = sparse.csr_matrix(X - gone.multiply(chosen)) if chosen.nnz else X.copy()
        kept.eliminate_zeros()
        return kept, y

    def bounds(self, X: Any, level: float) -> Bounds | None:
        costs = feature_costs(self.uncertainty.values, X.shape[1], "FeatureDeletion(values=...)")
        budget = level * self._budget
        stated = self.uncertainty.get_params(deep=False) | {"budget": budget}
        return Bounds(FeatureDeletion(**stated), {}) if budget < costs.sum() else None

    def refuse_categories(self, exact: NDArray[np.intp], X: Any) -> None:
        refuse_inexact(exact, self.uncertainty, {}, X)


@perturbation_of.register
def _(uncertainty: FeatureDeletion, adversary: str, metadata: Mapping[str, Any], X: Any, call: str) -> Perturbation:
    _refuse(metadata, uncertainty, call)
    return Deletions(uncertainty, adversary)


@dataclass(frozen=True)
class Corruptions(Perturbation):
    """Features of each row, random ones or those that a linear model depends on most, are replaced by noise."""

    adversaries = ("random", "greedy")
    is_random = True
    uncertainty: CorruptedFeatures
    adversary: str

    @property
    def unit(self) -> str:  # type: ignore[override]
        """Numbers of features, or multiples of the stated number."""
        is_one = self.uncertainty.n_corrupted == 1
        return "corrupted features in each row" if is_one else "multiple of the stated number of corrupted features"

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        stated = self.uncertainty
        count = self._level(level) * Count(0).checked(stated.n_corrupted, "CorruptedFeatures(n_corrupted")
        if count != int(count) or count > X.shape[1]:
            raise ValueError(
                f"{stated!r} at level={level!r:.40}: {count:g} is no number of features, of which X has {X.shape[1]}."
            )
        rows, chosen = dense(X), None
        if self.needs_model:
            choose = lambda gains: worst_deletions(gains, count, adversary="greedy").astype(np.float64)
            chosen = _worst(self, rows, rows, y, model, choose)
        drawn = CorruptedFeatures(**stated.get_params(deep=False) | {"n_corrupted": int(count)})
        return drawn.sample(rows, gains=chosen, random_state=rng), y

    def refuse_categories(self, exact: NDArray[np.intp], X: Any) -> None:
        if len(exact):
            raise ValueError(
                f"{self.uncertainty!r}: column {column_name(X, exact[0])!r} is no number that noise could replace."
            )


@perturbation_of.register
def _(uncertainty: CorruptedFeatures, adversary: str, metadata: Mapping[str, Any], X: Any, call: str) -> Perturbation:
    _refuse(metadata, uncertainty, call)
    return Corruptions(uncertainty, adversary)


@dataclass(frozen=True)
class Flips(Perturbation):
    """Labels are replaced by other classes, each with the same probability; rows stay as they are."""

    uncertainty: LabelFlips

    @property
    def unit(self) -> str:  # type: ignore[override]
        """A share of labels, or multiples of the stated number."""
        k = self.uncertainty.k
        is_share = isinstance(k, float) and k == 1
        return "share of labels that are flipped" if is_share else f"multiple of {self.uncertainty!r}"

    def apply(
        self, X: Any, y: NDArray[Any], level: float, rng: np.random.Generator, model: Any = None
    ) -> tuple[Any, NDArray[Any]]:
        size = self._level(level)
        classes = np.unique(y) if model is None else classes_of(model)
        if len(classes) < 2:
            raise ValueError(f"{self.uncertainty!r}: y holds one class only, so that there is nothing to flip to.")
        codes = _codes(self, classes, y)
        totals = np.bincount(codes, minlength=len(classes)).astype(np.float64)
        budgets = size * self.uncertainty.budgets(totals, classes)
        pools = (
            [np.arange(len(codes))] if len(budgets) == 1 else [np.flatnonzero(codes == k) for k in range(len(classes))]
        )
        flipped = codes.copy()
        for pool, budget in zip(pools, budgets, strict=True):
            if budget > len(pool):
                raise ValueError(
                    f"{self.uncertainty!r} at level={level!r:.40}: {budget:g} labels are to flip, and there are {len(pool)}."
                )
            chosen = rng.permutation(pool)[: round(budget)]
            flipped[chosen] = (codes[chosen] + rng.integers(1, len(classes), size=len(chosen))) % len(classes)
        return X, classes[flipped]


@perturbation_of.register
def _(uncertainty: LabelFlips, adversary: str, metadata: Mapping[str, Any], X: Any, call: str) -> Perturbation:
    _refuse(metadata, uncertainty, call)
    return Flips(uncertainty)


class Quantize(Parameters, Perturbation):
    r"""Values are rounded to multiples of a step: :math:`m\,h \operatorname{round}(x / (m h))` with the level m.

    Rounding is not random, so this is not a set, but :func:`robustness_curve` and :func:`compare` take it like one.

    Parameters
    ----------
    step : float or array-like of shape (n_features,), default=1.0
        The step h, in the units of the features; 0 leaves a feature as it is.

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

    def refuse_categories(self, exact: NDArray[np.intp], X: Any) -> None:
        wrong = exact[self._steps(np.shape(X)[1], 1.0)[exact] > 0]
        if len(wrong):
            raise ValueError(
                f"{self!r}: column {column_name(X, wrong[0])!r} is no number that could be rounded. State 0 for it: "
                "Quantize([...])."
            )


@perturbation_of.register
def _(uncertainty: Quantize, adversary: str, metadata: Mapping[str, Any], X: Any, call: str) -> Perturbation:
    _refuse(metadata, uncertainty, call)
    return uncertainty


def checked_perturbation(
    uncertainty: Any, adversary: Any, metadata: Mapping[str, Any], X: Any, call: str
) -> Perturbation:
    """Return the perturbation of the rows X by a set, after checking that it takes the adversary."""
    Choice(*ADVERSARIES).checked(adversary, f"{call}(..., adversary")
    made = perturbation_of(uncertainty, adversary, metadata, X, call)
    Choice(*made.adversaries).checked(adversary, f"{call}(..., {type(uncertainty).__name__}(...), ..., adversary")
    return made


def _refuse(metadata: Mapping[str, Any], uncertainty: Any, call: str) -> None:
    if metadata:
        raise ValueError(f"{call}(..., {next(iter(metadata))}=...): {uncertainty!r} does not take it.")


def _rounded(values: Any, steps: Array) -> Any:
    """Return values rounded to multiples of steps; where a step is 0, unchanged."""
    safe = np.where(steps > 0, steps, 1.0)
    return np.where(steps > 0, np.round(values / safe) * safe, values).astype(_kind(values), copy=False)


def _kind(values: Any) -> Any:
    """Return the floating-point type of values: float64 for integers."""
    return values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)


def _rounding(X: Any) -> Array:
    """Return a bound on the rounding error of moving each feature, shape (n_features,)."""
    largest = np.abs(X).max(axis=0)
    return 4 * np.finfo(_kind(X)).eps * dense(largest).ravel().astype(np.float64)


def _plus(X: Any, errors: Any) -> Any:
    """Return rows plus errors, sparse if both are."""
    if not sparse.issparse(errors):
        return dense(X) + errors
    return sparse.csr_matrix(X + errors) if sparse.issparse(X) else X + errors.toarray()


def _codes(perturbation: Perturbation, classes: NDArray[Any], y: Any) -> NDArray[np.intp]:
    """Return labels as indices into the classes of a model."""
    if not np.all(known := np.isin(y, classes)):
        raise ValueError(
            f"{perturbation!r}: y holds {np.unique(np.asarray(y)[~known]).tolist()!r:.80}, which the model does not know: "
            f"its classes are {classes.tolist()!r:.200}. Leave these rows out."
        )
    return np.searchsorted(classes, y)


def _worst(perturbation: Perturbation, X: Any, lost: Any, y: Any, model: Any, choose: Any) -> Any:
    """Return the features of each row that an adversary chooses, as weights of shape (n_samples, n_features).

    `lost` is what is subtracted from each feature if it is chosen. For each rival class, `choose` takes what each
    feature adds to the label's lead and returns a choice; the choice that leaves the smallest lead is kept.
    """
    if model is None:
        raise ValueError(NEEDS_MODEL.format(perturbation))
    view = linear_in_x(model, repr(perturbation))
    if not view.decision.is_by_duels:
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
            gains = rescaled(lost[own].astype(np.float64), np.ones(len(own)), v)
            found = choose(gains)
            leads = scores[own] @ duel - np.asarray((gains * found).sum(axis=1)).ravel()
            better = leads < smallest
            smallest = np.where(better, leads, smallest)
            others = rescaled(kept, (~better).astype(np.float64)) if np.ndim(kept) else 0.0 * gains
            kept = rescaled(found.astype(np.float64), better.astype(np.float64)) + others
        parts.append(kept)
        order.append(own)
    stacked = sparse.vstack(parts, format="csr") if sparse.issparse(lost) else np.concatenate(parts)
    return stacked[np.argsort(np.concatenate(order))]
