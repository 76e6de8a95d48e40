"""A question about worst cases: a model, rows with labels and sets, and the method that finds the worst points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast._certificates.views import View
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.rounding import Array
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.evaluate.fitted import (
    asked,
    classes_of,
    labels_of,
    refuse_errors_of_categories,
    rows_for,
    stated_of,
)


@dataclass(frozen=True)
class Question:
    """A model, its rows and labels, their sets, and how to attack them."""

    model: Any
    X: Any
    rows: Any
    labels: NDArray[Any]
    classes: NDArray[Any]
    codes: NDArray[np.intp]
    sets: RowSets
    """In the units of X."""
    view: View | None
    """The model as certificates see it; None if no certificate is known for it."""
    seen: RowSets | None
    """The sets in the units of the view's rows: steps that are not affine change the sets."""
    method: str

    @property
    def is_closed(self) -> bool:
        """Whether the worst rows follow from linear scores, so that nothing in the sets is worse."""
        return self.method == "closed_form"

    def worst_moves(self) -> tuple[Array, Array]:
        """Return the worst move of each row for a model with linear scores, and the leads at the moved rows."""
        assert self.view is not None
        return self.view.worst_moves(self.sets, self.codes)

    def right_rows(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows a linear model gets right everywhere in their sets, and for which of these it is proved."""
        assert self.view is not None
        assert self.seen is not None
        right, sure = np.zeros((2, len(self.codes)), dtype=bool)
        for some, wins, leads, doubts in self.view.worst_duels(self.seen, self.codes):
            # a tie goes to the class that predict would choose, but ties never count as proved
            right[some] = np.all((leads > 0) | ((leads == 0) & wins), axis=1)
            sure[some] = np.all(leads > doubts, axis=1)
        return right, sure

    def certified_share(self) -> float:
        """Return the share of rows that are proved right everywhere in their sets, NaN if no proof is known."""
        if self.view is None or self.seen is None:
            return np.nan
        if self.is_closed:
            return float(np.mean(self.right_rows()[1]))
        codes, margin = self.view.margins(self.seen)
        return float(np.mean((margin > 0) & (self.classes[codes] == self.labels)))


def question_of(
    model: Any, X: Any, y: Any, uncertainty: Any, metadata: Mapping[str, Any], method: str, call: str
) -> Question:
    """Return a checked question, with the method that answers it."""
    if not isinstance(uncertainty, UncertaintySet):
        raise ValueError(
            f"{call}(..., uncertainty={uncertainty!r:.80}): give a set, such as Ball(0.3), Box(), IntervalBox(), "
            "FeatureDeletion(2), or a sum of sets."
        )
    classes, rows = classes_of(model), rows_for(model, X)
    stated = stated_of(model, X, metadata, call, {"uncertainty": uncertainty})
    labels = labels_of(model, y, rows.shape[0], call)
    refuse_errors_of_categories(model, X, uncertainty, stated)
    sets, cloud = uncertainty.split(rows, stated)
    if cloud is not None or sets is None:
        raise ValueError(
            f"{call}(..., uncertainty={uncertainty!r}): Gaussian noise has no bounds, so no row is the worst. State a "
            "set: ChanceConstraint(epsilon, 'gaussian') holds what happens with probability 1 - epsilon."
        )
    view = seen = None
    try:
        view, _ = asked(model, X)
        seen, _ = view.sets(uncertainty, stated)
    except NoCertificateError:
        if method in ("closed_form", "gradient"):
            raise  # only a search by queries needs no knowledge of the model
    # gradients and closed forms are in terms of the rows given, so only affine steps may come before the model
    straight = None if view is None or view.is_curved else view.model
    is_closed = straight is not None and straight.as_linear() is not None and straight.decision.is_by_duels
    if method == "closed_form" and not is_closed:
        raise NoCertificateError(
            f"{call}(method='closed_form'): for linear scores of which the largest wins; those of {model!r:.80} are "
            "not. Use method='gradient'."
        )
    if method == "gradient" and straight is None:
        raise NoCertificateError(
            f"{call}(method='gradient'): no gradient is known of {model!r:.80}. Use method='queries'."
        )
    if method == "auto":
        method = "closed_form" if is_closed else "queries" if straight is None else "gradient"
    codes = np.searchsorted(classes, labels)
    return Question(model, X, rows, labels, classes, codes, sets, view, seen, method)
