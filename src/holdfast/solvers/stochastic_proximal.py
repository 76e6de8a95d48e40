"""Stochastic proximal gradient descent: steps on batches of rows, for any loss, set and penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core.allowed import ANY_SEED, NOTHING, Count, Number, Switch
from holdfast._core.problem import Problem
from holdfast._core.programs import ProximalSum
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast.solvers.stochastic import generator


class StochasticProximal(Solver):
    r"""Averaged stochastic proximal gradient descent, the method of Couellan & Jan with its scaling corrected.

    On the *averaged* objective, :math:`\frac1C (\sum_i c_i f_i + g)` with C the total weight, n rows and
    :math:`\lambda' = \alpha / C`. Step t takes a batch M of m rows, moves against the gradient of their losses at their
    worst points, and takes the proximal step of ridge and penalty in closed form:

    .. math:: \theta \leftarrow \mathrm{prox}_{\eta_t g / C}\Bigl(\theta -
              \eta_t \frac{n}{m\,C} \sum_{i \in M} c_i \nabla f_i(\theta)\Bigr), \qquad
              \eta_t = \min\Bigl(\frac1{\lambda' t}, \frac{B}{\sqrt{\sum_{s \le t} |\gamma_s|^2}}\Bigr),

    :math:`\gamma` being the batches' gradients: :math:`w / (1 + \eta\lambda')` for the ridge, a soft threshold for l1,
    clipping for limits. (A single row's term in the *sum* of losses would count for the ridge like all n of them.) The
    two lengths belong to two bounds on the excess, :math:`G^2 / (\lambda' t)` and :math:`B G / \sqrt t`, G being the
    quadratic mean of :math:`|\gamma|`. The smaller length belongs to the smaller bound, so neither a weak ridge nor the
    free intercept does harm. B = 1 / r, r being the quadratic mean of the nonzero entries of X: if features are
    uncorrelated, weights of this norm give scores of about 1. The intercept is the weight of a feature that is r for
    all rows, so that the unit of X does not matter.

    The result is the average of all points with weights t. Averages of points with zeros, as l1 gives them, are not
    sparse: use ``average=False`` for zeros. After each epoch the certified gap is evaluated, reported and compared to
    ``tol``; if it is never within that, the epoch with the lowest objective is returned. On features that are centred
    and of similar scale that is within some 1e-2 of the optimum, 1e-3 with more epochs; on strongly correlated ones
    such as pixels within some 1e-1. Where losses have kinks the gap that can be proved there is far larger: for a
    certified 1e-6 use the batch solvers.

    An epoch costs O(nonzeros + d n / m) and what the sets of all rows cost, in n / m calls of NumPy functions; sparse
    rows stay sparse, so large batches suit many features.

    Parameters
    ----------
    epochs : int, default=20
        Passes over the rows.
    batch_size : int, default=32
        Rows per step; 1 is the published method.
    eta0 : float, default=None
        Replaces the second length by :math:`\eta_0 / \sqrt t`, for weights and intercept alike.
    average : bool, default=True
        Return the average; otherwise the last point.
    shuffle : bool, default=True
        Visit the rows in a new random order every epoch; otherwise as they stand.
    random_state : int, RandomState, Generator or None, default=None
        Source of the order. None: that of the estimator.

    References
    ----------
    N. Couellan, S. Jan, "Feature uncertainty bounds for explicit feature maps and large robust nonlinear SVM
    classifiers" (2020).

    Examples
    --------
    >>> from holdfast import Box, RobustLinearClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> solver = StochasticProximal(epochs=100)
    >>> model = RobustLinearClassifier(Box(0.1), solver=solver, tol=0.2, random_state=0).fit(X, y)
    >>> model.gap_ < 0.2
    True
    """

    name = "stochastic_proximal"
    needs = (ProximalSum,)
    takes = "StochasticProximal takes two classes, or one class against the rest, not several at once. "
    accuracy = 2e-2

    parameter_table = {
        "epochs": Count(),
        "batch_size": Count(),
        "eta0": Number(strictly=True) | NOTHING,
        "average": Switch(),
        "shuffle": Switch(),
        "random_state": ANY_SEED,
    }

    def __init__(
        self,
        epochs: int = 20,
        *,
        batch_size: int = 32,
        eta0: float | None = None,
        average: bool = True,
        shuffle: bool = True,
        random_state: Any = None,
    ):
        self.epochs = epochs
        self.batch_size = batch_size
        self.eta0 = eta0
        self.average = average
        self.shuffle = shuffle
        self.random_state = random_state

    def preference(self, work: dict[str, Any]) -> float:
        return -np.inf  # no certified accuracy: used only on request

    def seeded(self, random_state: Any) -> StochasticProximal:
        return (
            self
            if self.random_state is not None
            else StochasticProximal(**self.get_params(deep=False) | {"random_state": random_state})
        )

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        view = problem.view(ProximalSum)
        assert view is not None
        self.check()
        rng = generator(self.random_state)
        iterate = ProximalIterate.at(start)
        used = np.flatnonzero(view.weights > 0)
        total, pace = float(view.weights.sum()), self.pace(view, view.entry_sums())
        status, n_iter, best = Status.ROUGH, 0, (np.inf, np.inf, iterate.point)
        for n_iter in range(1, min(self.epochs, max_iter) + 1):
            for batch in self.batches(rng.permutation(used) if self.shuffle else used):
                iterate.step(view, self, batch, total, len(used), pace)
            parameters = iterate.mean.copy() if self.average else iterate.point
            objective, gap = view.certify(parameters)
            report(f"stochastic proximal epoch {n_iter}: objective {objective:.10g}, certified gap {gap:.2e}")
            if gap <= tol:
                status, best = Status.SOLVED, (objective, gap, parameters)
                break
            if (objective, gap) < best[:2]:
                best = objective, gap, parameters
        if status is Status.ROUGH and n_iter < self.epochs:
            status = Status.ITERATION_LIMIT
        return Solution(best[2], status, best[0], n_iter, self.name)

    def check(self) -> None:
        """Raise if a setting makes no sense."""
        self.check_parameters()

    def batches(self, rows: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Return the rows in batches, the last of which may be smaller."""
        return [rows[k : k + self.batch_size] for k in range(0, len(rows), self.batch_size)]

    def pace(self, view: ProximalSum, entry_sums: Array) -> Pace:
        """Return the scale of the steps, estimated from sums over the rows unless `eta0` is given."""
        squares, entries = entry_sums
        if self.eta0 is not None or not squares > 0:
            return Pace(1.0, np.ones(len(view.is_intercept)))
        size = float(np.sqrt(squares / entries))
        return Pace(1 / size, np.where(view.is_intercept, size, 1.0))

    def length(self, n_steps: int, squares: float, ridge: float, reach: float) -> float:
        """Return a step length from the number of steps, the sum of squared gradients, the averaged ridge and reach."""
        if self.eta0 is None:
            length = reach / np.sqrt(squares) if squares > 0 else 0.0
        else:
            length = self.eta0 / np.sqrt(n_steps)
        return float(min(length, 1 / (ridge * n_steps)) if ridge > 0 else length)

    @classmethod
    def examples(cls) -> list[StochasticProximal]:
        return [cls(epochs=60, batch_size=4, random_state=0)]


class Pace(NamedTuple):
    """The scale of the steps: the expected distance of the optimum, and the units that parameters have in it."""

    reach: float
    units: Array


@dataclass
class ProximalIterate:
    """The state of the descent, enough to continue it.

    Attributes
    ----------
    point, mean : ndarray of shape (n_parameters,)
        The last point, and the average of all with weights 1, 2, ...
    n_steps : int
    squares : float
        Sum of the squares of the gradients' norms, in the units of the pace.
    """

    point: Array
    mean: Array
    n_steps: int = 0
    squares: float = 0.0

    @classmethod
    def at(cls, parameters: Array) -> ProximalIterate:
        """Return the initial state of a descent from these parameters."""
        point = np.array(parameters, dtype=np.float64)
        return cls(point, point.copy())

    def step(
        self,
        view: ProximalSum,
        solver: StochasticProximal,
        batch: NDArray[np.intp],
        weight: float,
        n_rows: int,
        pace: Pace,
    ) -> None:
        """Take a step for these rows on the objective over `weight`, the total of `n_rows` rows."""
        gains = view.weights[batch] * (n_rows / (weight * len(batch)))
        gradient = pace.units * view.gradient(batch, gains, self.point)
        self.n_steps += 1
        self.squares += float(gradient @ gradient)
        eta = solver.length(self.n_steps, self.squares, view.ridge / weight, pace.reach)
        self.point = view.proximal(self.point - eta * pace.units * gradient, eta / weight)
        self.mean += (self.point - self.mean) * (2 / (self.n_steps + 1))
