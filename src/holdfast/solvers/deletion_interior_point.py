"""An interior point for linear classifiers whose features may be deleted, built on the structure of their linear programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError

from holdfast._core.problem import DeletionProgram, Problem
from holdfast._core.solution import DualGuess, Solution, Status
from holdfast._core.solver import Array, Report, Solver, silent
from holdfast._core.unit_cholesky import UnitCholesky

GROUP_ENTRIES, GROUP_ROWS = 1 << 17, 64
"""Entries of a group of rows, whose arrays are to stay in cache, and the fewest rows of one: products of blocks repay."""
CROWDED = 0.3
"""Share of nonzeros from which on zeros are entries like any other."""
SPARE = 0.3
"""Share of the tolerated gap at which to stop: the certificate must not fail for a trifle."""
NEAR = 10.0
"""The gap of the steps, as a multiple of the tolerated one, from which on bounds are computed."""
CENTRING = 0.1
"""Least share of the mean product that a step aims at: with less the dual stalls."""
CORRECTION = 5.0
"""Largest correction of a product, as a multiple of their mean: larger ones shorten the step."""
SHORT = 0.95
"""Share of the way to the boundary that a step goes."""
PATIENCE = 4
"""Steps without a better gap, or of next to no length, after which there is no progress."""
TINY = 1e-2
"""Steps, as shares of the whole, that count for none."""
LARGEST, WIDEST = 1.5e8, 20_000
"""Entries, in some 17 arrays of as many numbers (20 GB), and features, in a matrix to factorise, up to which to prefer it."""
CONTENT = 1e-9
"""Relative gap that counts as solved where all that floating point allows is asked for."""
JITTERS = np.append(0.0, 10.0 ** np.arange(-15, -3))
"""Added to the unit diagonal of a matrix, the first with which its factorisation does not fail."""


class DeletionInteriorPoint(Solver):
    r"""Mehrotra's predictor-corrector method on the linear (or quadratic) program of a `DeletionProgram`.

    With the price :math:`\lambda_i` of a row's budget, :math:`A_{ij} = y_i x_{ij}` and what is left to pay for each entry,
    :math:`\alpha_{ij}`, the program is (4) of Dekel and Shamir,

    .. math::
        \min \sum_i c_i \xi_i + \tfrac12 ridge\,|w|^2 \quad\text{subject to}\quad
        \xi_i + P \lambda_i - \sum_j \alpha_{ij} + y_i b \ge base, \quad
        A_{ij} w_j - \lambda_i v_j + \alpha_{ij} \ge gain_j, \quad \xi, \lambda, \alpha \ge 0,\ |w| \le limit,

    P being what the values sum to, less the capacity. Given w and b the rows have nothing to do with each other, and each is
    eliminated by itself: a step costs two updates of a matrix of the features, :math:`O(m n^2)`, and its factorisation. Entries
    that are 0 are never deleted and only add constants, so of sparse rows only the nonzeros are kept. The start is not used.
    """

    name = "deletion_interior_point"
    needs = (DeletionProgram,)
    takes = "It is for features that may be deleted. "

    def preference(self, work: dict[str, Any]) -> float:
        is_small = work["n_entries"] <= LARGEST and work["n_features"] <= WIDEST
        return 5.0 if is_small else 0.2

    def minimise(
        self, problem: Problem, start: Array, *, tol: float, max_iter: int, rough: bool = False, report: Report = silent
    ) -> Solution:
        program = problem.view(DeletionProgram)
        assert program is not None
        scaled = _Scaled(program)
        if program.fit_intercept and len(np.unique(scaled.signs)) < 2:
            return _one_class(scaled)
        z = np.zeros(len(scaled.order) + program.fit_intercept)
        groups = list(scaled.groups())
        parts: list[_Part] = [*groups, *scaled.limits(groups)]
        best, n_pairs = _Best(scaled, groups), sum(part.n_pairs for part in parts)
        status, n_iter, goal = Status.ITERATION_LIMIT, 0, max(SPARE * tol, 0.1 * CONTENT)
        idle = 0
        for n_iter in range(1, max_iter + 1):
            mu = sum(part.product(0.0, 0.0) for part in parts) / n_pairs
            if n_pairs * mu <= NEAR * goal * best.scale(z):
                best.see(z)
            report(f"deletion interior point {n_iter}: products {n_pairs * mu:.3g}, estimated gap {best.gap:.2e}")
            if best.gap <= goal:
                status = Status.SOLVED
                break
            length = 0.0 if best.age >= PATIENCE else _moved(scaled, parts, z, mu, n_pairs)
            idle = 0 if length > TINY else idle + 1
            if length == 0 or idle >= PATIENCE:
                status = Status.STALLED
                break
        if best.gap > goal:
            best.see(z)
        if best.gap <= max(tol, CONTENT):
            status = Status.SOLVED
        return best.solution(status, n_iter)


class _Scaled:
    """The program on rows of positive weight, weights of mean 1, gains and base that sum to 1, deletable features first."""

    def __init__(self, program: DeletionProgram):
        self.program = program
        self.kept = np.flatnonzero(program.weights > 0)
        self.rows = program.rows if len(self.kept) == len(program.weights) else program.rows.take(self.kept)
        self.signs = program.signs[self.kept].astype(np.float64)
        weights = program.weights[self.kept]
        self.unit = float(weights.mean())
        self.weights = weights / self.unit
        self.size = program.base + float(program.gains.sum())
        is_deletable = np.isfinite(program.values) & (program.capacity > 0)
        self.order = np.argsort(~is_deletable, kind="stable")
        self.n_deletable = int(np.count_nonzero(is_deletable))
        self.is_reordered = not np.array_equal(self.order, np.arange(len(self.order)))
        # with a capacity of 0 nothing can be deleted, and any positive one will do for prices
        worth = program.values[self.order[: self.n_deletable]]
        unit = float(worth.mean()) if self.n_deletable else 1.0
        self.values, self.capacity = worth / unit, program.capacity / unit or 1.0
        self.gains = program.gains[self.order[: self.n_deletable]] / self.size
        self.is_spent = program.is_spent and program.capacity > 0 and self.n_deletable > 0
        self.limit = program.limit / self.size
        self.ridge = program.ridge * self.size / self.unit
        self.floor = program.floor / (self.unit * self.size)

    @cached_property
    def first_slopes(self) -> Array:
        """Dual weights of the rows to begin with, the same for both classes together where there is an intercept."""
        totals = [float(self.weights[self.signs == sign].sum()) for sign in (-1.0, 1.0)]
        shares = np.where(self.signs > 0, 1 / (totals[1] or 1.0), 1 / (totals[0] or 1.0))
        balance = min(totals) * shares if self.program.fit_intercept else np.ones(len(self.signs))
        return np.asarray(0.5 * balance * self.weights)

    @cached_property
    def room(self) -> float:
        """The slack of a row to begin with: as much as its share of what the pull of all rows costs in the dual."""
        pull = self.rows.transpose_dot(self.signs * self.first_slopes)
        held = float(pull @ pull) / self.ridge if self.ridge > 0 else np.inf
        return max(1.0, min(self.limit * float(np.sum(np.abs(pull))), held) / float(self.weights.sum()))

    def groups(self) -> Iterator[_Group]:
        """Yield the rows in groups."""
        n = len(self.order)
        size = max(GROUP_ROWS, GROUP_ENTRIES // max(1, n))
        for rows, block in self.rows.blocks():
            for start in range(rows.start, rows.stop, size):
                part = slice(start, min(start + size, rows.stop))
                X = block[start - rows.start : part.stop - rows.start]
                yield _Group(self, part, X, self.first_slopes[part])

    def limits(self, groups: Sequence[_Group]) -> list[_Part]:
        """Return what keeps weights within the limit, if there is one."""
        if not np.isfinite(self.limit):
            return []
        return [
            _Limits(
                self.limit,
                _total(group.pull(group.dual()) for group in groups)[: len(self.order)],
                float(self.weights.sum()),
            )
        ]

    def clipped(self, z: Array) -> Array:
        """Return parameters whose weights are within the limit."""
        n = len(self.order)
        return np.append(np.clip(z[:n], -self.limit, self.limit), z[n:])

    def stated(self, z: Array) -> Array:
        """Return parameters in the order and the units of the program."""
        found = self.size * z
        found[self.order] = self.size * z[: len(self.order)]
        return found


def _one_class(scaled: _Scaled) -> Solution:
    """Return the solution for rows of one class: an intercept that leaves no loss."""
    z = np.zeros(len(scaled.order) + 1)
    z[-1] = scaled.signs[0] if len(scaled.signs) else 0.0
    n_samples, n = len(scaled.program.weights), len(scaled.order)
    points = scaled.program.points(sparse.csr_array((n_samples, n)))
    dual = DualGuess(np.zeros(n_samples), np.zeros(n), np.zeros(n_samples), points=points)
    name = DeletionInteriorPoint.name
    return Solution(scaled.stated(z), Status.SOLVED, 0.0, 1, name, lower_bound=0.0, dual=dual)


class _Entries(ABC):
    """Where the deletable entries of some rows lie; what is known of each is an array like `A`."""

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
        """Return the entries as a matrix that stores no others."""


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
        self.owners = np.repeat(np.arange(A.shape[0]), self.counts)

    def of_columns(self, v: Array) -> Array:
        return v[self.columns]

    def of_rows(self, r: Array) -> Array:
        return np.repeat(r, self.counts)

    def row_sums(self, e: Array) -> Array:
        return np.asarray(np.bincount(self.owners, e, self.shape[0]), dtype=np.float64)

    def column_sums(self, e: Array) -> Array:
        return np.asarray(np.bincount(self.columns, e, self.shape[1]), dtype=np.float64)

    def dense(self, e: Array) -> Array:
        return np.asarray(self.matrix(e).toarray())

    def matrix(self, e: Array) -> Any:
        return sparse.csr_array((e, self.columns, self.starts), shape=self.shape)


def _entries(X: Any, signs: Array, every: bool) -> _Entries:
    """Return the entries of y_i x_i, all of them where most are not 0 or `every` one counts."""
    if every or (X.nnz if sparse.issparse(X) else np.count_nonzero(X)) > CROWDED * X.shape[0] * X.shape[1]:
        return _AllEntries(np.multiply(signs[:, None], X.toarray() if sparse.issparse(X) else X, dtype=np.float64))
    A = sparse.csr_array(X).astype(np.float64)
    A.sum_duplicates()
    A.data = A.data * np.repeat(signs, np.diff(A.indptr))
    A.eliminate_zeros()
    return _SomeEntries(A)


class _Part(ABC):
    """Some constraints with their slacks and multipliers; `z` are weights, deletable ones first, and the intercept."""

    n_pairs: int

    @abstractmethod
    def add_curvature(self, M: Array, cross: Array) -> Array:
        """Add to M the squares and to `cross` those to be subtracted; return the diagonal in place of the latter."""

    @abstractmethod
    def target(self, z: Array, mu: float, most: float) -> Array:
        """Return its share of the right-hand side for products `mu`, less those of the last direction up to `most`."""

    @abstractmethod
    def turn(self, dz: Array) -> tuple[float, float]:
        """Set the direction that belongs to dz and return how often it fits in, primal and dual."""

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
        """Return the multipliers that give the products `mu` at these slacks, corrected by `most` at most."""
        return (mu - np.clip(self.dslack * self.dmultiplier, -most, most) if most > 0 else mu) / self.slack

    def fits(self) -> tuple[float, float]:
        """Return how often the direction fits in."""
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


class _Limits(_Part):
    """The limits of the weights."""

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


class _Group(_Part):
    r"""Some rows: slacks of the loss (p, multiplier :math:`\pi`) and of each entry (q, t), :math:`\xi, \alpha` and prices.

    U are the columns that nobody deletes, the intercept's last. Where the whole capacity is spent the price is free: it has no
    multiplier.
    """

    def __init__(self, scaled: _Scaled, rows: slice, X: Any, pi: Array):
        n, y, c = scaled.n_deletable, scaled.signs[rows], scaled.weights[rows]
        if scaled.is_reordered:
            X = X[:, scaled.order]
        self.entries = entries = _entries(X[:, :n], y, scaled.is_spent)
        self.A, self.n, self.c, self.is_spent = entries.A, n, c, scaled.is_spent
        self.U: Any = y[:, None] if scaled.program.fit_intercept else np.zeros((len(y), 0))
        if X.shape[1] > n:
            fixed = sparse.csr_array(X[:, n:]).astype(np.float64)
            self.U = sparse.hstack([sparse.diags_array(y) @ fixed, self.U], format="csr")
        self.v, self.g = entries.of_columns(scaled.values), entries.of_columns(scaled.gains)
        worth = entries.row_sums(self.v)
        self.capacity, self.needed = scaled.capacity, worth - scaled.capacity
        self.base = 1 - entries.row_sums(self.g)
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

    def dual(self) -> _Dual:
        """Return the multipliers, moved to where each row deletes no more than it may: steps leave that to rounding."""
        of_rows = self.entries.of_rows
        pi = np.clip(self.p.multiplier, 0.0, self.c)
        deleted = np.clip(of_rows(pi) - self.q.multiplier, 0.0, of_rows(pi))
        worth = self.entries.row_sums(deleted * self.v)
        deleted *= of_rows(np.minimum(1.0, self.capacity * pi / np.where(worth > 0, worth, np.inf)))
        return _Dual(pi, of_rows(pi) - deleted)

    def pull(self, dual: _Dual) -> Array:
        """Return sum_i y_i x_i t_i by weight, and for the intercept sum_i y_i pi_i."""
        return np.concatenate([self.entries.column_sums(self.A * dual.t), self.U.T @ dual.pi])

    def bounds(self, z: Array, guess: _Dual) -> tuple[float, float]:
        """Return what the losses are at most, by these prices, and what gains and base are worth in the dual."""
        entries, price = self.entries, self.price.slack
        gain = self.A * entries.of_columns(z[: self.n]) - self.g
        rest = gain - entries.of_rows(price) * self.v
        losses = self.base - self.U @ z[self.n :] + self.capacity * price
        losses += entries.row_sums(np.maximum(rest, 0.0) - gain)
        dual = float(self.base @ guess.pi) + float(np.vdot(self.g, guess.t))
        return float(self.c @ np.maximum(losses, 0.0)), dual

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
        # each without the subtraction of almost equal numbers
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


class _Dual(NamedTuple):
    """Dual weights of a group's rows and of its entries."""

    pi: Array
    t: Array


