"""Programs: problems written out as data, for solvers that want numbers instead of functions to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.rows import Elementwise, RowArrays, Rows

if TYPE_CHECKING:
    from holdfast._core.solution import DualGuess

Array = NDArray[np.float64]


@dataclass
class Epigraph:
    """How a conic solver sees a loss of one row: a linear cost and cones over (u, t, extra variables).

    Each entry of `cones` is (kind, G) and says that G (u, t, extra) lies in that cone; with an entry g of `constants`, one
    number for each line of G, that G (u, t, extra) + g does.
    """

    cost: Sequence[float]
    cones: Sequence[tuple[str, Sequence[Sequence[float]]]]
    constants: Sequence[Sequence[float]] | None = None


@dataclass
class SupportProgram:
    """How a conic solver sees the supports of sets: the least T (w, z) over extra variables z that cones allow.

    Attributes
    ----------
    T : csr_array of shape (n_sets, n_features + n_extra)
        One row for each distinct set: one where the set is common to all rows, else n_samples.
    cones : list of (kind, sizes, G)
        The lines of G (w, z), `sizes` at a time, lie in cones of that kind, "nonnegative" or "second_order".
    points : callable
        From how much of each distinct set is used, beta, and the multipliers of all lines of the cones to points q of the sets
        with sum_i beta_i q_i = T_w' beta - G_w' multipliers, as `RowSets.sum_of_points` takes them.
    """

    T: sparse.csr_array
    cones: Sequence[tuple[str, Sequence[int], sparse.csr_array]]
    points: Callable[[Array, Array], Any]


@dataclass
class ConeProgram:
    """Minimise ``q'v + v'P v / 2 + constant`` subject to ``b - A v`` in a product of cones.

    `cones` lists (kind, size) with kinds "zero", "nonnegative", "second_order" and "exponential";
    the first `n_parameters` entries of v are the problem's parameters. `dual_guess` makes dual weights of the parameters and
    the constraints' multipliers, one for each line of A; None where the slopes at the parameters are as good.
    """

    P: sparse.csc_matrix
    q: Array
    A: sparse.csc_matrix
    b: Array
    cones: list[tuple[str, int]]
    n_parameters: int
    constant: float = 0.0
    dual_guess: Callable[[Array, Array], DualGuess] | None = None

    def parameters_and_dual(self, v: Array, multipliers: Array) -> tuple[Array, DualGuess | None]:
        """Return the problem's parameters, and the dual weights that the multipliers amount to; 0 for what is not finite."""
        parameters = v[: self.n_parameters]
        if not (np.all(np.isfinite(parameters)) and np.all(np.isfinite(multipliers))):
            return np.zeros(self.n_parameters), None
        return parameters, None if self.dual_guess is None else self.dual_guess(parameters, multipliers)


class LinearProgram(ConeProgram):
    """A cone program without a quadratic term whose cones are "zero" and "nonnegative" only."""


