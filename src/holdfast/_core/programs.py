"""Programs: problems written out as data, for solvers that take numbers instead of functions."""

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
    """The loss of one row as a conic program: a linear cost and cones over (u, t, extra variables).

    Each entry (kind, G) of `cones` requires that G (u, t, extra) + g lies in the cone. g is the entry of `constants`
    for this cone, with one number for each row of G, and 0 if there are no constants.
    """

    cost: Sequence[float]
    cones: Sequence[tuple[str, Sequence[Sequence[float]]]]
    constants: Sequence[Sequence[float]] | None = None


@dataclass
class SupportProgram:
    """The supports of sets as a conic program: the least T (w, z) over extra variables z in cones.

    Attributes
    ----------
    T : csr_array of shape (n_sets, n_features + n_extra)
        One row for each distinct set: a single one if the set is common to all rows, else n_samples.
    cones : list of (kind, sizes, G)
        The rows of G (w, z), in groups of `sizes`, lie in cones of this kind, "nonnegative" or "second_order".
    points : callable
        Maps (beta, multipliers) to points q of the sets with sum_i beta_i q_i = T_w' beta - G_w' multipliers, in the
        form that `RowSets.sum_of_points` takes. beta is the budget of each distinct set; there is one multiplier for
        each row of the cones.
    """

    T: sparse.csr_array
    cones: Sequence[tuple[str, Sequence[int], sparse.csr_array]]
    points: Callable[[Array, Array], Any]


@dataclass
class ConeProgram:
    """Minimise ``q'v + v'P v / 2 + constant`` subject to ``b - A v`` in a product of cones.

    `cones` lists (kind, size) with kinds "zero", "nonnegative", "second_order" and "exponential"; the first
    `n_parameters` entries of v are the problem's parameters. `dual_guess` maps the parameters and the multipliers of
    the constraints, one for each row of A, to dual weights. It is None if the slopes at the parameters are as good.
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
        """Return the parameters, and the dual weights from the multipliers; 0 and None if some number is not finite."""
        parameters = v[: self.n_parameters]
        if not (np.all(np.isfinite(parameters)) and np.all(np.isfinite(multipliers))):
            return np.zeros(self.n_parameters), None
        return parameters, None if self.dual_guess is None else self.dual_guess(parameters, multipliers)


class LinearProgram(ConeProgram):
    """A cone program without a quadratic term and with cones of the kinds "zero" and "nonnegative" only."""


@dataclass
class FiniteSum:
    r"""A weighted sum of losses over rows, for solvers that visit one row at a time.

    Minimise :math:`\sum_i c_i \sum_{k \ne y_i} \ell(u_{ik}, t_i(w_{y_i} - w_k)) + \tfrac12` ridge
    :math:`\sum_k |w_k|^2`, with :math:`u_{ik} = 1 - (w_{y_i} - w_k)^\top x_i - (b_{y_i} - b_k)`. There are `n_vectors`
    weight vectors, one for each class; a single one belongs to class 1, and class 0 has the weights 0. Parameters are
    all weights, then the intercepts if `fit_intercept`.

    Attributes
    ----------
    rows : RowArrays
    n_features : int
    labels : ndarray of shape (n_samples,), int64
    weights : ndarray of shape (n_samples,)
    loss : Elementwise
    kernel : {"lazy_steps", "plain_steps"}
        The kind of steps: for noise that is the same in every direction, or that differs by feature.
    noise : tuple
        The description of the noise that the steps take.
    largest_deviation, largest_scale_slope : float
        Bounds on the standard deviation of an entry and on the loss's slope in t.
    norm_bound : callable
        Returns a bound on the (Frobenius) norm of the optimal weights, inf if none is known.
    certify : callable
        Maps parameters to (objective, certified relative gap).
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
        """Return the sums over the rows that `step_bound` needs; sums of parts of the rows can be added.

        The summands are: 1 if c > 0; c; the square of c times a bound on the gradient's norm; c |x|^2; and c times the
        number of nonzeros.
        """
        c, squares = self.weights, self.rows.square_norms()
        slopes = np.sqrt(squares + float(self.fit_intercept)) + self.largest_deviation * self.largest_scale_slope
        counted = np.count_nonzero(c > 0)
        return np.array([counted, c.sum(), np.sum((c * slopes) ** 2), c @ squares, c @ self.rows.counts()])

    def step_bound(self, sums: Array, norm_bound: float) -> tuple[float, float]:
        r"""Return B, the expected distance of the optimum, and G, the quadratic mean of stochastic gradients' norms.

        :math:`G^2` is the mean over the rows of :math:`(\bar c_i (\sqrt{|x_i|^2 + 1} + \sigma p))^2`, where
        :math:`\bar c` is c divided by its mean, the 1 is for the intercept, and p is the largest slope in t; for K > 1
        vectors it is multiplied by K(K - 1). B is `norm_bound`, a bound on the norm of the weights, but at most
        :math:`2 / (r + \sigma)` with r the quadratic mean of the nonzero entries: with weights of this norm,
        uncorrelated features have scores of about 2.
        """
        rows, weight, slopes, squares, entries = sums
        if weight == 0:
            return norm_bound, 1.0
        K = self.n_vectors
        # the vector of the row's class gets all K - 1 slopes, each other vector one: (K - 1)^2 + (K - 1) = K (K - 1)
        # squares
        G = np.sqrt(rows * slopes * (K * (K - 1) if K > 1 else 1)) / weight
        spread = (np.sqrt(squares / entries) if entries > 0 else 0.0) + self.largest_deviation
        return float(min(norm_bound, 2 / spread if spread > 0 else np.inf)), float(G)


