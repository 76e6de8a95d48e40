"""Losses averaged over Gaussian noise: problems of two classes, of each class against the rest, or of all jointly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from holdfast._core.joint_loss import ExpectedJointLoss
from holdfast._core.loss import Loss
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast._data import rows_of
from holdfast._problems.expected_softmax import ExpectedSoftmaxProblem
from holdfast._problems.labelled_rows import LabelledRows
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._problems.pairwise import PairwiseProblem


@dataclass(frozen=True)
class ExpectedRisk:
    """An expected loss plus a ridge, before the rows are given."""

    loss: Loss
    noise: UncertaintySet
    alpha: float
    fit_intercept: bool
    multiclass: str
    quoted: Callable[..., str]
    """Returns the call of the estimator with the named parameters, for error messages."""

    def noise_of(self, X: Any, metadata: Mapping[str, Any]) -> RowSets:
        """Return the noise of rows."""
        for name in metadata:
            if name not in self.noise.metadata:
                raise ValueError(f"{self.quoted('noise')}.fit(..., {name}=...): this noise does not take {name}.")
        noise = self.noise.at(X, metadata)
        if self.loss.is_homogeneous and np.all(noise.exact_features(X.shape[1])):
            raise ValueError(
                f"{self.quoted('noise', 'loss')}: without noise this loss is the plain hinge. State it for all rows, noise=0.3 "
                "in the units of the features say, or pass that of each row, X_std, X_cov or X_factor. (Without noise use "
                "loss='logistic', which is then logistic regression, or sklearn.svm.LinearSVC.)"
            )
        return noise

    def problems(self, labelled: LabelledRows, noise: RowSets) -> list[Any]:
        """Return a list of problems: one for two classes, one joint problem for several, or one for each class."""
        n_classes = len(labelled.classes)
        rows, weights = rows_of(self.noise.mean_rows(labelled.X)), labelled.weights
        if n_classes == 2 or self.multiclass == "ovr":
            return [
                MarginScaleProblem(rows, signs, weights, self.loss, noise, self.alpha, self.fit_intercept)
                for signs in labelled.signs()
            ]
        options: Any = (noise, self.alpha, self.fit_intercept, n_classes)
        if self.loss.is_homogeneous:
            return [PairwiseProblem(rows, labelled.codes, weights, self.loss, *options)]
        loss = cast(ExpectedJointLoss, self.loss.jointly())
        return [ExpectedSoftmaxProblem(rows, labelled.codes, weights, loss, *options)]
