"""The constraints of a deletion program, eliminated row by row: their share of a step, and the length they allow it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from holdfast._core.arithmetic import dense, rescaled, without_duplicates
from holdfast._core.solver import Array

if TYPE_CHECKING:
    from holdfast.solvers.deletion_interior_point import ScaledDeletions

CROWDED = 0.3
"""With at least this share of nonzeros, zeros are stored like other entries: dense arithmetic is then faster."""


class _Entries(ABC):
    """The positions of the deletable entries of some rows; numbers for each entry are an array of the shape of `A`."""

    A: Array
    shape: tuple[int, int]

    @abstractmethod
    def of_columns(self, v: Array) -> Array:
        """Return v_j at each entry."""

    @abstractmethod
    def of_rows(self, r: Array) -> Array:
        """Return r_i at each entry."""

    @abstractmethod
    def row_sums(self, e: Array) -> Array:
        """Return sum_j e_ij."""

    @abstractmethod
    def column_sums(self, e: Array) -> Array:
        """Return sum_i e_ij."""

    @abstractmethod
    def dense(self, e: Array) -> Array:
        """Return the entries as a matrix."""

    @abstractmethod
    def matrix(self, e: Array) -> Any:
        """Return the entries as a matrix that stores these alone."""


class _AllEntries(_Entries):
    """Every entry of the rows."""

    def __init__(self, A: Array):
        self.A, self.shape = A, A.shape
        self.ones = np.ones(A.shape[1])

    def of_columns(self, v: Array) -> Array:
        return np.broadcast_to(v, self.shape)

    def of_rows(self, r: Array) -> Array:
        return r[:, None]

    def row_sums(self, e: Array) -> Array:
        return np.asarray(e @ self.ones)

    def column_sums(self, e: Array) -> Array:
        return np.asarray(e.sum(axis=0))

    def dense(self, e: Array) -> Array:
        return e

    def matrix(self, e: Array) -> Any:
        return e


class _SomeEntries(_Entries):
    """The nonzeros of the rows."""

    def __init__(self, A: sparse.csr_array):
        self.A, self.shape = A.data, A.shape
        self.columns, self.starts = A.indices, A.indptr
        self.counts = np.diff(A.indptr)
        # sums as products with matrices of ones: several times as fast as counting
        ones, each = np.ones(A.nnz), np.arange(A.nnz)
        self.to_rows = sparse.csr_array((ones, each, A.indptr), shape=(A.shape[0], A.nnz))
        self.to_columns = sparse.csr_array((ones, A.indices, np.arange(A.nnz + 1)), shape=(A.nnz, A.shape[1])).T.tocsr()

    def of_columns(self, v: Array) -> Array:
        return v[self.columns]

    def of_rows(self, r: Array) -> Array:
        return np.repeat(r, self.counts)

    def row_sums(self, e: Array) -> Array:
        return np.asarray(self.to_rows @ e)

    def column_sums(self, e: Array) -> Array:
        return np.asarray(self.to_columns @ e)

    def dense(self, e: Array) -> Array:
        return np.asarray(self.matrix(e).toarray())

    def matrix(self, e: Array) -> Any:
        return sparse.csr_array((e, self.columns, self.starts), shape=self.shape)


def _entries(X: Any, signs: Array, every: bool) -> _Entries:
    """Return the entries of y_i x_i: all if `every` entry counts or many are nonzero, else the nonzeros."""
    if every or (X.nnz if sparse.issparse(X) else np.count_nonzero(X)) > CROWDED * X.shape[0] * X.shape[1]:
        return _AllEntries(np.multiply(signs[:, None], dense(X), dtype=np.float64))
    return listed(X, signs, every)


def listed(X: Any, signs: Array, every: bool) -> _Entries:
    """Return the entries of y_i x_i as a list: the nonzeros, or all if `every` entry counts."""
    m, n = X.shape
    if every:
        entries = dense(X).astype(np.float64).ravel(), np.tile(np.arange(n), m), n * np.arange(m + 1)
        return _SomeEntries(rescaled(sparse.csr_array(entries, shape=(m, n)), signs))
    A = rescaled(without_duplicates(sparse.csr_array(X).astype(np.float64)), signs)
    A.eliminate_zeros()
    return _SomeEntries(A)


EntriesOf = Callable[[Any, Array, bool], _Entries]
"""A function of the rows, their labels and whether every entry counts; it returns the entries."""


class Part(ABC):
    """Constraints with slacks and multipliers; `z` holds the weights, deletable features first, and the intercept."""

    n_pairs: int

    @abstractmethod
    def add_curvature(self, M: Array, cross: Array) -> Array:
        """Add to M and `cross` the products to add and to subtract; return a diagonal to replace that of `cross`."""

    @abstractmethod
    def target(self, z: Array, mu: float, most: float) -> Array:
        """Return a share of the right-hand side, for products `mu` less the last direction's, clipped to `most`."""

    @abstractmethod
    def turn(self, dz: Array) -> tuple[float, float]:
        """Set the direction that belongs to dz; return how many times it fits before a bound, primal and dual."""

    @abstractmethod
    def product(self, primal: float, dual: float) -> float:
        """Return the sum of slack times multiplier after steps of these lengths."""

    @abstractmethod
    def move(self, primal: float, dual: float) -> None:
        """Take the step."""