@dataclass
class ProximalSum:
    r"""A weighted sum of losses over rows plus a function of the parameters alone, for steps on batches of rows.

    Minimise :math:`\sum_i c_i f_i(\theta) + g(\theta)`, f and g convex with or without kinks.

    Attributes
    ----------
    weights : ndarray of shape (n_samples,)
        c >= 0.
    gradient : callable
        Maps (rows, gains, parameters) to :math:`\sum_i` gains_i :math:`\nabla f_i` over these rows, a subgradient at
        kinks of f, shape (n_parameters,).
    proximal : callable
        Maps (parameters, step) to the :math:`\vartheta` that minimises :math:`\tfrac12 |\vartheta - \theta|^2 +` step
        :math:`g(\vartheta)`.
    ridge : float
        g minus this multiple of :math:`\tfrac12 |w|^2` is convex too, where w are all parameters except intercepts.
    is_intercept : ndarray of shape (n_parameters,), bool
    entry_sums : callable
        Returns the sums over the rows of :math:`c_i |x_i|^2` and of c times the number of nonzeros, shape (2,).
    certify : callable
        Maps parameters to (objective, certified relative gap).
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
    r"""A linear classifier with features in intervals, as a saddle-point problem.

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
        The part of s that differs by row, of any sign; s itself is >= 0.
    cost : ndarray of shape (n_features,)
        The cost of \|w\|, >= 0.
    tilt : ndarray of shape (n_features,)
    ridge : float
    limit : float
        inf for none.
    fit_intercept : bool
    cap : float
        The largest slope of psi, inf for none.
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
    r"""A linear classifier whose features an adversary with a budget may delete, in part too.

    Minimise over w and b

    .. math::
        \sum_i c_i \Bigl[ base - y_i b + \max_{d} \sum_j (1 - d_j) (gain_j - y_i x_{ij} w_j) \Bigr]_+ + \tfrac12 ridge\, |w|^2
        \quad \text{subject to } |w_j| \le limit, \qquad 0 \le d \le 1,\ \sum_j d_j value_j \le capacity .

    Parameters are w, then b if `fit_intercept`. The dual guess of a solution has the slopes :math:`\pi_i / c_i` in [0,
    1], one for each row, and the points ``points(d)``, where d are the deleted shares of all entries, an array or a CSR
    array of shape (n_samples, n_features).

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
        The cost of keeping a feature for each row, >= 0.
    base : float
        >= 0, and > 0 if all gains are 0.
    ridge : float
    limit : float
        inf for none; then ridge > 0.
    floor : float
        The gap is relative to the objective, or to this number if the objective is smaller.
    fit_intercept : bool
    is_spent : bool
        Whether the adversary must use up the capacity, that is, :math:`\sum_j d_j value_j = capacity`.
    points : callable
        Maps the shares d to the points of a dual guess.
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
