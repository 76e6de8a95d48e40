"""Deletions of features, whole or in part, within a budget for each row: one knapsack of gains per row."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import MISSED, norm, ratio, rescaled
from holdfast._core.dual_norm import approaches
from holdfast._core.memory import remembered
from holdfast._core.programs import SupportProgram
from holdfast._core.row_forms import Array, DeletionForm, RowHessians
from holdfast._core.row_sets import RowSets
from holdfast._core.smoothed_set import SmoothedSet
from holdfast._core.tolerances import AFFORDABLE, ROUNDING
from holdfast.uncertainty.knapsacks import Filled, Knapsacks, SmoothlyFilled
from holdfast.uncertainty.polytopes import KINK_WIDTHS
from holdfast.uncertainty.row_boxes import RowMatrix, RowPoints

NEARLY, HOPELESS = 0.1, 0.01
"""The least multiple's excess over 1 is found to this relative accuracy; above the second number it does not matter."""

NEAR_FACE = 1e-3
"""A share this close to 0 or 1 counts as 0 or 1; the distance is due to the smoothing."""


class Deletions(RowPoints):
    r"""The sets :math:`\{(p_{ij} d_j)_j : 0 \le d \le 1, \sum_j d_j v_j \le N\}`; :math:`p_i`: full deletion's change.

    Parameters
    ----------
    moves : csr_array of shape (n_samples, n_features)
        p; only stored entries can be deleted.
    values : ndarray of shape (n_features,)
        v >= 0, inf for features that have no stored entry.
    budget : float
        N >= 0; N > 0 if some value is > 0.
    is_dense : bool
        Whether points are returned as dense arrays, which multiply faster.
    is_spent : bool
        Whether the budget must be used up: :math:`\sum_j d_j v_j = N`.
    is_to_zero : bool
        Whether deleted entries become 0.
    """

    is_smooth = False
    is_symmetric = False

    def __init__(
        self,
        moves: sparse.csr_array,
        values: Array,
        budget: float,
        *,
        is_dense: bool,
        is_spent: bool = False,
        is_to_zero: bool = False,
    ):
        self.moves, self.values, self.budget = moves, values, budget
        self.is_dense, self.is_spent, self.is_to_zero = is_dense, is_spent, is_to_zero
        self.has_origin = not is_spent

    @cached_property
    def knapsacks(self) -> Knapsacks:
        """The knapsack problem of each row: the stored entries, their costs and the budget."""
        return Knapsacks(self.moves.indptr, self.values[self.moves.indices], self.budget, is_spent=self.is_spent)

    @cached_property
    def owners(self) -> NDArray[np.intp]:
        """The row of each entry."""
        return np.repeat(np.arange(self.moves.shape[0]), np.diff(self.moves.indptr))

    @cached_property
    def smoothing(self) -> Array:
        """T_i(0) at width 1, from which the width for a given T_i(0) follows; 0 for rows with nothing to delete."""
        # at w = 0 all gains are 0, and the smooth value is proportional to the width
        return self.knapsacks.smoothed(np.zeros(self.moves.nnz), np.ones(self.moves.shape[0])).values

    def gains(self, w: Array) -> Array:
        """Return the change of the score if each entry is deleted; `w` is one vector, or one for each row."""
        here = w[self.moves.indices] if w.ndim == 1 else w[self.owners, self.moves.indices]
        return np.asarray(self.moves.data * here)

    def matrix(self, per_entry: Array) -> RowMatrix:
        """Return the numbers given for the stored entries as a matrix of shape (n_samples, n_features)."""
        (n, d), entries = self.moves.shape, (per_entry, self.moves.indices, self.moves.indptr)
        made = sparse.csr_array(entries, shape=(n, d))
        return RowMatrix(made.toarray() if self.is_dense else made, np.ones(n), np.ones(d))

    def column_sums(self, per_entry: Array) -> Array:
        """Return the sum over each feature's entries."""
        return np.asarray(np.bincount(self.moves.indices, per_entry, self.moves.shape[1]), dtype=np.float64)

    @remembered
    def _filled(self, w: Array) -> Filled:
        return self.knapsacks.filled(self.gains(w))

    @remembered
    def _terms(self, w: Array) -> list[RowMatrix]:
        return [self.matrix(self.moves.data * self._filled(w).shares)]

    @remembered
    def support(self, w: Array) -> Array:
        return self.knapsacks.row_sums(self._filled(w).shares * self.gains(w))

    def supports_at(self, W: Array) -> Array:
        return self.support(W)

    def maximizers_at(self, W: Array) -> Array:
        return self.maximizer(W)

    def _shares(self, here: Array) -> Array:
        """Return the deleted share of each entry at points whose values at the entries are `here`."""
        return np.divide(here, self.moves.data, out=np.zeros(len(here)), where=self.moves.data != 0)

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        here = points[self.owners, self.moves.indices]
        shares = self._shares(here)
        is_inside = (shares >= -slack) & (shares <= 1 + slack) & ((self.moves.data != 0) | (here == 0))
        elsewhere = np.count_nonzero(points, axis=1) > self.knapsacks.row_sums(1.0 * (here != 0))
        spent = self.knapsacks.row_sums(self.knapsacks.costs * shares)
        is_possible = self.knapsacks.row_sums(1.0 * ~is_inside) == 0
        is_afforded = spent <= self.budget * (1 + slack)
        if self.is_spent:
            unseen = self.knapsacks.row_sums(np.where(self.moves.data == 0, self.knapsacks.costs, 0.0))
            is_afforded &= spent + unseen >= self.budget * (1 - slack)
        return np.asarray(is_possible & ~elsewhere & is_afforded)

    def sum_of_points(self, points: Any, budgets: Array, size: float = 1.0) -> Array:
        shares = self._shares(_at(points, self.owners, self.moves.indices))
        return self.column_sums(self.moves.data * self._within(shares, size) * budgets[self.owners])

    def _within(self, shares: Array, size: float = 1.0) -> Array:
        """Return shares near the given ones whose points lie in `size` times the sets."""
        sacks, costs = self.knapsacks, self.knapsacks.costs
        shares = np.clip(np.nan_to_num(shares / size), 0.0, 1.0)
        spent = sacks.row_sums(costs * shares)
        shares *= sacks.by_item(
            np.minimum(1.0, np.divide(self.budget, spent, out=np.ones(len(spent)), where=spent > 0))
        )
        # deleting an entry of 0 changes nothing, so the rest of the budget is spent on those first
        for missed in (self.moves.data == 0, np.ones(len(shares))) if self.is_spent else ():
            room = (1 - shares) * missed
            lacking = self.budget - sacks.row_sums(costs * shares)
            shares += room * sacks.by_item(np.clip(ratio(lacking, sacks.row_sums(costs * room)), 0.0, 1.0))
        return np.asarray(size * shares)

    def deletion_form(self) -> DeletionForm | None:
        if not self.is_to_zero or np.any(self.values == 0):
            return None
        return DeletionForm(self.values, self.budget, self.is_spent, self._points_of)

    def _points_of(self, deleted: Any) -> Any:
        """Return, as a sparse matrix, the errors of rows when the shares `deleted` of their entries are deleted."""
        shares = _at(deleted, self.owners, self.moves.indices)
        made = (self.moves.data * shares, self.moves.indices, self.moves.indptr)
        return sparse.csr_array(made, shape=self.moves.shape)

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        if self.is_spent:
            # multiples of sets that lack the origin do not contain one another, so a larger one proves nothing
            return np.where(budgets > 0, np.inf, 0.0) if np.any(target) else np.zeros(len(budgets))
        sizes = np.full(len(target), norm(target)) if sizes is None else sizes
        pulls = self.moves.data * budgets[self.owners]
        # only changes towards the target help; the others can be left out, as any share may be 0
        helps = pulls * np.sign(target)[self.moves.indices] > 0
        reach = self.column_sums(np.where(helps, np.abs(pulls), 0.0))
        if np.any((np.abs(target) > MISSED * sizes) & (reach == 0)):
            return np.full(len(budgets), np.inf)

        def multiple(shares: Array) -> float:
            """Return the multiple of the sets that contains `shares` after scaling each feature to meet the target."""
            forward = self.column_sums(np.where(helps, np.abs(pulls) * shares, 0.0))
            plain, factor = ratio(np.abs(target), reach), ratio(np.abs(target), forward)
            used = np.where(forward > 0, factor, 1.0)[self.moves.indices] * np.where(
                (forward > 0)[self.moves.indices], shares, plain[self.moves.indices]
            )
            used = np.where(helps, used, 0.0)
            spent = ratio(self.knapsacks.row_sums(self.knapsacks.costs * used), self.budget)
            return float(max(np.max(used, initial=0.0), np.max(spent, initial=0.0)))

        best = multiple(np.zeros(self.moves.nnz))
        n, d = self.moves.shape
        # each approach takes Newton steps: n d^2 for the Hessian, some 20 d^3 for the singular values that solve the
        # system
        if (n + 20 * d) * d * d <= AFFORDABLE:
            for approach in approaches(self, target, budgets):
                excess = approach.least - 1
                if best <= 1 or best - approach.least <= max(ROUNDING, NEARLY * excess) or excess > HOPELESS:
                    break
                best = min(best, multiple(approach.multiple * approach.sets.shares(approach.w)))
        return best * budgets

    def absolute_reach(self, n_features: int) -> Array:
        sizes = np.abs(self.moves.data)
        return self.knapsacks.row_sums(self.knapsacks.filled(sizes).shares * sizes)

    def centred(self, X: Any) -> tuple[Any, RowSets]:
        return X, self  # deletions are already measured from the row itself

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return self.column_sums(np.ones(self.moves.nnz)) == 0

    def _of(self, moves: sparse.csr_array) -> Deletions:
        return Deletions(
            moves, self.values, self.budget, is_dense=self.is_dense, is_spent=self.is_spent, is_to_zero=self.is_to_zero
        )

    def against_labels(self, signs: Array) -> Deletions:
        return self._of(rescaled(self.moves, -signs))

    def scaled(self, factor: float) -> Deletions:
        found = self._of(rescaled(self.moves, np.full(self.moves.shape[0], factor)))
        found.is_to_zero = self.is_to_zero and factor == 1
        return found

    def take(self, rows: Any) -> Deletions:
        return self._of(self.moves[rows])

    def smoothed(self, delta: float) -> SmoothedDeletions:
        return SmoothedDeletions(self, delta)

    @cached_property
    def _widest(self) -> Array:
        """The largest absolute change of each feature over all rows."""
        return np.ravel(abs(self.moves).max(axis=0).toarray())

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        width = delta / np.max(self.smoothing, initial=1.0)
        near = (self._widest > 0) & (self._widest * np.abs(w) <= KINK_WIDTHS * width)
        return np.where(near, factor * w, w)

    def support_program(self, n_features: int) -> SupportProgram:
        # variables beside w: a price >= 0 for each row (free if the budget must be used up), and for each entry the
        # gain in excess of it, u >= 0 with u >= p w - price v
        n, m, costs = self.moves.shape[0], self.moves.nnz, self.knapsacks.costs
        entries = np.arange(m)
        at_row = sparse.csr_array((np.ones(m), (entries, self.owners)), shape=(m, n))
        at_feature = sparse.csr_array((self.moves.data, (entries, self.moves.indices)), shape=(m, n_features))
        T = sparse.hstack([sparse.csr_array((n, n_features)), self.budget * sparse.eye_array(n), at_row.T])
        signs = sparse.hstack([sparse.csr_array((n + m, n_features)), sparse.eye_array(n + m)], format="csr")
        signs = signs[n if self.is_spent else 0 :]
        beyond = sparse.hstack([-at_feature, sparse.diags_array(costs) @ at_row, sparse.eye_array(m)])

        def points(budgets: Array, multipliers: Array) -> Array:
            shares = self._within(ratio(multipliers[signs.shape[0] :], budgets[self.owners]))
            return self.matrix(self.moves.data * shares).of(slice(None))

        G = sparse.csr_array(sparse.vstack([signs, beyond]))
        return SupportProgram(sparse.csr_array(T), [("nonnegative", [G.shape[0]], G)], points)

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        n = self.moves.shape[0]
        many = self.take(np.tile(np.arange(n), n_draws))
        shares = many.knapsacks.filled(rng.normal(size=many.moves.nnz)).shares
        if not self.is_spent:
            shares *= many.knapsacks.by_item(np.minimum(rng.uniform(0, 2, size=n * n_draws), 1.0))
        return many.matrix(many.moves.data * shares).of(slice(None)).reshape(n_draws, n, n_features)

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Any:
        # features are deleted in random order until the budget is used up
        return self.matrix(self.moves.data * self.knapsacks.filled(rng.uniform(size=self.moves.nnz)).shares).whole()