class _Pairs:
    """Slacks, multipliers and their directions."""

    def __init__(self, slack: Array, multiplier: Array):
        self.slack, self.multiplier = slack, multiplier
        self.dslack: Array = np.zeros(1)
        self.dmultiplier: Array = np.zeros(1)

    @property
    def ratio(self) -> Array:
        return self.multiplier / self.slack

    def aim(self, mu: float, most: float) -> Array:
        """Return the multipliers that give the products `mu` at these slacks, each corrected by no more than `most`."""
        return (mu - np.clip(self.dslack * self.dmultiplier, -most, most) if most > 0 else mu) / self.slack

    def fits(self) -> tuple[float, float]:
        """Return how many times the direction fits before a bound, primal and dual."""
        return _fits(self.slack, self.dslack), _fits(self.multiplier, self.dmultiplier)

    def product(self, primal: float, dual: float) -> float:
        s, z, ds, dz = self.slack, self.multiplier, self.dslack, self.dmultiplier
        found = float(np.vdot(s, z))
        if primal or dual:
            found += primal * float(np.vdot(ds, z)) + dual * float(np.vdot(s, dz))
            found += primal * dual * float(np.vdot(ds, dz))
        return found

    def move(self, primal: float, dual: float) -> None:
        self.slack += primal * self.dslack
        self.multiplier += dual * self.dmultiplier


def _fits(x: Array, dx: Array) -> float:
    steepest = -float(np.min(dx / x, initial=0.0))
    return 1 / steepest if steepest > 0 else np.inf


