"""A perceptron that is trained against deletions of features: one pass over the rows, with a bound on its regret."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import norm as sparse_norm
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from holdfast._core import compiled
from holdfast._core.allowed import NORM, NOTHING, Count, Number, Switch
from holdfast._core.caller import warn_caller
from holdfast._core.deletion_steps import deletion_steps
from holdfast._core.labels import check_features
from holdfast._core.loss import Array
from holdfast._core.solver import silent
from holdfast._core.summary import Summary, digits, percent
from holdfast._core.tolerances import ROUNDING
from holdfast._core.version import __version__
from holdfast.estimators.callbacks import announced, with_callbacks
from holdfast.estimators.inputs import class_codes, known_codes, number, stated_classes
from holdfast.estimators.missing import MissingFeatures, without_missing
from holdfast.uncertainty.deletion_loss import DeletionLoss

NAME = "FeatureDeletionPerceptron"
PROVED_FOR = ("budget", "values", "margin", "bound", "adversary", "norm", "radius")
"""The parameters that the bounds depend on."""


@dataclass(frozen=True)
class Norm:
    """A norm of rows: its order, and the largest squared l2 and l1 norms in its unit ball, as powers of n_features."""

    order: float
    square_power: float
    sum_power: float

    def square(self, n_features: int) -> float:
        """Return the largest squared l2 norm in the unit ball."""
        return float(n_features**self.square_power)

    def sum(self, n_features: int) -> float:
        """Return the largest l1 norm in the unit ball."""
        return float(n_features**self.sum_power)

    def of(self, X: Any) -> Array:
        """Return the norm of each row."""
        norm = sparse_norm if sparse.issparse(X) else np.linalg.norm
        return np.asarray(norm(X, ord=self.order, axis=1))


NORMS = {1: Norm(1, 0, 0), 2: Norm(2, 0, 0.5), np.inf: Norm(np.inf, 1, 1)}


@dataclass
class Stream:
    """The state of the algorithm: K perceptrons, their last hypotheses, and sums over the rows seen.

    After T rows with changes D_t, the mean of the hypotheses before each row is w - (sum_t t D_t) / T, as w = sum_t D_t.
    """

    W: Array
    b: Array
    late_W: Array
    """sum_t t D_t."""
    late_b: Array
    losses: Array
    horizon: int
    n_seen: int = 0
    first_step: float = 0.0
    last_step: float = 0.0
    steps: float = 0.0
    """The sum of all steps."""

    @classmethod
    def start(cls, n_vectors: int, n_features: int, horizon: int) -> Stream:
        """Return the state before the first row."""
        matrices, vectors = np.zeros((2, n_vectors, n_features)), np.zeros((3, n_vectors))
        return cls(matrices[0], vectors[0], matrices[1], vectors[1], vectors[2], horizon)

    def advance(self, X: Any, signs: Array, loss: DeletionLoss, bound: float, numerator: float) -> None:
        """Take a step for each row; `signs` has shape (n_samples, K), and the step is numerator / sqrt(horizon)."""
        steps = numerator / np.sqrt(self._horizons(len(signs)))
        visits = signs.shape[1] * (X.size + 30 * len(signs))
        kernel = compiled.kernel("deletion_steps") if compiled.steps_repay(visits) else None
        take = deletion_steps if kernel is None else kernel
        purse = (loss.worth, loss.knapsack.prices, loss.knapsack.capacity, loss.knapsack.is_whole)
        state = (self.n_seen, self.W, self.b, self.late_W, self.late_b)
        self.losses += take(*_csr(X), signs, *purse, loss.rate, loss.largest_margin, bound, steps, *state)
        self.first_step = self.first_step or float(steps[0])
        self.last_step = float(steps[-1])
        self.steps += float(steps.sum())
        self.n_seen += len(steps)

    def _horizons(self, n_rows: int) -> Array:
        """Return the horizon at each of the next rows, doubled whenever it is reached."""
        rows = self.n_seen + 1 + np.arange(n_rows)
        ends = self.horizon * 2.0 ** np.arange(1 + np.ceil(np.log2(max(rows[-1] / self.horizon, 1))))
        found = ends[np.searchsorted(ends, rows)]
        self.horizon = int(found[-1])
        return found

    def mean(self, bound: float) -> tuple[Array, Array]:
        """Return the mean hypothesis."""
        W, b = self.W - self.late_W / self.n_seen, self.b - self.late_b / self.n_seen
        return np.clip(W, -bound, bound), np.clip(b, -bound, bound)


def _csr(X: Any) -> tuple[Array, NDArray[np.intp], NDArray[np.intp]]:
    """Return entries, their features, and where rows begin, as in CSR; dense rows share one array of features.

    The types are the same whatever X is, so that the steps are compiled only once.
    """
    if sparse.issparse(X):
        return np.asarray(X.data, np.float64), X.indices.astype(np.intp), X.indptr.astype(np.intp)
    return np.asarray(X, np.float64).ravel(), np.arange(X.shape[1]), X.shape[1] * np.arange(len(X) + 1)


@dataclass(frozen=True)
class OnlineBound(Summary):
    """Bounds for new rows that follow from the online losses, each with probability 1 - delta.

    Attributes
    ----------
    risk : float
        A bound on the probability that some deletion makes the model err, at most 1; inf where nothing is proved.
    excess : float
        A bound on how far the expected loss of the model is above the least possible one (corollary 1); with more than
        two classes, the sum over the classes. inf where nothing is proved.
    """

    risk: float
    excess: float

    def _lines(self) -> list[tuple[str, str]]:
        if np.isinf(self.risk):
            return [("wrong at most", "nothing is proved")]
        return [
            ("wrong at most", percent(self.risk)),
            ("expected loss above the best", f"{digits(self.excess)} at most"),
        ]

    def _notes(self) -> list[str]:
        return ["Of new rows, whatever is deleted of them within the budget, each line with probability 1 - delta."]


class FeatureDeletionPerceptron(MissingFeatures):
    r"""Perceptron against an adversary who deletes features: one pass, little memory, a bound on its losses.

    Feature j has the value :math:`v_j`, and in each row features with a total value of up to N may be deleted. With V
    the value of all features and P = V - N, the loss of (w, b) is the robust hinge of Dekel & Shamir (2008),

    .. math:: \ell(w, b; x, y) = \Bigl[\max_{V([n] \setminus J) \le N} \frac{\gamma V(J)}{P}
       - y \bigl(b + \sum_{j \in J} w_j x_j\bigr)\Bigr]_+ ,

    which is at least :math:`\gamma` if some deletion makes the sign of the score wrong. For each row the worst deletion
    is found. If the loss is positive, w and b take a step of length :math:`\tau` along y times (x, 1) without the
    deleted features, and are clipped to [-C, C]. The model is the mean of the hypotheses *before* each row. For rows
    with :math:`|x|_2 \le r` let :math:`G^2 = r^2 + 1`. With the step :math:`\tau = C \sqrt{(n + 1) / (G^2 m)}` for m
    rows,

    .. math:: \frac1m \sum_i \ell(w_i, b_i; x_i, y_i) \le \min_{|w_j|, |b| \le C} \frac1m \sum_i \ell(w, b; x_i, y_i)
       + C \sqrt{\frac{(n + 1) G^2}{m}} ,

    which for r = 1 is theorem 4 of the paper, with a fraction that is lost in print. For rows with
    :math:`|x|_\infty \le r`, :math:`G^2 = n r^2 + 1`. With more than two classes, each is learned against the rest.

    Parameters
    ----------
    budget : float, default=1.0
        N, in the units of `values`; less than the total value of all features.
    values : array-like of shape (n_features,), default=None
        v >= 0; None means 1 each: N features may be deleted.
    margin : float, default=0.1
        :math:`\gamma > 0`. Only gamma / C matters to the predictions.
    bound : float, default=1.0
        C > 0.
    adversary : {"relaxed", "tightened", "exact"}, default="relaxed"
        "relaxed" may delete features in part. Its loss is never smaller than that of "exact", and the same for values
        of 1 and an integer budget. "tightened" may not delete parts of a feature that is worth more than the budget,
        nor spend fractions of the budget on integer values. "exact" deletes whole features; values must be multiples of
        a common unit, and unless all are equal, a row takes O(n_features N) operations.
    norm : {1, 2, "inf"}, default=2
        The norm in which rows are bounded. 1 has the same step as 2 and a better `online_bound`.
    radius : float, default=None
        r, the bound on the rows' norms. None: the largest norm of the rows of `fit`, or of the first `partial_fit`.
        `online_bound` needs a radius that was stated before the rows were seen. Rows beyond it are used all the same,
        but then nothing is proved: `regret_bound_` is inf, and there is a warning.
    horizon : int, default=None
        m, the number of rows that sets the step. None: that of `fit`, or of the first `partial_fit`. It is doubled
        whenever more rows come.
    shuffle : bool, default=True
        Whether `fit` visits rows in random order. `partial_fit` takes them as they come.
    random_state : int, RandomState or None, default=None
    missing : {"raise", "delete"}, default="raise"
        What to do with NaN. "raise" refuses it. "delete" learns and scores without these entries, and warns at
        prediction if a row lacks more than the budget. See also `score_interval`, `is_certain` and `missing_report`.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The mean hypothesis.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        Sorted; with two classes a positive score means ``classes_[1]``.
    mean_loss_ : ndarray of shape (1,) or (n_classes,)
        The mean of :math:`\ell(w_i, b_i; x_i, y_i)`, each row's loss before it was learned from.
    regret_bound_ : float
        A bound on the regret of each class: `mean_loss_` minus the mean loss of the best (w, b) in hindsight. inf if
        rows are beyond `radius_`. If the horizon was doubled, so that the step fell from :math:`\tau_1` to
        :math:`\tau_m`, it is :math:`\frac1m \bigl(\frac{C^2 (n + 1)}{2} (\frac4{\tau_m} - \frac3{\tau_1}) +
        \frac{G^2}{2} \sum_i \tau_i\bigr)`.
    radius_ : float
    n_seen_ : int
        Rows seen.
    values_, budget_
        v and N.
    feature_range_ : ndarray of shape (2, n_features)
        Smallest and largest finite entry of each feature.
    stream_ : dict
        The state from which `partial_fit` continues.
    settings_ : dict
        The parameters for which the bounds are proved.
    holdfast_version_ : str
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    References
    ----------
    O. Dekel, O. Shamir, "Learning to classify with missing and corrupted features" (2008).

    Examples
    --------
    >>> import numpy as np
    >>> from holdfast import FeatureDeletionPerceptron
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice([-1, 1], size=4000)
    >>> X = np.clip(y[:, None] * 0.5 + rng.uniform(-0.6, 0.6, size=(4000, 4)), -1, 1) / 4
    >>> model = FeatureDeletionPerceptron(budget=1, norm=1, radius=1.0, random_state=0).fit(X, y)
    >>> model.mean_loss_.round(3), round(model.regret_bound_, 3), round(model.online_bound(0.05).risk, 2)
    (array([0.011]), 0.05, 0.53)
    """

    parameter_table = {
        "bound": Number(strictly=True),
        "norm": NORM,
        "radius": Number(strictly=True) | NOTHING,
        "horizon": Count() | NOTHING,
        "shuffle": Switch(),
    }

    def __init__(
        self,
        budget: float = 1.0,
        values: Any = None,
        *,
        margin: float = 0.1,
        bound: float = 1.0,
        adversary: str = "relaxed",
        norm: Any = 2,
        radius: float | None = None,
        horizon: int | None = None,
        shuffle: bool = True,
        random_state: Any = None,
        missing: str = "raise",
    ):
        self.budget = budget
        self.values = values
        self.margin = margin
        self.bound = bound
        self.adversary = adversary
        self.norm = norm
        self.radius = radius
        self.horizon = horizon
        self.shuffle = shuffle
        self.random_state = random_state
        self.missing = missing

    @with_callbacks
    def fit(self, X: Any, y: Any) -> Self:
        """Take one pass over the rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            NaN for missing entries, with ``missing="delete"``.
        y : array-like of shape (n_samples,)
            Two classes or more.
        """
        check_features(X, {"values": self.values})
        X, y = self._checked(X, y, where="fit", reset=True)
        classes, codes = class_codes(y, NAME)
        loss, bound = self._settings(X.shape[1])
        _, finished = announced(self, silent, X, y)
        self._begin(X, classes)
        order = check_random_state(self.random_state).permutation(len(codes)) if self.shuffle else slice(None)
        self._advance(X[order], codes[order], loss, bound)
        finished()
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn from more rows, in their order; with `radius` and `horizon` given, this equals one call with all rows.

        `online_bound` holds only if all rows are drawn independently: do not pass a row twice.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes : array-like, default=None
            All classes that any call will have; required at the first call.
        """
        going_on = hasattr(self, "stream_")
        known = self.classes_ if going_on and classes is None else stated_classes(classes, NAME)
        if going_on and not np.array_equal(known, self.classes_):
            raise ValueError(
                f"{NAME}.partial_fit(classes={known.tolist()!r}): earlier calls had {self.classes_.tolist()!r}. Leave it out."
            )
        check_features(X, {"values": self.values}, self if going_on else None)
        X, y = self._checked(X, y, where="partial_fit", reset=not going_on)
        codes = known_codes(y, known, NAME)
        loss, bound = self._settings(X.shape[1])
        if not going_on:
            self._begin(X, known)
        elif changed := [
            name for name, value in self.settings_.items() if not np.array_equal(getattr(self, name), value)
        ]:
            raise ValueError(
                f"{NAME}.partial_fit: {', '.join(changed)} changed since the first call; what is proved is for one setting. "
                "Set it back, or begin again with fit."
            )
        self._advance(X, codes, loss, bound)
        return self

    def online_bound(self, delta: float = 0.05) -> OnlineBound:
        r"""Return the bounds for new rows that follow from the losses during the pass.

        Let :math:`\psi = \gamma V / P`, and let S be the largest l1 norm of rows: r, :math:`r \sqrt n` or r n if `norm`
        is 1, 2 or "inf". Losses lie between 0 and :math:`\rho = \psi + C (1 + S)`, and for m independent rows

        .. math:: \Pr(\text{some deletion makes the model err}) \le \frac1\gamma \Bigl(\frac1m \sum_i \ell(w_i, b_i; x_i, y_i)
           + \rho \sqrt{\frac{\ln(1/\delta)}{2 m}}\Bigr) , \qquad
           \mathbf E\, \ell(\bar w, \bar b) \le \min \mathbf E\, \ell + \text{regret bound}
           + \rho \sqrt{\frac{2 \ln(2/\delta)}{m}} .

        With K > 2 classes, the bounds are computed for each class with delta / K, and added.

        Parameters
        ----------
        delta : float, default=0.05
            The largest probability, over the draw of the rows, that one of the two bounds is wrong.

        Returns
        -------
        OnlineBound
            inf, with a warning, if `radius` was not stated or rows were beyond it.
        """
        check_is_fitted(self)
        delta = number(delta, f"{NAME}.online_bound(delta", strictly=True)
        if delta >= 1:
            raise ValueError(f"{NAME}.online_bound(delta={delta!r}): must lie between 0 and 1.")
        radius, norm = self.settings_["radius"], self.settings_["norm"]
        if radius is None or not np.isfinite(self.regret_bound_):
            warn_caller(
                f"{NAME}(radius={radius!r}).online_bound: nothing is proved, for "
                + ("the radius was taken from the rows" if radius is None else f"rows reach {self.largest_norm_:g}")
                + f". Scale the rows and state a radius that all of them, new ones too, are within (norm={norm!r}).",
                UserWarning,
            )
            return OnlineBound(np.inf, np.inf)
        (n_vectors, n), m = self.coef_.shape, self.n_seen_
        loss, bound = type(self)(**self.settings_)._settings(n)
        spread = loss.largest_margin + bound * (1.0 + self.radius_ * NORMS[float(norm)].sum(n))
        share = delta / n_vectors
        doubt = spread * np.sqrt(np.log(1 / share) / (2 * m))
        risk = float(np.sum(self.mean_loss_ + doubt)) / loss.margin
        excess = self.regret_bound_ + spread * np.sqrt(2 * np.log(2 / share) / m)
        return OnlineBound(min(risk, 1.0), float(n_vectors * excess))

    def _settings(self, n_features: int) -> tuple[DeletionLoss, float]:
        """Return the loss and C."""
        loss = DeletionLoss.of(self.values, self.budget, self.margin, self.adversary, n_features, NAME)
        return loss, float(self.bound)

    def _begin(self, X: Any, classes: NDArray[Any]) -> None:
        """Start afresh, before any rows."""
        self.classes_, self.largest_norm_ = classes, 0.0
        self.settings_ = {name: getattr(self, name) for name in PROVED_FOR}
        n_vectors = 1 if len(classes) == 2 else len(classes)
        horizon = X.shape[0] if self.horizon is None else int(self.horizon)
        self.stream_ = asdict(Stream.start(n_vectors, X.shape[1], horizon))
        self.radius_ = float(
            NORMS[float(self.norm)].of(without_missing(X)).max() if self.radius is None else self.radius
        )

    def _advance(self, X: Any, codes: NDArray[np.intp], loss: DeletionLoss, bound: float) -> None:
        """Learn from rows, and set the fitted attributes."""
        self._note_ranges(X)
        X, n = without_missing(X), X.shape[1]
        square = self.radius_**2 * NORMS[float(self.norm)].square(n) + 1.0
        largest = max(self.largest_norm_, float(NORMS[float(self.norm)].of(X).max()))
        stream = Stream(**deepcopy(self.stream_))  # its arrays are changed in place
        signs = np.where(codes[:, None] == (np.arange(len(stream.W)) if len(stream.W) > 1 else 1), 1.0, -1.0)
        stream.advance(X, signs, loss, bound, bound * np.sqrt((n + 1) / square))
        self.stream_ = asdict(stream)
        self.coef_, self.intercept_ = stream.mean(bound)
        self.n_seen_, self.mean_loss_ = stream.n_seen, stream.losses / stream.n_seen
        distance = 0.5 * bound**2 * (n + 1) * (4 / stream.last_step - 3 / stream.first_step)
        self.regret_bound_ = float((distance + 0.5 * square * stream.steps) / stream.n_seen)
        within = self.radius_ * (1 + ROUNDING)
        if largest > within:
            self.regret_bound_ = np.inf
            if self.largest_norm_ <= within:
                warn_caller(
                    f"{NAME}(norm={self.norm!r}, radius={self.radius!r}): rows reach {largest:g}, beyond {self.radius_:g}; "
                    "regret_bound_ is inf, nothing is proved. Scale the rows, or state a larger radius.",
                    UserWarning,
                )
        self.largest_norm_ = largest
        self.values_, self.budget_ = loss.values, loss.budget
        self.holdfast_version_ = __version__