@dataclass
class FiniteSum:
    r"""A weighted sum of losses over rows, for solvers that visit one row at a time.

    Minimise :math:`\sum_i c_i \sum_{k \ne y_i} \ell(u_{ik}, t_i(w_{y_i} - w_k)) + \tfrac12` ridge :math:`\sum_k |w_k|^2`, with
    :math:`u_{ik} = 1 - (w_{y_i} - w_k)^\top x_i - (b_{y_i} - b_k)`. There are `n_vectors` weight vectors, one for each class; a
    single one belongs to class 1, and that of class 0 is 0. Parameters are all weights, then the intercepts where
    `fit_intercept`.

    Attributes
    ----------
    rows : RowArrays
    n_features : int
    labels : ndarray of shape (n_samples,), int64
    weights : ndarray of shape (n_samples,)
    loss : Elementwise
    kernel : {"lazy_steps", "plain_steps"}
        The steps that suit the noise: the same in every direction, or by feature.
    noise : tuple
        What they have to know of it.
    largest_deviation, largest_scale_slope : float
        Bounds on the standard deviation of an entry and on the loss's slope in t.
    norm_bound : callable
        Returns a bound on the optimal weights' (Frobenius) norm, inf where none is known.
    certify : callable
        From parameters to (objective, certified relative gap).
    """

    rows: RowArrays
    n_features: int
    labels: NDArray[np.int64]
    weights: Array
    loss: Elementwise
    kernel: str
    noise: tuple[Any, ...]
    largest_deviation: float
    largest_scale_slope: float
    ridge: float
    n_vectors: int
    fit_intercept: bool
    norm_bound: Callable[[], float]
    certify: Callable[[Array], tuple[float, float]]

    def row_sums(self) -> Array:
        """Return the sums over the rows that `step_bound` needs; those of two parts of the rows can be added.

        Sums over the rows of: 1 where c > 0; c; the square of c times a bound on the gradient's norm; c |x|^2; c times the
        number of nonzeros.
        """
        c, squares = self.weights, self.rows.square_norms()
        slopes = np.sqrt(squares + float(self.fit_intercept)) + self.largest_deviation * self.largest_scale_slope
        counted = np.count_nonzero(c > 0)
        return np.array([counted, c.sum(), np.sum((c * slopes) ** 2), c @ squares, c @ self.rows.counts()])

    def step_bound(self, sums: Array, norm_bound: float) -> tuple[float, float]:
        r"""Return B and G: how far away the optimum is expected, and how long stochastic gradients are, in quadratic mean.

        :math:`G^2` is the mean over the rows of :math:`(\bar c_i (\sqrt{|x_i|^2 + 1} + \sigma p))^2`, with :math:`\bar c = c`
        over its mean, the 1 for the intercept, and p the largest slope in t; for K > 1 vectors times K(K - 1). B is
        `norm_bound`, a bound on the weights' norm, but no more than :math:`2 / (r + \sigma)`, r the quadratic mean of the
        nonzero entries: weights so long give uncorrelated features scores of about 2.
        """
        rows, weight, slopes, squares, entries = sums
        if weight == 0:
            return norm_bound, 1.0
        K = self.n_vectors
        # the vector of the row's class gets all K - 1 slopes, each other one its own: (K - 1)^2 + (K - 1) = K (K - 1) squares
        G = np.sqrt(rows * slopes * (K * (K - 1) if K > 1 else 1)) / weight
        spread = (np.sqrt(squares / entries) if entries > 0 else 0.0) + self.largest_deviation
        return float(min(norm_bound, 2 / spread if spread > 0 else np.inf)), float(G)


@dataclass
class ProximalSum:
    r"""A weighted sum of losses over rows plus terms of the parameters alone, for steps on batches of rows.

    Minimise :math:`\sum_i c_i f_i(\theta) + g(\theta)`, f and g convex with or without kinks.

    Attributes
    ----------
    weights : ndarray of shape (n_samples,)
        c >= 0.
    gradient : callable
        From (rows, gains, parameters) to :math:`\sum_i` gains_i :math:`\nabla f_i` over these rows, a subgradient where f has
        kinks, shape (n_parameters,).
    proximal : callable
        From (parameters, step) to the :math:`\vartheta` that minimises :math:`\tfrac12 |\vartheta - \theta|^2 +` step
        :math:`g(\vartheta)`.
    ridge : float
        g less this multiple of :math:`\tfrac12 |w|^2` is convex too, w being all parameters but intercepts.
    is_intercept : ndarray of shape (n_parameters,), bool
    entry_sums : callable
        Returns the sums over the rows of :math:`c_i |x_i|^2` and of c times the number of nonzeros, shape (2,).
    certify : callable
        From parameters to (objective, certified relative gap).
    """

    weights: Array
    gradient: Callable[[NDArray[np.intp], Array, Array], Array]
    proximal: Callable[[Array, float], Array]
    ridge: float
    is_intercept: NDArray[np.bool_]
    entry_sums: Callable[[], Array]
    certify: Callable[[Array], tuple[float, float]]