@dataclass
class _Best:
    """The best parameters and the best dual weights so far."""

    scaled: _Scaled
    groups: Sequence[_Group]
    z: Array | None = None
    dual: Sequence[_Dual] = ()
    value: float = np.inf
    bound: float = -np.inf
    age: int = 0

    def see(self, z: Array) -> None:
        """Take notice of the point."""
        scaled, before = self.scaled, self.gap
        z = scaled.clipped(z)
        w = z[: len(scaled.order)]
        guesses = [group.dual() for group in self.groups]
        values, duals = zip(
            *(group.bounds(z, guess) for group, guess in zip(self.groups, guesses, strict=True)), strict=True
        )
        value = sum(values) + 0.5 * scaled.ridge * float(w @ w)
        pull = _total(group.pull(guess) for group, guess in zip(self.groups, guesses, strict=True))[: len(w)]
        held = (
            np.copysign(scaled.limit, pull)
            if scaled.ridge == 0
            else np.clip(pull / scaled.ridge, -scaled.limit, scaled.limit)
        )
        bound = sum(duals) + 0.5 * scaled.ridge * float(held @ held) - float(pull @ held)
        if value < self.value or self.z is None:
            self.value, self.z = value, z
        # a bound above a value attained is none: rounding has taken these dual weights out of their set
        if self.bound < bound <= self.value or not self.dual:
            self.bound, self.dual = bound, guesses
        self.age = 0 if self.gap < 0.9 * before or not np.isfinite(before) else self.age + 1

    @property
    def gap(self) -> float:
        """The relative gap."""
        return (self.value - self.bound) / max(self.value, self.scaled.floor) if self.dual else np.inf

    def scale(self, z: Array) -> float:
        """Return what the gap will be measured against, nearly."""
        w = z[: len(self.scaled.order)]
        losses = sum(float(group.c @ group.xi.slack) for group in self.groups)
        return max(losses + 0.5 * self.scaled.ridge * float(w @ w), self.scaled.floor)

    def solution(self, status: Status, n_iter: int) -> Solution:
        """Return it as the program states it."""
        scaled, program = self.scaled, self.scaled.program
        assert self.z is not None
        n_samples, n = len(program.weights), len(scaled.order)
        slopes = np.zeros(n_samples)
        slopes[scaled.kept] = np.concatenate([dual.pi for dual in self.dual]) / scaled.weights
        deleted = [
            group.entries.matrix(1 - t / group.entries.of_rows(pi))
            for group, (pi, t) in zip(self.groups, self.dual, strict=True)
        ]
        points = program.points(_placed(deleted, scaled.kept, scaled.order[: scaled.n_deletable], (n_samples, n)))
        parameters = scaled.stated(self.z)
        unit = scaled.unit * scaled.size
        dual = DualGuess(slopes, parameters[:n], np.zeros(n_samples), points=points)
        name = DeletionInteriorPoint.name
        return Solution(parameters, status, self.value * unit, n_iter, name, self.bound * unit, dual)


