"""The base of classifiers that are trained for the worst rows in a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from holdfast._certificates.views import View
from holdfast._core.caller import warn_caller
from holdfast._core.exceptions import CollapseWarning
from holdfast._core.labels import check_features
from holdfast._core.loss import Array, Loss
from holdfast._core.offers import offered_if
from holdfast._core.parameters import resolve
from holdfast._core.row_sets import RowSets
from holdfast._core.solution import Solution, Status
from holdfast._core.uncertainty import UncertaintySet
from holdfast._proofs.certificate import Certificate
from holdfast.estimators.linear import ROUTING, LinearClassifier, shares_of_classes
from holdfast.losses import Hinge, HuberizedHinge, Logistic, Mixture, SquaredHinge
from holdfast.uncertainty import Ball, Box
from holdfast.uncertainty.binding import bound_sets

LOSSES: dict[str, type[Loss]] = {
    "hinge": Hinge,
    "squared_hinge": SquaredHinge,
    "logistic": Logistic,
    "huberized_hinge": HuberizedHinge,
}
COLLAPSED = 1e-7
"""The largest gap at which w = 0 counts as optimal."""


def _is_proper(estimator: WorstCaseClassifier) -> bool:
    if not estimator._loss().is_proper:
        raise AttributeError(
            f"{type(estimator).__name__} has no predict_proba with loss={estimator.loss!r}, which models no probability. Use "
            "loss='logistic'."
        )
    return True


class CollapsingClassifier(LinearClassifier):
    """A classifier trained for the largest loss of rows in sets; if the sets are large enough, w = 0 is optimal."""

    def _unpack(self, problems: Sequence[Any], fits: Sequence[tuple[Solution, Certificate]]) -> Solution:
        worst = super()._unpack(problems, fits)
        self.collapsed_ = worst.status is Status.SOLVED and not np.any(self.coef_) and self.gap_ <= COLLAPSED
        return worst

    def _warn_of_collapse(self, cures: str) -> None:
        """Warn if w = 0 is optimal, so that all predictions are the same, and say what helps."""
        if self.collapsed_:
            warn_caller(
                f"w = 0 is the best model under this uncertainty, certified to a gap of {self.gap_:.1g}: every prediction is "
                f"the same. Use {cures}.",
                CollapseWarning,
            )


class WorstCaseClassifier(CollapsingClassifier):
    """A classifier trained for the largest loss of rows that are known up to a set, `uncertainty`."""

    uncertainty: Any
    loss: Any
    row_uncertainty_: bool

    def _loss(self) -> Loss:
        name = type(self).__name__
        loss = resolve(self.loss, LOSSES, f"{name}(loss=%s)")
        if not isinstance(loss, Loss) or not loss.is_worst_case or isinstance(loss, Mixture):
            raise ValueError(
                f"{name}(loss={self.loss!r}): give one of {', '.join(map(repr, LOSSES))}, or a loss at the worst "
                "point of a set. (Expected losses go with GaussianRobustClassifier, or come with "
                "uncertainty=GaussianNoise(...).)"
            )
        loss.check_parameters()
        return loss

    def _stated_set(self) -> UncertaintySet:
        return Ball(0.0) if self.uncertainty is None else self.uncertainty

    def exact_uncertainty(self) -> tuple[str, UncertaintySet]:
        """Return the name of the parameter for the set, and the set that None stands for when steps add errors."""
        return "uncertainty", Box(0.0)

    def _view_and_sets(
        self, X: Any, uncertainty: UncertaintySet | None, metadata: Mapping[str, Any], method: str
    ) -> tuple[View, RowSets]:
        if uncertainty is None and self.uncertainty is None and not metadata:
            super()._own_set(X, {}, f"{type(self).__name__}.{method}")  # raises: there is no set to certify against
        return super()._view_and_sets(X, uncertainty, metadata, method)

    def _own_set(self, rows: Any, stated: Mapping[str, Any], call: str) -> UncertaintySet:
        uncertainty, name = self._stated_set(), type(self).__name__
        check_features(rows, {"uncertainty": self.uncertainty}, self)
        if self.row_uncertainty_ and not stated:
            raise ValueError(
                f"{name}: this model was fitted with the uncertainty of each row, so it needs theirs here too. "
                f"Pass {' or '.join(uncertainty.metadata)} (zeros for exact rows). {ROUTING}"
            )
        if not set(stated) <= set(uncertainty.metadata):
            bound_sets(self.uncertainty, rows, stated, name)
        return uncertainty.as_stated(stated) if stated else uncertainty

    def _probabilities(self, scores: Array) -> Array:
        """Return the class probabilities for scores of several classes."""
        return shares_of_classes(expit(scores))

    @offered_if(_is_proper)
    def predict_proba(self, X: Any) -> Array:
        r"""Return class probabilities :math:`\mathrm{sigmoid}(f(x))` of the scores; only with ``loss="logistic"``.

        With more than two classes, they are the probabilities of each class against the rest, scaled to sum to 1; after
        a joint fit, the softmax of the scores.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores = self.decision_function(X)
        return np.column_stack([expit(-scores), expit(scores)]) if scores.ndim == 1 else self._probabilities(scores)

    @offered_if(_is_proper)
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X))