@dataclass
class IntervalProgram:
    r"""A linear classifier whose features lie in intervals, in saddle form.

    Minimise over w and b

    .. math::
        \sum_i c_i \psi(target_i - y_i (x_i^\top w + b) + s_i^\top |w|) + cost^\top |w| + tilt^\top w + \tfrac12 ridge\, |w|^2
        \quad \text{subject to } |w_j| \le limit, \qquad \psi(x) = \max_{0 \le a \le cap} a (x - 1) + v(a).

    Parameters are w, then b where `fit_intercept`.

    Attributes
    ----------
    rows : Rows
    signs : ndarray of shape (n_samples,)
        y, each -1 or 1.
    weights : ndarray of shape (n_samples,)
        c >= 0; rows of weight 0 do not count.
    common : ndarray of shape (n_features,)
        The part of s that all rows share.
    widths : ndarray or csr_array of shape (n_samples, n_features), or None
        The rest of s, of any sign; s itself is >= 0.
    cost : ndarray of shape (n_features,)
        Price of \|w\|, >= 0.
    tilt : ndarray of shape (n_features,)
    ridge : float
    limit : float
        inf for none.
    fit_intercept : bool
    cap : float
        Largest slope of psi, inf for none.
    value : callable
        psi, elementwise.
    dual_value, dual_slope, dual_bend : callable
        v, its derivative and its second derivative <= 0, elementwise on 0 < a < cap; `dual_value` also at the ends.
    target : float or ndarray of shape (n_samples,)
    """

    rows: Rows
    signs: Array
    weights: Array
    common: Array
    widths: Any | None
    cost: Array
    tilt: Array
    ridge: float
    limit: float
    fit_intercept: bool
    cap: float
    value: Callable[[Array], Array]
    dual_value: Callable[[Array], Array]
    dual_slope: Callable[[Array], Array]
    dual_bend: Callable[[Array], Array]
    target: float | Array = 1.0


@dataclass
class DeletionProgram:
    r"""A linear classifier whose features may be deleted by an adversary with a budget, a fraction of a feature too.

    Minimise over w and b

    .. math::
        \sum_i c_i \Bigl[ base - y_i b + \max_{d} \sum_j (1 - d_j) (gain_j - y_i x_{ij} w_j) \Bigr]_+ + \tfrac12 ridge\, |w|^2
        \quad \text{subject to } |w_j| \le limit, \qquad 0 \le d \le 1,\ \sum_j d_j value_j \le capacity .

    Parameters are w, then b where `fit_intercept`. A solution's dual guess is :math:`\pi_i / c_i` in [0, 1] for each row, and
    as `points` what `points` makes of the shares d of each entry that are deleted, an array or a CSR array of shape
    (n_samples, n_features).

    Attributes
    ----------
    rows : Rows
    signs : ndarray of shape (n_samples,)
        y, each -1 or 1.
    weights : ndarray of shape (n_samples,)
        c >= 0; rows of weight 0 do not count.
    values : ndarray of shape (n_features,)
        > 0; inf for features that are never deleted.
    capacity : float
        >= 0.
    gains : ndarray of shape (n_features,)
        What keeping a feature costs the row, >= 0.
    base : float
        >= 0, and positive where all gains are 0.
    ridge : float
    limit : float
        inf for none; then ridge > 0.
    floor : float
        The gap is measured against the objective, or against this number where that is smaller.
    fit_intercept : bool
    is_spent : bool
        Whether the adversary has to spend all of the capacity: the sum of :math:`d_j value_j` equals it.
    points : callable
        What is told in a dual guess of the shares d.
    """

    rows: Rows
    signs: Array
    weights: Array
    values: Array
    capacity: float
    gains: Array
    base: float
    ridge: float
    limit: float
    floor: float
    fit_intercept: bool = True
    is_spent: bool = False
    points: Callable[[Any], Any] = lambda deleted: deleted
