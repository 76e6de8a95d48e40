"""Training on rows that arrive in parts and are seen only once."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.programs import FiniteSum, ProximalSum
from holdfast._data import rows_of
from holdfast._problems.linear import LinearProblem
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast.solvers import SGD, StochasticProximal
from holdfast.solvers.stochastic import Iterate
from holdfast.solvers.stochastic_proximal import ProximalIterate


@dataclass
class Stream:
    """The state of a descent over parts of the rows: all arrays and numbers that are needed to continue it.

    Attributes
    ----------
    weights, mean_weights : ndarray of shape (n_vectors, n_features)
    intercepts, mean_intercepts : ndarray of shape (n_vectors,)
        The point and its average.
    n_steps : int
    weight : float
        Total weight of the rows so far.
    sums : ndarray of shape (5,)
        Sums over the rows so far; see ``FiniteSum.row_sums``.
    class_weights : ndarray of shape (2,)
    class_sums : ndarray of shape (2, n_features)
        Weight and weighted sum of the rows of each class so far.
    """

    weights: Array
    intercepts: Array
    mean_weights: Array
    mean_intercepts: Array
    n_steps: int
    weight: float
    sums: Array
    class_weights: Array
    class_sums: Array

    @classmethod
    def start(cls, problem: LinearProblem) -> Stream:
        """Return the beginning, w = 0."""
        n_features, n_vectors = problem.rows.n_features, problem.n_vectors
        shape, n_classes = (n_vectors, n_features), max(2, n_vectors)
        return cls(
            weights=np.zeros(shape),
            intercepts=np.zeros(n_vectors),
            mean_weights=np.zeros(shape),
            mean_intercepts=np.zeros(n_vectors),
            n_steps=0,
            weight=0.0,
            sums=np.zeros(5),
            class_weights=np.zeros(n_classes),
            class_sums=np.zeros((n_classes, n_features)),
        )

    @property
    def point(self) -> tuple[Array, Array]:
        """Weights and intercepts after the last step."""
        return self.weights, self.intercepts

    @property
    def mean_point(self) -> tuple[Array, Array]:
        """Their average over the steps."""
        return self.mean_weights, self.mean_intercepts

    def advanced(self, problem: LinearProblem, solver: SGD) -> Stream:
        """Return the stream after one pass over the rows of `problem`, in their order.

        Row weights are used as given (1 is the usual weight). A row's share of the ridge is alpha over the weight of
        all rows up to it. A step size or norm bound that the solver does not state is estimated anew from all rows so
        far.
        """
        view = problem.view(FiniteSum)
        assert view is not None
        solver.check(view.n_vectors)
        new = Stream(**asdict(self))  # arrays are copied: an error from here on leaves the old stream unchanged
        new.sums += view.row_sums()
        for label in range(len(new.class_weights)):
            own = view.weights * (view.labels == label)
            new.class_weights[label] += own.sum()
            new.class_sums[label] += problem.rows.transpose_dot(own)
        order = np.flatnonzero(view.weights > 0)
        gains = view.weights[order]
        reached = new.weight + np.cumsum(gains)
        iterate = Iterate(new.weights, new.intercepts, new.mean_weights, new.mean_intercepts, new.n_steps)
        pace = solver.pace(view, new.sums, new._norm_bound(problem))
        draws = solver.draws(view, order, np.random.default_rng(new.n_steps))
        iterate.advance(view, pace, order, gains, view.ridge / reached, draws)
        new.n_steps, new.weight = iterate.n_steps, float(reached[-1]) if len(reached) else new.weight
        return new

    def _norm_bound(self, problem: LinearProblem) -> float:
        """Return the bound on the norm of the best weights for the rows so far, computed from the class means."""
        if not np.all(self.class_weights > 0):
            return np.inf
        means = rows_of(self.class_sums / self.class_weights[:, None])
        return problem.of_classes(means, self.class_weights).known_norm_bound()


@dataclass
class ProximalStream:
    """The state of a proximal descent over parts of the rows: all arrays and numbers that are needed to continue it.

    Attributes
    ----------
    parameters, mean_parameters : ndarray of shape (n_features + 1,)
        The point and its average, the intercept last.
    n_steps : int
    squares : float
        Sum of the squares of the gradients' norms.
    n_rows : int
        Number of rows so far, without those of weight 0.
    weight : float
        Their total weight.
    entry_sums : ndarray of shape (2,)
        Sums over the rows so far; see ``ProximalSum.entry_sums``.
    """

    parameters: Array
    mean_parameters: Array
    n_steps: int
    squares: float
    n_rows: int
    weight: float
    entry_sums: Array

    @classmethod
    def start(cls, problem: MarginScaleProblem) -> ProximalStream:
        """Return the beginning, w = 0."""
        size = problem.rows.n_features + 1
        return cls(np.zeros(size), np.zeros(size), 0, 0.0, 0, 0.0, np.zeros(2))

    @property
    def point(self) -> tuple[Array, Array]:
        """Weights and intercepts after the last step."""
        return self.parameters[None, :-1], self.parameters[-1:]

    @property
    def mean_point(self) -> tuple[Array, Array]:
        """Their average over the steps."""
        return self.mean_parameters[None, :-1], self.mean_parameters[-1:]

    def advanced(self, problem: MarginScaleProblem, solver: StochasticProximal) -> ProximalStream:
        """Return the stream after one pass over the rows of `problem`, in their order.

        Each step is for the mean objective of all rows up to the end of its batch. Settings that the solver does not
        state are estimated anew from all rows so far.
        """
        view = problem.view(ProximalSum)
        assert view is not None
        solver.check()
        sums = self.entry_sums + view.entry_sums()
        n_rows, weight, pace = self.n_rows, self.weight, solver.pace(view, sums)
        at, mean = (problem.join(theta[:-1], float(theta[-1])) for theta in (self.parameters, self.mean_parameters))
        iterate = ProximalIterate(at, mean.copy(), self.n_steps, self.squares)
        for batch in solver.batches(np.flatnonzero(view.weights > 0)):
            n_rows, weight = n_rows + len(batch), weight + float(view.weights[batch].sum())
            iterate.step(view, solver, batch, weight, n_rows, pace)
        end, mean = (np.append(*problem.split(theta)) for theta in (iterate.point, iterate.mean))
        return ProximalStream(end, mean, iterate.n_steps, iterate.squares, n_rows, weight, sums)