def _placed(parts: Sequence[Any], rows: NDArray[np.intp], columns: NDArray[np.intp], shape: tuple[int, int]) -> Any:
    """Return the parts, one below the other, as these rows and columns of a matrix of zeros."""
    if not any(map(sparse.issparse, parts)):
        found = np.zeros(shape)
        found[rows[:, None], columns] = np.concatenate(parts)
        return found
    stacked = sparse.vstack([sparse.coo_array(part) for part in parts], format="coo")
    return sparse.csr_array((stacked.data, (rows[stacked.row], columns[stacked.col])), shape=shape)


def _total(parts: Iterable[Array]) -> Array:
    return reduce(np.add, parts)


def _moved(scaled: _Scaled, parts: Sequence[_Part], z: Array, mu: float, n_pairs: int) -> float:
    """Take a step: Mehrotra's predictor and corrector; return which share of it was taken, 0 where floating point fails."""
    n, n_weights = scaled.n_deletable, len(scaled.order)
    M, cross = np.zeros((len(z), len(z))), np.zeros((n, n))
    diagonal = np.zeros(len(z))
    diagonal[:n_weights] = scaled.ridge
    for part in parts:
        own = part.add_curvature(M, cross)
        diagonal[: len(own)] += own
    cross.flat[:: n + 1] = 0.0
    M[:n, :n] -= cross
    M.flat[:: len(z) + 1] += diagonal
    try:
        factor = UnitCholesky(M, JITTERS)
    except LinAlgError:
        return 0.0

    def turned(aim: float, most: float) -> tuple[Array, float, float]:
        rhs = _total(part.target(z, aim, most) for part in parts)
        rhs[:n_weights] -= scaled.ridge * z[:n_weights]
        dz = factor.solve(rhs)
        dz += factor.solve(rhs - M @ dz)
        fits = [part.turn(dz) for part in parts]
        return dz, min(primal for primal, _ in fits), min(dual for _, dual in fits)

    _, primal, dual = turned(0.0, 0.0)
    reached = sum(part.product(min(1.0, primal), min(1.0, dual)) for part in parts) / n_pairs
    dz, primal, dual = turned(mu * max((reached / mu) ** 3, CENTRING), CORRECTION * mu)
    if not np.all(np.isfinite(dz)):
        return 0.0
    if scaled.ridge > 0:
        primal = dual = min(primal, dual)
    primal, dual = min(1.0, SHORT * primal), min(1.0, SHORT * dual)
    z += primal * dz
    for part in parts:
        part.move(primal, dual)
    return max(primal, dual)
