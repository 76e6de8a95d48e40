"""Worst-case losses of rows known up to sets: the choice of the problem class by settings and sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy import sparse

from holdfast._core.joint_loss import JointLoss
from holdfast._core.loss import Array, Loss
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast._data import CROWDED, rows_of
from holdfast._problems.label_flips import flipped
from holdfast._problems.labelled_rows import LabelledRows
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._problems.max_of_pairs import MaxOfPairsProblem
from holdfast._problems.noise_and_set import NoiseAndSetProblem
from holdfast._problems.penalty import Lasso, Limits
from holdfast.ambiguity import LabelFlips
from holdfast.losses import Mixture
from holdfast.uncertainty import Ball, WeightError
from holdfast.uncertainty.binding import bound_sets
from holdfast.uncertainty.filtering import enlarged, filtered


@dataclass(frozen=True)
class RobustRisk:
    """A worst-case loss plus a penalty, before the rows are given; `RobustLinearClassifier` documents the fields."""

    loss: Loss
    uncertainty: UncertaintySet | None
    ambiguity: LabelFlips | None
    weight_error: WeightError | None
    penalty: str | None
    alpha: float
    kappa: float
    multiclass: str
    filter_threshold: float
    fit_intercept: bool
    quoted: Callable[..., str]
    """Returns the call of the estimator with the named parameters, for error messages."""

    def __post_init__(self) -> None:
        if self.multiclass == "joint":
            self._check_joint()

    def _check_joint(self) -> None:
        """Raise if several classes cannot be trained at once under these settings."""
        fits = {
            "loss": self.loss.jointly() is not None,
            "penalty": self.penalty == "l2",
            # without a ridge, separable classes are pushed apart without limit
            "alpha": self.penalty != "l2" or self.alpha > 0,
            "kappa": self.kappa == 1,
            "ambiguity": self.ambiguity is None,
            "weight_error": self.weight_error is None,
        }
        for name in (name for name, is_known in fits.items() if not is_known):
            raise ValueError(
                f"{self.quoted('multiclass', name)}: all classes at once take loss='hinge' or 'logistic', penalty='l2' with "
                "alpha > 0, kappa=1, and neither ambiguity nor weight_error. Use multiclass='ovr' for the rest."
            )

    @property
    def _has_errors(self) -> bool:
        """Whether the weights have errors."""
        return self.weight_error is not None and self.weight_error.checked() > 0

    def problems(self, labelled: LabelledRows, metadata: Mapping[str, Any]) -> tuple[list[Any], float]:
        """Return the joint problem of several classes, or one for each, or one for two; and the share of entries filtered."""
        stated = self.uncertainty
        worst, cloud = bound_sets(stated, labelled.X, metadata, "RobustLinearClassifier")
        if worst is None and cloud is None:
            worst = Ball(0.0).at(labelled.X, {})
        X, worst, share = self._filtered(labelled.X, worst, metadata)
        X = X if stated is None else stated.mean_rows(X)
        self._check_sets(worst, cloud)
        if self.multiclass == "joint" and len(labelled.classes) > 2:
            assert worst is not None
            return [self._joint(rows_of(X), labelled, worst)], share
        flips, middles = self._flips(labelled), None
        if worst is not None and (self.kappa < 1 or flips is not None or self._has_errors):
            # a label and its opposite face the same set if it is centred on its row; so do weights and their errors
            centred, worst = worst.centred(X)
            X, middles = centred, (None if centred is X else centred - X)
            self._check_symmetric(worst, flips)
        rows, found = rows_of(X), []
        for signs in labelled.signs():
            faced, target = None if worst is None else worst.against_labels(signs), None
            if self._has_errors:
                faced, target = self._with_weight_error(X, signs, faced, cloud)
            options = {} if target is None else {"target": target}
            options |= {} if middles is None else {"middles": middles}
            problem = self._binary(rows, signs, labelled.weights, faced, cloud, options)
            if flips is not None:
                pools = np.zeros_like(labelled.codes) if len(flips) == 1 else labelled.codes
                problem = flipped(problem, flips, pools, labelled.counts)
            found.append(problem)
        return found, share

    def _binary(
        self,
        rows: Any,
        signs: Array,
        weights: Array,
        worst: RowSets | None,
        cloud: RowSets | None,
        options: Mapping[str, Any],
    ) -> MarginScaleProblem:
        """Return the problem of two classes for sets over which the loss is maximised, averaged, or both."""
        loss = self.loss if cloud is None or self.kappa == 0 else self.loss.averaged()
        loss = loss if self.kappa == 1 else Mixture(loss, self.kappa)
        options = {**self._penalty(), **options, "fit_intercept": self.fit_intercept}
        if worst is not None and cloud is not None:
            return NoiseAndSetProblem(rows, signs, weights, loss, cloud, push=worst, kappa=self.kappa, **options)
        sets = cloud if worst is None else worst
        assert sets is not None
        return MarginScaleProblem(rows, signs, weights, loss, sets, **options)

    def _joint(self, rows: Any, labelled: LabelledRows, worst: RowSets) -> MaxOfPairsProblem:
        return MaxOfPairsProblem(
            rows,
            labelled.codes,
            labelled.weights,
            cast(JointLoss, self.loss.jointly()),
            worst,
            n_classes=len(labelled.classes),
            fit_intercept=self.fit_intercept,
            **self._penalty(),
        )

    def _penalty(self) -> dict[str, Any]:
        """Return the penalty as fields of a problem."""
        if self.penalty is None or self.alpha == 0:
            return {}
        if self.penalty == "l2":
            return {"alpha": self.alpha}
        return {"penalty": Lasso(self.alpha) if self.penalty == "l1" else Limits(1 / self.alpha)}

    def _flips(self, labelled: LabelledRows) -> Array | None:
        """Return the weight of labels that may flip, in all or for each class; None if none may."""
        if self.ambiguity is None:
            return None
        totals = np.bincount(labelled.codes, labelled.counts, len(labelled.classes)).astype(np.float64)
        budgets = self.ambiguity.budgets(totals, labelled.classes)
        return budgets if np.any(budgets > 0) else None

    def _check_sets(self, worst: RowSets | None, cloud: RowSets | None) -> None:
        """Raise if no certified fit is known for the sets under the settings."""
        is_joint = self.multiclass == "joint"
        is_plain = self.kappa == 1 and cloud is None and not self._has_errors and not is_joint
        if worst is not None and not worst.has_origin and not is_plain:
            raise ValueError(
                f"{self.quoted('uncertainty')}: rows that have to change are not known together with kappa < 1, noise, "
                "weight_error or multiclass='joint'. Use exactly=False, which lets rows be as they are."
            )
        if is_joint and cloud is not None:
            raise ValueError(
                f"{self.quoted('multiclass', 'uncertainty')}: losses averaged over noise are not known for all classes at "
                "once here. Use multiclass='ovr', or GaussianRobustClassifier(noise), which takes all classes at once."
            )

    def _check_symmetric(self, worst: RowSets, flips: Array | None) -> None:
        """Raise where a label and its opposite, or weights and their errors, face different sets."""
        if not (worst.is_symmetric or (flips is None and not self._has_errors)):
            raise ValueError(
                f"{self.quoted('uncertainty')}: FeatureDeletion together with LabelFlips or WeightError: what a deletion does "
                "depends on the label, so that a wrong label faces another set, and no certified fit is known. State one of "
                "them."
            )

    def _with_weight_error(
        self, X: Any, signs: Array, faced: RowSets | None, cloud: RowSets | None
    ) -> tuple[RowSets, Any]:
        """Return the sets and the target margins of rows whose weights have errors."""
        assert self.weight_error is not None
        if cloud is not None or faced is None:
            raise ValueError(
                f"{self.quoted('uncertainty', 'weight_error')}: what errors of weights do to Gaussian noise has no closed "
                "form. State a set, such as Box or ChanceConstraint(epsilon, 'gaussian')."
            )
        return self.weight_error.faced(X, signs, faced)

    def _filtered(
        self, X: Any, worst: RowSets | None, metadata: Mapping[str, Any]
    ) -> tuple[Any, RowSets | None, float]:
        """Return X without entries that are small beside their half-widths, sets that make up for it, and their share."""
        if self.filter_threshold == 0:
            return X, worst, 0.0
        unit = None if self.uncertainty is None else self.uncertainty.as_stated({}).split(X, metadata)[0]
        form = None if unit is None else unit.interval_form()
        if worst is None or form is None:
            raise ValueError(
                f"{self.quoted('uncertainty', 'filter_threshold')}: entries are compared with their half-widths, which only "
                "boxes have. Use Box or IntervalBox, or leave filter_threshold None."
            )
        kept, gone = filtered(X, form, self.filter_threshold)
        is_crowded = not sparse.issparse(X) and kept.nnz > CROWDED * X.size
        share = gone.nnz / max(1, gone.nnz + kept.nnz)
        return kept.toarray() if is_crowded else kept, enlarged(worst, form, self.filter_threshold, gone), share

    def refuse_unattained(self, problems: Sequence[Any], points: Sequence[Array]) -> None:
        """Raise if some problem has no minimum: a loss that never vanishes, no penalty, and rows that can be separated."""
        for problem, point in zip(problems, points, strict=True):
            if self.loss.reaches_zero or problem.is_held:
                continue
            w, b = problem.split(point)
            t, pushed = problem.sets.recession(w), problem.push_of(w)
            # averaged noise costs more and more as weights grow, and so does the part outside of the loss
            grows = (1 - self.kappa) * (t + pushed) if problem.loss.is_worst_case else t + (1 - self.kappa) * pushed
            clear = (problem.signs * (problem.rows.dot(w) + b) > t + pushed) & (grows == 0)
            if np.all(clear[problem.weights > 0]):
                raise ValueError(
                    f"{self.quoted('loss', 'penalty', 'kappa')}: at this uncertainty the training rows can be separated "
                    "whatever happens, so the loss falls towards 0 as the weights grow, and there is no best model. Use a "
                    "penalty (penalty='l2'), kappa < 1 with some uncertainty, loss='hinge', or a larger radius "
                    "(separability_radius says which)."
                )
