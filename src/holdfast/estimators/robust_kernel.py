"""The nonlinear classifier for rows that are only known up to a set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
from sklearn.base import clone

from holdfast._core.allowed import NOTHING, TEXT, Choice, Count, Instance, Number
from holdfast._core.loss import Array, Loss
from holdfast._core.metadata import SetsByRow, takes_metadata
from holdfast._core.row_sets import RowSets
from holdfast._core.solver import Report
from holdfast._data import rows_of
from holdfast._problems.labelled_rows import LabelledRows
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._training.training import train
from holdfast.estimators.callbacks import with_callbacks
from holdfast.estimators.inputs import labelled_rows, one_blas_thread
from holdfast.estimators.linear import Task
from holdfast.estimators.mapped_scores import MappedScores
from holdfast.estimators.worst_case import WorstCaseClassifier
from holdfast.features.expected_features import checked_rows
from holdfast.features.robust_features import RobustFeatures, worst_only
from holdfast.features.robust_fourier import RobustFourierFeatures
from holdfast.features.robust_nystroem import LARGEST_GRAM, RobustNystroem
from holdfast.uncertainty.binding import bound_sets, refuse_of_training

NAME = "RobustKernelClassifier"
TRIAL_ROWS, TRIAL_GAP = 500, 1e-2
"""For the comparison of bounds: about how many rows the fits have, and their gap."""
MAPS: dict[str, Any] = {"fourier": RobustFourierFeatures, "nystroem": RobustNystroem, "exact": RobustNystroem}


class _Rows(NamedTuple):
    """The rows, sets and feature map that the problems of all classes and all bounds share."""

    inputs: Array
    """The rows as given, shape (n_samples, n_features)."""
    labelled: LabelledRows
    """The rows in feature space."""
    sets: RowSets
    """The sets of the rows as given, in the units of the inputs."""
    map: RobustFeatures

    def thinned(self, n_samples: int) -> _Rows:
        """Return about `n_samples` rows, evenly spaced within each class; each class keeps its total weight."""
        features, codes, weights, _, classes = self.labelled
        stride = max(1, len(codes) // n_samples)
        own = [np.flatnonzero((codes == k) & (weights > 0)) for k in range(len(classes))]
        parts = [rows[::stride] for rows in own]
        shares = np.concatenate(
            [weights[part] * (weights[rows].sum() / weights[part].sum()) for rows, part in zip(own, parts, strict=True)]
        )
        some = np.concatenate(parts)
        labelled = LabelledRows(features[some], codes[some], shares, shares, classes)
        return _Rows(self.inputs[some], labelled, self.sets.take(some), self.map)


@dataclass(kw_only=True)
class MappedTask(Task):
    """The problems that `fit` has to solve when a bound has been chosen."""

    rows: _Rows
    loss: Loss
    bounds: tuple[str, ...]


class RobustKernelClassifier(MappedScores, WorstCaseClassifier):
    r"""Nonlinear classifier, linear in features of a kernel, trained for the worst rows that their uncertainty admits.

    Each row is x_i + d for some d in a set :math:`D_i` of inputs. The score is :math:`f(x) = w^\top \phi(x) + b`, with
    random Fourier or Nystroem features :math:`\phi` of a kernel. How far errors can move these features has no closed
    form, so the classifier is trained for larger sets, with :math:`\rho_i(v) \ge \max_{d \in D_i} v^\top (\phi(x_i + d)
    - \phi(x_i))`:

    .. math:: \min_{w, b}\; \sum_i c_i\, \psi\bigl(1 - y_i f(x_i) + \rho_i(-y_i w)\bigr) + \frac\alpha2 |w|^2.

    This is an upper bound on each row's largest loss over all admissible inputs. `bound` chooses :math:`\rho`; see
    :class:`RobustFourierFeatures` and :class:`RobustNystroem`. The problem is convex, and `gap_` proves how near the
    fit is to its optimum. Without uncertainty it is an SVM with a kernel; with ``features="exact"`` it is ``SVC(C=1 /
    alpha)``.

    ===========================  ====================================================================================
    ``features="nystroem"``      `n_components` rows as landmarks of an RBF kernel; the default, also for many rows
    ``features="exact"``         all rows as landmarks: the RBF kernel machine itself, up to about 2000 rows
    ``features="fourier"``       `n_components` random Fourier features of an RBF kernel
    a feature map                a ``RobustFourierFeatures(...)`` or ``RobustNystroem(...)`` with its own parameters
    ===========================  ====================================================================================

    The penalty and some bounds are from Couellan & Jan (2020), with corrected radii; the default bounds are much
    tighter.

    Parameters
    ----------
    uncertainty : UncertaintySet or None, default=None
        The possible errors of a row, in the units of the inputs: `Ball`, `Box`, `IntervalBox`, `Ellipsoid`, a sum of
        them, or another set of inputs. Sizes that differ by row are given to `fit`. None: no errors.
    features : {"nystroem", "exact", "fourier"} or feature map, default="nystroem"
    bound : str, default="auto"
        One of the `bounds` of the feature map, such as ``"tangent"`` or ``"ball"``. ``"auto"`` makes a rough fit, on
        about 500 rows, for each bound that can be best, and takes the one with the lowest objective, `bound_`. That
        takes longer than a fit for a single bound. The cheapest are ``"ball"`` (Nystroem) and ``"water"`` (Fourier),
        which have one radius for all rows.
    loss : {"hinge", "squared_hinge", "logistic", "huberized_hinge"} or Loss, default="hinge"
        :math:`\psi`.
    gamma : float or "scale", default="scale"
        The parameter of the kernel :math:`e^{-\gamma |x - z|^2}`; "scale" is 1 / (n_features * X.var()). With a smaller
        gamma errors move the features less. :func:`holdfast.features.bandwidth_grid` proposes values.
    n_components : int or None, default=None
        The number of features or landmarks. None: 200, or all rows with ``features="exact"``.
    alpha : float, default=1.0
        Strength of the penalty, > 0: 1/C of scikit-learn.
    fit_intercept : bool, default=True
    class_weight : dict or "balanced", default=None
        Factors on the weights of the classes. With more than two classes, each is trained against the rest.
    solver : str or Solver, default=None
        None picks one.
    tol : float, default=1e-6
        Largest certified relative gap to accept.
    max_iter : int, default=1000
    warm_start : bool, default=False
        Start from the previous fit's coefficients.
    verbose : int, default=0
        1 logs progress to the logger "holdfast".
    random_state : int or None, default=None
        Seeds the choice of frequencies or landmarks.

    Attributes
    ----------
    feature_map_ : RobustFourierFeatures or RobustNystroem
        The fitted feature map.
    coef_ : ndarray of shape (1, n_features_out) or (n_classes, n_features_out)
        The weights of the map's features.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        Sorted; with two classes a positive score means ``classes_[1]``.
    bound_ : str
        The bound that the classifier was trained with.
    bound_objectives_ : dict
        With ``bound="auto"``: the objective of each bound after the rough fits.
    objective_, lower_bound_, gap_ : float
        The objective, a lower bound on it over all coefficients, and their relative distance, recomputed from the
        features.
    collapsed_ : bool
        Whether w = 0 has been certified as optimal (for every class).
    proof_weights_ : ndarray of shape (1, n_samples) or (n_classes, n_samples)
        The dual weights that prove `lower_bound_`; the model does not depend on rows with an entry of 0.
    row_uncertainty_ : bool
        Whether the sets were stated row by row in `fit`; `certify` then needs them too.
    norm_bound_, n_iter_, solution_, holdfast_version_, n_features_in_, feature_names_in_
        As for :class:`RobustLinearClassifier`.

    Notes
    -----
    `certify` and :func:`holdfast.certified_radius` use the best known bound for each row, which need not be the bound
    of training. They are sound, but not tight: the class of a row that is not certified may be unchangeable all the
    same.

    References
    ----------
    N. Couellan, S. Jan, "Feature uncertainty bounds for explicit feature maps and large robust nonlinear SVM classifiers"
    (2020).

    Examples
    --------
    >>> from holdfast import Ball, RobustKernelClassifier
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> plain, robust = (RobustKernelClassifier(s, gamma=1.0, alpha=0.03).fit(X, y) for s in (None, Ball(0.25)))
    >>> robust.bound_, robust.gap_ < 1e-6
    ('tangent', True)
    >>> for model in plain, robust:  # the share of rows whose class no error of length 0.25 can change
    ...     print(f"{model.certify(X, Ball(0.25)).mean():.0%}")
    62%
    84%
    """

    features: Any

    parameter_table = {
        "features": Choice(*MAPS) | Instance(RobustFeatures, "give RobustFourierFeatures(...) or RobustNystroem(...)"),
        "bound": TEXT,
        "gamma": Choice("scale") | Number(strictly=True),
        "n_components": Count() | NOTHING,
        "alpha": Number(strictly=True),
    }

    def __init__(
        self,
        uncertainty: Any = None,
        *,
        features: Any = "nystroem",
        bound: str = "auto",
        loss: str | Loss = "hinge",
        gamma: float | str = "scale",
        n_components: int | None = None,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        solver: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        warm_start: bool = False,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.uncertainty = uncertainty
        self.features = features
        self.bound = bound
        self.loss = loss
        self.gamma = gamma
        self.n_components = n_components
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    @takes_metadata
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **metadata: Unpack[SetsByRow]) -> Self:
        """Fit the feature map and the classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two classes or more.
        sample_weight : array-like of shape (n_samples,), default=None
        X_std : array-like of shape (n_samples, n_features), default=None
            With `Box` the half-width of each entry's interval; with `Ellipsoid` its standard deviation.
        X_cov : array-like of shape (n_samples, n_features, n_features), default=None
            With `Ellipsoid` the covariance of each row.
        X_factor : array-like of shape (n_samples, n_features, r), default=None
            A factor F of each row's covariance F F'.
        X_lower, X_upper : array-like of shape (n_samples, n_features), default=None
            With `IntervalBox` the interval of each entry, ``X_lower <= X <= X_upper``.
        X_radius : array-like of shape (n_samples,), default=None
            With `Ball` the radius of each row.
        """
        return self._fitted(X, y, sample_weight, metadata)

    def _task(self, X: Any, y: Any, sample_weight: Any, metadata: Mapping[str, Any], **others: Any) -> Task:
        map, loss = self._map(), self._loss()
        bounds = self._bounds(map)
        labelled = labelled_rows(
            self,
            X,
            y,
            sample_weight,
            metadata,
            by_feature=("uncertainty",),
            check=checked_rows,
        )
        rows = self._mapped_rows(labelled, metadata, map)
        learned = {"classes_": labelled.classes, "row_uncertainty_": bool(metadata), "feature_map_": map}
        return MappedTask([], learned, self._stated_set().row_factor, rows=rows, loss=loss, bounds=bounds)

    def _learn(self, task: Task, report: Report) -> None:
        assert isinstance(task, MappedTask)
        task.learned |= self._chosen(task, report)
        task.problems = self._problems_for(task.rows, task.loss, task.learned["bound_"])

    def _warn(self, task: Task) -> None:
        self._warn_of_collapse("smaller sets, a smaller gamma, class_weight='balanced', or a smaller alpha")
        self._warn_uncertified()

    def _map(self) -> RobustFeatures:
        """Return the feature map, not yet fitted."""
        call = f"{NAME}(features={self.features!r:.60}, "
        if not isinstance(self.features, str):
            for name, default in (("gamma", "scale"), ("n_components", None)):
                if getattr(self, name) != default:
                    raise ValueError(f"{call}{name}={getattr(self, name)!r}): state {name} in the feature map.")
            return clone(self.features)
        kind = MAPS[self.features]
        if self.features == "exact":
            if self.n_components is not None:
                raise ValueError(f"{call}n_components={self.n_components!r}): all rows are landmarks. Leave it out.")
            return kind(None, gamma=self.gamma)
        return kind(self.n_components or 200, gamma=self.gamma, random_state=self.random_state)

    def _bounds(self, map: RobustFeatures) -> tuple[str, ...]:
        """Return the bounds to choose from."""
        known = Choice("auto", *map.bounds)
        chosen = known.checked(self.bound, f"{NAME}(features={self.features!r:.60}, bound")
        return map.best_bounds if chosen == "auto" else (chosen,)

    def _mapped_rows(self, labelled: LabelledRows, metadata: Mapping[str, Any], map: RobustFeatures) -> _Rows:
        """Fit the map, and return the rows with their features and sets."""
        inputs = labelled.X
        refuse_of_training(self.uncertainty, NAME)
        bound_sets(self.uncertainty, inputs, metadata, NAME)  # raises if metadata are missing
        sets = worst_only(self._stated_set(), inputs, metadata, f"{NAME}.fit")
        if self.features == "exact" and len(inputs) > LARGEST_GRAM:
            raise ValueError(
                f"{NAME}(features='exact').fit: the kernel of {len(inputs)} rows with each other would take "
                f"{8 * len(inputs) ** 2:.2g} bytes. Use features='nystroem'."
            )
        map.fit(inputs, sample_weight=labelled.counts)
        return _Rows(inputs, labelled._replace(X=map.transform(inputs)), sets, map)

    def _chosen(self, task: MappedTask, report: Report) -> dict[str, Any]:
        """Return the bound to train with: of several, the one with the lowest objective in a rough fit to some rows."""
        rows, bounds = task.rows, task.bounds
        if not np.any(rows.sets.stretch(np.eye(rows.inputs.shape[1]))):
            return {"bound_": rows.map.common_bounds[0]}  # without errors all bounds are 0, and this is the cheapest
        if len(bounds) == 1:
            return {"bound_": bounds[0]}
        some, found = rows.thinned(TRIAL_ROWS), {}
        for name in bounds:
            problems = self._problems_for(some, task.loss, name)
            with one_blas_thread:
                proofs = [train(problem, tol=TRIAL_GAP, max_iter=int(self.max_iter))[1] for problem in problems]
            found[name] = float(sum(proof.objective for proof in proofs))
            report(f"bound {name!r}: objective {found[name]:.4g} on {len(some.inputs)} rows")
        return {"bound_": min(bounds, key=lambda name: found[name]), "bound_objectives_": found}

    def _problems_for(self, rows: _Rows, loss: Loss, bound: str) -> list[MarginScaleProblem]:
        """Return one problem for two classes, or one for each of more classes."""
        labelled, sets = rows.labelled, rows.map._push(rows.inputs, rows.sets, bound)
        features, alpha, b = rows_of(labelled.X), float(self.alpha), bool(self.fit_intercept)
        return [
            MarginScaleProblem(features, signs, labelled.weights, loss, sets.against_labels(signs), alpha, b)
            for signs in labelled.signs()
        ]
