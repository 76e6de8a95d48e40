"""Stochastic gradient descent, one row per step: GURU, M-GURU and M-GURU-S2, corrected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._core import compiled, descent
from holdfast._core.allowed import ANY_SEED, NOTHING, Count, Number, Switch
from holdfast._core.problem import Problem
from holdfast._core.programs import FiniteSum
from holdfast._core.rows import Elementwise
from holdfast._core.solution import Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent


class SGD(Solver):
    r"""Averaged stochastic gradient descent with steps :math:`\eta_0/\sqrt t`, t = 1, 2, ...: the papers' algorithms.

    Algorithms 1 (GURU), 3 (M-GURU) and 4 (M-GURU-S2) of Ginodi & Globerson, with their errata. From w = 0, step t takes
    a row i of class y and moves against the gradient of the objective over its total weight,

    .. math:: w_k \leftarrow w_k - \eta_t\, \bar c_i \sum_j E_{jk} \Bigl(-\ell_u x_i + \ell_t \frac{C d_j}{t(d_j)}\Bigr)
        - \eta_t\, \frac{\lambda}{\sum c}\, w_k,

    :math:`d_j = \sum_k E_{jk} w_k` being :math:`y w` or the differences :math:`w_y - w_k`, :math:`\bar c` the weights
    over their mean and :math:`\lambda w` the gradient of the ridge. Where d = 0 the noise adds nothing. Then w is
    projected on :math:`|w| \le` `bound`, and enters the average with the weight t. Rows of weight zero are left out.

    On features that are centred and of similar scale it comes within 1e-3 to 1e-4 of the optimum, hardly closer: for a
    certified 1e-6 use the batch solvers. After each epoch the certified gap is evaluated, reported and compared to
    ``tol``; the epoch with the smallest is returned. Takes noise that is independent by feature. With one number for
    all, a step costs O(nonzeros) for each class; with deviations by feature or row, O(n_features).

    Parameters
    ----------
    eta0 : float, default=None
        The first step. None: B / G, B being the bound on the norm of the optimal weights where it is known, but no more
        than 2 / (r + sigma) with r the quadratic mean of the nonzero entries of X, and G a bound on the quadratic mean
        of the gradients' norms.
    epochs : int, default=20
        Passes over the rows.
    average : bool, default=True
        Return the average; otherwise the last point.
    one_class_per_step : bool, default=False
        Draw a class and move only its vector, K times as far (M-GURU-S2). For several classes only.
    bound : float, default=None
        Norm to project on: l2, or Frobenius for several classes. None: the bound on the norm of the optimal weights;
        where none is known nothing is projected.
    shuffle : bool, default=True
        Visit the rows in a new random order every epoch; otherwise as they stand.
    random_state : int, RandomState, Generator or None, default=None
        Source of the order. None: that of the estimator.

    Examples
    --------
    >>> from holdfast import GaussianRobustClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> model = GaussianRobustClassifier(1.0, loss="hinge", solver=SGD(), tol=1e-2, random_state=0).fit(X, y)
    >>> model.gap_ < 1e-2
    True
    """

    name = "sgd"
    needs = (FiniteSum,)
    takes = (
        "Linear classifiers such as GaussianRobustClassifier offer it. There SGD takes noise that is independent by feature "
        "(one number, GaussianNoise(std=...), X_std), not a covariance or a factor. "
    )
    accuracy = 2e-2

    parameter_table = {
        "eta0": Number(strictly=True) | NOTHING,
        "epochs": Count(),
        "average": Switch(),
        "one_class_per_step": Switch(),
        "bound": Number(strictly=True) | NOTHING,
        "shuffle": Switch(),
        "random_state": ANY_SEED,
    }

    def __init__(
        self,
        eta0: float | None = None,
        *,
        epochs: int = 20,
        average: bool = True,
        one_class_per_step: bool = False,
        bound: float | None = None,
        shuffle: bool = True,
        random_state: Any = None,
    ):
        self.eta0 = eta0
        self.epochs = epochs
        self.average = average
        self.one_class_per_step = one_class_per_step
        self.bound = bound
        self.shuffle = shuffle
        self.random_state = random_state

    def preference(self, work: dict[str, Any]) -> float:
        return -np.inf  # no certified accuracy: used only on request

    def seeded(self, random_state: Any) -> SGD:
        return (
            self
            if self.random_state is not None
            else SGD(**self.get_params(deep=False) | {"random_state": random_state})
        )

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        view = problem.view(FiniteSum)
        assert view is not None
        self.check(view.n_vectors)
        rng = generator(self.random_state)
        iterate = Iterate.at(start, view)
        used = np.flatnonzero(view.weights > 0)
        total = float(view.weights.sum())
        pace = self.pace(view, view.row_sums(), view.norm_bound())
        status, n_iter, best = Status.ROUGH, 0, (np.inf, np.inf, iterate.parameters(view, self.average))
        for n_iter in range(1, min(self.epochs, max_iter) + 1):
            order = rng.permutation(used) if self.shuffle else used
            gains = view.weights[order] * (len(used) / total)
            ridges = np.full(len(order), view.ridge / total)
            iterate.advance(view, pace, order, gains, ridges, self.draws(view, order, rng), self.epochs)
            parameters = iterate.parameters(view, self.average)
            objective, gap = view.certify(parameters)
            report(f"sgd epoch {n_iter}: objective {objective:.10g}, certified gap {gap:.2e}")
            if (gap, objective) < best[:2]:
                best = gap, objective, parameters
            if gap <= tol:
                status = Status.SOLVED
                break
        if status is Status.ROUGH and n_iter < self.epochs:
            status = Status.ITERATION_LIMIT
        return Solution(best[2], status, best[1], n_iter, self.name)

    def check(self, n_vectors: int) -> None:
        """Raise if a setting makes no sense."""
        self.check_parameters()
        if self.one_class_per_step and n_vectors == 1:
            raise ValueError(
                "SGD(one_class_per_step=True): there is one weight vector only, as for two classes. "
                "Leave it out; it is for three or more."
            )

    def pace(self, view: FiniteSum, sums: Array, norm_bound: float) -> Pace:
        """Return the first step and the norm to project on: as given, or else from the sums over the rows."""
        B, G = view.step_bound(sums, norm_bound)
        eta0 = B / G if np.inf > B and G > 0 else 1.0
        return Pace(
            float(eta0 if self.eta0 is None else self.eta0), float(norm_bound if self.bound is None else self.bound)
        )

    def draws(self, view: FiniteSum, order: NDArray[np.intp], rng: Any) -> NDArray[np.intp]:
        """Return the class that moves in each step; an empty array if all classes move."""
        return rng.choice(view.n_vectors, size=len(order) if self.one_class_per_step else 0)

    @classmethod
    def examples(cls) -> list[SGD]:
        return [cls(epochs=60, random_state=0)]


class Pace(NamedTuple):
    """The length of the first step, and the radius of the ball onto which points are projected."""

    eta0: float
    bound: float


@dataclass
class Iterate:
    """The state of the descent, enough to continue it.

    Attributes
    ----------
    weights, mean_weights : ndarray of shape (n_vectors, n_features)
    intercepts, mean_intercepts : ndarray of shape (n_vectors,)
    n_steps : int
    """

    weights: Array
    intercepts: Array
    mean_weights: Array
    mean_intercepts: Array
    n_steps: int = 0

    @classmethod
    def at(cls, parameters: Array, view: FiniteSum) -> Iterate:
        """Return the initial state of a descent from these parameters."""
        table = np.array(parameters, dtype=np.float64).reshape(view.n_vectors, -1)
        W = np.ascontiguousarray(table[:, : view.n_features])
        b = table[:, -1].copy() if view.fit_intercept else np.zeros(view.n_vectors)
        return cls(W, b, W.copy(), b.copy())

    def parameters(self, view: FiniteSum, average: bool) -> Array:
        """Return the average, or the last point, as parameters of the problem."""
        W, b = (self.mean_weights, self.mean_intercepts) if average else (self.weights, self.intercepts)
        return np.column_stack([W, b]).ravel() if view.fit_intercept else W.flatten()

    def advance(
        self,
        view: FiniteSum,
        pace: Pace,
        order: NDArray[np.intp],
        gains: Array,
        ridges: Array,
        draws: NDArray[np.intp],
        epochs: int = 1,
    ) -> None:
        """Take one step for each row of `order`, `gains` being their relative weights and `ridges` the ridge's shares.

        `epochs`, the number of passes planned, decides whether compiling is worth its time.
        """
        if len(order) == 0:
            return
        eta = pace.eta0 / np.sqrt(np.arange(self.n_steps + 1, self.n_steps + len(order) + 1))
        # a step costs its nonzeros for each vector and some 30 operations of its own
        entries = view.rows.values.size * view.n_vectors + 30 * len(order)
        steps, loss = _steps(view, epochs * entries)
        arguments = (*view.rows, view.labels, order, draws, gains * eta, ridges * eta, loss, *view.noise, pace.bound)
        state = (self.n_steps, self.weights, self.intercepts, self.mean_weights, self.mean_intercepts)
        steps(*arguments, *state, view.fit_intercept)
        self.n_steps += len(order)


def _steps(view: FiniteSum, visits: int) -> tuple[Any, Any]:
    """Return the function that takes the steps, and the loss in the form it calls; compiled if that saves time."""
    kernel, steps = (
        (view.loss.compiled(), compiled.kernel(view.kernel)) if compiled.steps_repay(visits) else (None, None)
    )
    if kernel is not None and steps is not None:
        return steps, kernel
    return getattr(descent, view.kernel), _interpreted(view.loss)


def _interpreted(loss: Elementwise) -> Any:
    def kernel(u: Array, t: Array, value: Array, slope_u: Array, slope_t: Array) -> None:
        value[:], slope_u[:], slope_t[:] = loss.evaluate(u, t)

    return kernel


def generator(random_state: Any) -> Any:
    """Return a generator of permutations: the given one, or a new one with this seed."""
    return random_state if hasattr(random_state, "permutation") else np.random.default_rng(random_state)