class Limits(Part):
    """The constraints -limit <= w <= limit on the weights."""

    def __init__(self, limit: float, pull: Array, weight: float):
        n = len(pull)
        level = float(np.abs(pull).mean()) or weight / np.sqrt(n)
        self.upper = _Pairs(np.full(n, limit), np.maximum(pull, 0.0) + level)
        self.lower = _Pairs(np.full(n, limit), np.maximum(-pull, 0.0) + level)
        self.n_pairs = 2 * n

    def add_curvature(self, M: Array, cross: Array) -> Array:
        return self.upper.ratio + self.lower.ratio

    def target(self, z: Array, mu: float, most: float) -> Array:
        self.aims = self.upper.aim(mu, most), self.lower.aim(mu, most)
        found = np.zeros_like(z)
        found[: self.n_pairs // 2] = self.aims[1] - self.aims[0]
        return found

    def turn(self, dz: Array) -> tuple[float, float]:
        dw = dz[: self.n_pairs // 2]
        for pairs, aim, step in ((self.upper, self.aims[0], -dw), (self.lower, self.aims[1], dw)):
            pairs.dslack = step
            pairs.dmultiplier = aim - pairs.multiplier - pairs.ratio * step
        fits = self.upper.fits(), self.lower.fits()
        return min(fits[0][0], fits[1][0]), min(fits[0][1], fits[1][1])

    def product(self, primal: float, dual: float) -> float:
        return self.upper.product(primal, dual) + self.lower.product(primal, dual)

    def move(self, primal: float, dual: float) -> None:
        self.upper.move(primal, dual)
        self.lower.move(primal, dual)


class Constraints:
    r"""Some rows of a program: the terms of their constraints. U holds the columns that cannot be deleted.

    The columns of U are the last ones, the intercept's at the end.
    """

    def __init__(self, scaled: ScaledDeletions, rows: slice, X: Any, entries: EntriesOf = _entries):
        n, y, c = scaled.n_deletable, scaled.signs[rows], scaled.weights[rows]
        if scaled.is_reordered:
            X = X[:, scaled.order]
        self.entries = entries(X[:, :n], y, scaled.is_spent)
        self.A, self.n, self.c, self.is_spent = self.entries.A, n, c, scaled.is_spent
        self.U: Any = y[:, None] if scaled.program.fit_intercept else np.zeros((len(y), 0))
        if X.shape[1] > n:
            fixed = sparse.csr_array(X[:, n:]).astype(np.float64)
            self.U = sparse.hstack([sparse.diags_array(y) @ fixed, self.U], format="csr")
        self.v, self.g = self.entries.of_columns(scaled.values), self.entries.of_columns(scaled.gains)
        self.worth = self.entries.row_sums(self.v)
        self.capacity, self.needed = scaled.capacity, self.worth - scaled.capacity
        self.base = 1 - self.entries.row_sums(self.g)

    def guess(self, pi: Array, t: Array) -> GroupDual:
        """Return dual weights near these for which each row's deletions are within its capacity."""
        of_rows = self.entries.of_rows
        pi = np.clip(pi, 0.0, self.c)
        deleted = np.clip(of_rows(pi) - t, 0.0, of_rows(pi))
        worth = self.entries.row_sums(deleted * self.v)
        deleted *= of_rows(np.minimum(1.0, self.capacity * pi / np.where(worth > 0, worth, np.inf)))
        return GroupDual(pi, of_rows(pi) - deleted)

    def pull(self, dual: GroupDual) -> Array:
        """Return sum_i y_i x_i t_i for each weight, and sum_i y_i pi_i for the intercept."""
        return np.concatenate([self.entries.column_sums(self.A * dual.t), self.U.T @ dual.pi])

    def losses(self, z: Array, price: Array) -> Array:
        """Return an upper bound on the loss of each row, from these prices."""
        entries = self.entries
        gain = self.A * entries.of_columns(z[: self.n]) - self.g
        rest = gain - entries.of_rows(price) * self.v
        losses = self.base - self.U @ z[self.n :] + self.capacity * price
        losses += entries.row_sums(np.maximum(rest, 0.0) - gain)
        return np.asarray(np.maximum(losses, 0.0))

    def worth_of(self, guess: GroupDual) -> float:
        """Return the dual value of gains and base."""
        return float(self.base @ guess.pi) + float(np.vdot(self.g, guess.t))


class Group(Constraints, Part):
    r"""Rows with slacks and multipliers of the loss (p, :math:`\pi`) and entries (q, t), :math:`\xi, \alpha`, prices.

    If the whole capacity must be spent, the price is free and has no multiplier.
    """

    def __init__(self, scaled: ScaledDeletions, rows: slice, X: Any, pi: Array):
        super().__init__(scaled, rows, X)
        entries, n, c, worth = self.entries, self.n, self.c, self.worth
        share = np.maximum(self.needed, 0.0) / np.where(worth > 0, worth, 1.0)
        t = entries.of_rows((share if self.is_spent else 0.5 * (1 + share)) * pi) + np.zeros_like(self.A)
        level = scaled.room / max(1, n)
        price = scaled.room / np.maximum(np.maximum(self.needed, 0.5 * worth), 1e-3 * scaled.capacity)
        alpha = self.g + entries.of_rows(price) * self.v + level
        owed = entries.row_sums(alpha) - self.needed * price + self.base
        xi = np.maximum(owed, 0.0) + scaled.room
        self.p = _Pairs(xi - owed, pi)
        self.xi = _Pairs(xi, c - pi)
        self.q = _Pairs(np.full_like(self.A, level), t)
        self.alpha = _Pairs(alpha, entries.of_rows(pi) - t)
        budget = entries.row_sums(t * self.v) - self.needed * pi
        self.price = _Pairs(price, np.zeros_like(pi) if self.is_spent else budget)
        self.pairs = [self.p, self.xi, self.q, self.alpha] + ([] if self.is_spent else [self.price])
        self.n_pairs = sum(pairs.slack.size for pairs in self.pairs)

    def dual(self) -> GroupDual:
        """Return the multipliers, moved so that each row's deletions are within its capacity despite rounding."""
        return self.guess(self.p.multiplier, self.q.multiplier)

    def add_curvature(self, M: Array, cross: Array) -> Array:
        entries, v = self.entries, self.v
        self.Dp, self.De, self.Dq, self.Da = self.p.ratio, self.xi.ratio, self.q.ratio, self.alpha.ratio
        self.Dl = self.price.ratio
        self.gi = 1 / (self.Dq + self.Da)
        self.rho = self.Dq * self.gi
        self.hv = self.Da * self.rho
        hA2 = self.hv * self.A
        hA2 *= self.A
        self.hv *= v
        hvv = self.hv * v
        total = entries.row_sums(hvv)
        self.phat = 1 / (1 / self.Dp + 1 / self.De + entries.row_sums(self.gi))
        self.kap = self.needed - entries.row_sums(self.rho * v)
        lam = self.Dl + total
        self.den = lam + self.phat * self.kap**2
        # 1 - h v^2 / lam without cancellation: at most one entry has most of the sum
        is_most = hvv > entries.of_rows(0.5 * total)
        others = self.Dl + entries.row_sums(np.where(is_most, 0.0, hvv))
        hA2 *= np.where(is_most, entries.of_rows(others), entries.of_rows(lam) - hvv)
        hA2 *= entries.of_rows(1 / lam)
        first, second = np.sqrt(self.phat * lam / self.den), 1 / np.sqrt(lam)
        left = entries.of_rows(self.kap / lam) * self.hv
        left += self.rho
        left *= self.A
        left *= entries.of_rows(first)
        U = self.U.toarray() if sparse.issparse(self.U) else self.U
        B = np.concatenate([entries.dense(left), U * first[:, None]], axis=1)
        M += B.T @ B
        if self.n:
            B = entries.dense(self.A * self.hv * entries.of_rows(second))
            cross += B.T @ B
        return entries.column_sums(hA2)

    def target(self, z: Array, mu: float, most: float) -> Array:
        entries, n, v = self.entries, self.n, self.v
        p, xi, q, alpha, price = self.p, self.xi, self.q, self.alpha, self.price
        self.lack_p = p.slack - (
            xi.slack + self.needed * price.slack - entries.row_sums(alpha.slack) + self.U @ z[n:] - self.base
        )
        self.lack_q = entries.of_columns(z[:n]) * self.A
        self.lack_q -= entries.of_rows(price.slack) * v
        self.lack_q += alpha.slack
        self.lack_q -= self.g
        np.subtract(q.slack, self.lack_q, out=self.lack_q)
        self.aim_p = p.aim(mu, most) + self.Dp * self.lack_p
        self.aim_xi = xi.aim(mu, most)
        self.aim_price = np.zeros_like(price.slack) if self.is_spent else price.aim(mu, most)
        self.aim_q = q.aim(mu, most) + self.Dq * self.lack_q
        self.aim_alpha = alpha.aim(mu, most)
        self.Ra = self.aim_q + self.aim_alpha
        self.Ra -= entries.of_rows(self.aim_p)
        self.Rx = self.aim_p + self.aim_xi - self.c
        worth = self.rho * self.Ra
        rl = self.needed * self.aim_p + self.aim_price + entries.row_sums((worth - self.aim_q) * v)
        self.k0 = self.Rx / self.De - entries.row_sums(self.gi * self.Ra)
        pk = self.phat * self.kap
        self.k1 = rl - pk * self.k0
        f0, f1 = self.phat * self.k0, self.k1 / self.den
        pulled = entries.of_rows(f1) * self.hv
        pulled += self.aim_q
        pulled -= worth
        pulled -= self.rho * entries.of_rows(f0 + pk * f1)
        pulled *= self.A
        return np.concatenate([entries.column_sums(pulled), self.U.T @ (self.aim_p - f0 - pk * f1)])

    def turn(self, dz: Array) -> tuple[float, float]:
        entries, n = self.entries, self.n
        moved = self.A * entries.of_columns(dz[:n])
        Rd = entries.row_sums(self.rho * moved) + self.U @ dz[n:]
        Sd = entries.row_sums(self.hv * moved)
        dprice = (self.k1 - (self.phat * self.kap * Rd - Sd)) / self.den
        T = self.phat * (self.k0 + Rd + self.kap * dprice)
        rest = self.Rx - T
        self.xi.dslack, self.xi.dmultiplier = rest / self.De, self.aim_xi - self.xi.multiplier - rest
        self.p.dslack, self.p.dmultiplier = T / self.Dp - self.lack_p, self.aim_p - self.p.multiplier - T
        self.price.dslack = dprice
        self.price.dmultiplier = (
            np.zeros_like(dprice) if self.is_spent else self.aim_price - self.price.multiplier - self.Dl * dprice
        )
        moved -= entries.of_rows(dprice) * self.v
        force = self.Ra + entries.of_rows(T)
        # both directions without subtracting almost equal numbers
        self.alpha.dslack = (force - self.Dq * moved) * self.gi
        self.alpha.dmultiplier = self.aim_alpha - self.alpha.multiplier - self.Da * self.alpha.dslack
        moved *= self.Da
        moved += force
        moved *= self.gi
        self.q.dmultiplier = self.aim_q - self.q.multiplier - self.Dq * moved
        self.q.dslack = moved - self.lack_q
        fits = [pairs.fits() for pairs in self.pairs]
        return min(primal for primal, _ in fits), min(dual for _, dual in fits)

    def product(self, primal: float, dual: float) -> float:
        return sum(pairs.product(primal, dual) for pairs in self.pairs)

    def move(self, primal: float, dual: float) -> None:
        for pairs in self.pairs:
            pairs.move(primal, dual)
        if self.is_spent:
            self.price.move(primal, dual)


class GroupDual(NamedTuple):
    """Dual weights of a group's rows and of its entries."""

    pi: Array
    t: Array