def _at(matrix: Any, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Array:
    """Return the entries of an array or a sparse matrix at the given rows and columns."""
    found = matrix[rows, columns]
    return np.asarray(found.toarray() if sparse.issparse(found) else found)


class SmoothedDeletions(RowPoints, SmoothedSet):
    r"""Deletions with supports :math:`T_i = \min_{\lambda \ge 0} N\lambda + \sum_j \phi(p_{ij} w_j - \lambda v_j)`.

    :math:`\phi(z) = (z + \sqrt{z^2 + c_i^2})/2`, with the width :math:`c_i` chosen such that :math:`T_i(0) = \delta`.
    With :math:`b_j = \phi''` at entry j, the Hessian for a price :math:`\lambda > 0` is
    :math:`\mathrm{diag}(p^2 b) - u u^\top / \sum_j v_j^2 b_j`, :math:`u_j = p_j v_j b_j`; at :math:`\lambda = 0` the
    second term is absent.
    """

    base: Deletions

    def __init__(self, base: Deletions, delta: float):
        super().__init__(base, delta)
        self.is_smooth = True

    @remembered
    def _here(self, w: Array) -> SmoothlyFilled:
        base = self.base
        widths = np.divide(self.delta, base.smoothing, out=np.ones(len(base.smoothing)), where=base.smoothing > 0)
        return base.knapsacks.smoothed(base.gains(w), widths)

    def shares(self, w: Array) -> Array:
        """Return the deleted share of each entry."""
        return self._here(w).shares

    @remembered
    def _terms(self, w: Array) -> list[RowMatrix]:
        return [self.base.matrix(self.base.moves.data * self._here(w).shares)]

    def maximizer_on_faces(self, w: Array) -> Array:
        sacks, shares = self.base.knapsacks, self._here(w).shares
        whole, part = shares >= 1 - NEAR_FACE, (shares > NEAR_FACE) & (shares < 1 - NEAR_FACE)
        left = self.base.budget - sacks.row_sums(np.where(whole, sacks.costs, 0.0))
        # partial shares are reduced to pay for the shares that were rounded up to 1
        fits = np.minimum(ratio(np.maximum(left, 0.0), sacks.row_sums(np.where(part, sacks.costs * shares, 0.0))), 1.0)
        rested = np.where(whole, 1.0, np.where(part, shares * sacks.by_item(fits), 0.0))
        return self.base.matrix(self.base.moves.data * self.base._within(rested)).of(slice(None))

    def support(self, w: Array) -> Array:
        # rows that have nothing to delete have no width, but need T(0) = delta too
        return self._here(w).values + np.where(self.base.smoothing > 0, 0.0, self.delta)

    def supports_at(self, W: Array) -> Array:
        return self.support(W)

    def maximizers_at(self, W: Array) -> Array:
        return self.maximizer(W)

    def hessians_at(self, W: Array) -> RowHessians:
        squares, _, along, held = self._bends(W)
        return RowHessians.diagonal(squares.of(slice(None))).plus(RowHessians([], [(-held, along.of(slice(None)))]))

    @remembered
    def _bends(self, w: Array) -> tuple[RowMatrix, RowMatrix, RowMatrix, Array]:
        r"""Return :math:`p^2 b`, the Hessians' diagonals, u, and :math:`1 / \sum_j v_j^2 b_j` (0 if the price is 0)."""
        base, here, sacks = self.base, self._here(w), self.base.knapsacks
        bends, moves = here.bends, base.moves.data
        weights = np.square(sacks.costs) * bends
        total = sacks.row_sums(weights)
        held = np.divide(1.0, total, out=np.zeros(len(total)), where=here.is_tight & (total > 0))
        # for an item with nearly all of the weight, total - weight cancels: add up the other weights instead
        is_most = weights > 0.5 * sacks.by_item(total)
        others = sacks.by_item(sacks.row_sums(np.where(is_most, 0.0, weights)))
        rest = np.where(is_most, others, sacks.by_item(total) - weights) * sacks.by_item(held)
        squares = np.square(moves) * bends
        diagonals = squares * np.where(sacks.by_item(held) > 0, rest, 1.0)
        return base.matrix(squares), base.matrix(diagonals), base.matrix(moves * sacks.costs * bends), held

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        _, diagonals, along, held = self._bends(w)
        out = -along.product(along, first * held)
        np.fill_diagonal(out, diagonals.transpose_dot(first))
        return out + super().curvature(w, first, second)

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        squares, _, along, held = self._bends(w)
        return squares.transpose_dot(first) * v - along.transpose_dot(first * held * along.dot(v))

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        # where gains tie, the smooth shares split the budget as the optimum does; the plain maximizer gives all to one
        # item
        own = target - self.adjoint(direction, budgets)
        return min(own, self.base.residual(target, budgets, scale, direction), key=norm)
