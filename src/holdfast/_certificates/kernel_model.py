"""Certificate models of RBF kernels: kernel machines, and linear models of Nystroem features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from holdfast._certificates.curved_models import Around, CurvedModel, longest, moved_by, units_of
from holdfast._certificates.decisions import Decision
from holdfast._certificates.models import LAST_BITS, TINY, lengths, quotients, stretch
from holdfast._certificates.rounded_map import RoundedMap
from holdfast._core.arithmetic import dense
from holdfast._core.rounding import Array, gamma
from holdfast._core.row_sets import RowSets
from holdfast.features.carrying import extents
from holdfast.features.gram import rbf_values
from holdfast.features.nystroem_sets import EPS, Distances, Landmarks
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.images import image_of
from holdfast.uncertainty.minkowski import BoundSum
from holdfast.uncertainty.polytopes import CommonBox
from holdfast.uncertainty.row_boxes import RowBoxes

EXTENDED = np.longdouble
SUM_ROUNDING = 1.01
"""If rounding enlarges the bound on a norm by more than this factor, it is computed again in extended precision."""


@dataclass(frozen=True)
class KernelAround(Around):
    r"""Bounds on combinations of scores of an RBF kernel around rows z, for moves in sets with l2 length at most g.

    :math:`k_z` and its derivatives are orthogonal in the feature space of the kernel. So with
    :math:`r = 2\gamma |d|^2`, :math:`e = e^{-r/2}` and F = C f without intercepts,

    .. math:: F(z + d) \ge e\,(F(z) + d^\top \nabla F(z)) - \sqrt{1 - e^2 (1 + r)}\,
              \sqrt{\|F\|_H^2 - F(z)^2 - |\nabla F(z)|^2 / 2\gamma},

    where the worst :math:`d^\top \nabla F` is the support of the set. The second bound uses no derivatives: F(z + d) is
    :math:`\|F\|_H` times the cosine of an angle that grows by at most :math:`\arccos e`. It is never worse than
    :math:`\|F\|_H \sqrt{2 - 2e}`. The third bound, good for narrow kernels, bounds each kernel value by the distance to
    its centre.
    """

    units: Array
    """Powers of 2 by which all numbers of the combinations below are divided, (n_combinations,)."""
    distances: Distances
    """The distances to the centres."""
    weights: Array
    """The weights of the centres, shape (n_combinations, n_centres)."""
    sizes: Array
    """The sums of absolute weights, shape (n_combinations,)."""
    norms: Array
    """Upper bounds on |F|_H, shape (n_combinations,)."""
    kernel: Array
    """The kernel values, shape (n_samples, n_centres)."""
    reach: Array
    """g, the l2 length of the longest move, shape (n_samples,)."""
    values: Array
    """F(z), shape (n_samples, n_combinations), like `slopes` and `left`."""
    slopes: Array
    """Upper bounds on the length of the gradient."""
    pushes: Array
    """Upper bounds on the fall and the rise of d'grad F, shape (2, n_samples, n_combinations)."""
    left: Array
    """Upper bounds on the last square root of the formula."""
    doubts: Array
    """Bounds on the rounding error of F(z), shape (n_combinations,)."""

    n_bounds = 2

    def take(self, rows: Any) -> Self:
        own = ("kernel", "reach", "values", "slopes", "left")
        some = {name: getattr(self, name)[rows] for name in own}
        return replace(self, distances=self.distances.take(rows), pushes=self.pushes[:, rows], **some)

    def falls(self, number: int, signs: Array, factors: Array) -> Array:
        if not np.any(self.reach):
            return np.zeros(self.values.shape)
        return self.units * (self._by_intervals if number else self._by_slopes)(signs, factors)

    def _by_slopes(self, signs: Array, factors: Array) -> Array:
        """Return the smaller of the bounds by derivatives and by the angle."""
        width, g = self.distances.gamma, (factors * self.reach)[:, None]
        # for r > 1e4, exp(-r / 2) is 0 in float64, and the bound is constant
        r = np.minimum(2 * width * np.square(g), 1e4)
        # expm1 keeps 1 - e accurate for small moves, which decide most certificates
        lost, ahead = -np.expm1(-0.5 * r), signs * self.values
        # the term with the gradient grows like |d| exp(-width |d|^2), whose maximum is at |d| = 1 / sqrt(2 width)
        most = np.minimum(r, 1.0)
        top = np.sqrt(most / (2 * width)) * np.exp(-0.5 * most) * self.slopes
        push = factors[:, None] * np.where(signs > 0, *self.pushes)
        # the formula holds for one length of d, but d may have any length up to g. With positive parts the fall
        # increases with the length, so the longest move bounds all others
        along = np.minimum(
            lost * np.maximum(ahead - push, 0.0) + push, lost * np.maximum(ahead, 0.0) + np.minimum(push, top)
        )
        # 1 - e^2 (1 + r) cancels for small r; there the Taylor bound r^2 / 2 is the smaller one
        missed = np.minimum(0.5 * np.square(r), -np.expm1(-r) - r * np.exp(-r) + 8 * EPS * r)
        by_slope = along + np.sqrt(missed) * self.left
        # F(z) = |F| cos(phi) falls to |F| cos(phi + theta) with cos(theta) = e. A lower bound on |F(z)| gives an upper
        # bound on the sine, hence `_sure`
        sides = np.sqrt(np.maximum(np.square(self.norms) - np.square(self._sure(self.values)), 0.0))
        # valid if phi + theta < pi; a wider angle may reach -|F|
        is_short = (1 - lost) * self.norms + ahead > 0
        by_angle = np.where(is_short, lost * ahead + np.sqrt(-np.expm1(-r)) * sides, self.norms + ahead)
        return np.minimum(by_slope, by_angle) * (1 + LAST_BITS) + self.doubts

    def _by_intervals(self, signs: Array, factors: Array) -> Array:
        """Return the falls of the combinations if each kernel value independently takes its worst value."""
        low, high = self.distances.ranges(factors * self.reach, factors)
        below, above = np.maximum(self.kernel - low, 0.0), np.maximum(high - self.kernel, 0.0)
        up, down = np.maximum(self.weights, 0.0).T, np.maximum(-self.weights, 0.0).T
        falls = np.where(signs > 0, below @ up + above @ down, below @ down + above @ up)
        return falls + gamma(len(up) + 8 * self.distances.rows.shape[1] + 40) * self.sizes + self.doubts

    def _sure(self, values: Array) -> Array:
        """Return lower bounds on the absolute values, less rounding errors."""
        return np.maximum(np.abs(values) - self.doubts, 0.0)


class KernelModel(CurvedModel):
    r"""Scores :math:`f(x) = \sum_i a_i k(x_i, z) + b` with :math:`k(z, z') = e^{-\gamma \|z - z'\|^2}`, z an affine map of x.

    For any two points, :math:`|f(z) - f(z')| \le \|f\|_H \sqrt{2 - 2 e^{-\gamma \|z - z'\|^2}}` with
    :math:`\|f\|_H^2 = a^\top K a`. Around a row, :class:`KernelAround` is tighter. All bounds are valid, none is exact.

    Parameters
    ----------
    centres : ndarray of shape (n_centres, n_inputs)
    width : float
        gamma.
    output : RoundedMap
        Maps kernel values to scores: a and b.
    decision : Decision
    map : RoundedMap, default=None
        Maps x to z; None if they are the same.
    is_direct : bool, default=False
        Whether the model computes squared distances from differences of entries, not from products of rows.
    """

    method = "RBF kernel: first order and norm in the kernel's space, intervals of its values"

    def __init__(
        self,
        centres: Array,
        width: float,
        output: RoundedMap,
        decision: Decision,
        map: RoundedMap | None = None,
        *,
        is_direct: bool = False,
    ):
        self.centres, self.width, self.output, self.decision, self.map = centres, float(width), output, decision, map
        self.n_features, self.is_direct = centres.shape[1] if map is None else map.n_features, is_direct

    @property
    def n_columns(self) -> int:
        return max(super().n_columns, len(self.centres))

    def after(self, steps: AffineMap) -> KernelModel:
        n = self.centres.shape[1]
        same = RoundedMap(np.eye(n), np.zeros(n)) if self.map is None else self.map
        made = KernelModel(self.centres, self.width, self.output, self.decision, same.after(steps))
        made.is_direct = self.is_direct
        return made

    def _error(self, dtype: Any) -> Array:
        r"""Return a bound on the rounding error of each score at any row, shape (n_scores,).

        A squared distance computed as :math:`\|z\|^2 + \|x\|^2 - 2 z^\top x` has an error relative to
        :math:`\|z\|^2 + \|x\|^2`. Far from all centres this is small compared with the distance, and the kernel is 0.
        Near a centre it is relative to the centre's own size. From differences, the error is relative to the squared
        distance.
        """
        # at distance d, the squares have an error of eta (|z| + |x|)^2 <= eta (8 |z|^2 + 2 d^2). The second term is
        # harmless, as gamma d^2 exp(-gamma d^2) < 1. If 20 eta spread < 1, the first term changes the kernel by less
        # than 10 eta spread. The bound below allows at least twice as much
        eta = gamma(self.centres.shape[1] + 8, self.output.kind(dtype))
        spread = self.width * float(np.max(np.sum(np.square(self.centres), axis=1), initial=0.0))
        spread = 0.0 if self.is_direct else spread
        each = eta * (20 * spread + 32) if eta * 20 * spread < 1 else np.inf
        total = self.output.sizes.sum(axis=1)
        return each * total + self.output.gamma(dtype) * (2 * total + self.output.offset_sizes)

    @cached_property
    def _gram(self) -> Array:
        """Inner products of the scores in the feature space of the kernel, shape (n_scores, n_scores)."""
        return self._products(lambda part: rbf_values(part, self.centres, self.width), np.float64)

    @cached_property
    def _fine_gram(self) -> Any:
        """The same in extended precision, if the platform has it, as large weights of Nystroem features cancel."""
        centres, squares = (
            self.centres.astype(EXTENDED),
            lambda part: np.sum(np.square(part[:, None] - centres), axis=2),
        )
        return self._products(lambda part: np.exp(-EXTENDED(self.width) * squares(part.astype(EXTENDED))), EXTENDED)

    def _products(self, kernel: Callable[[Array], Any], dtype: Any) -> Any:
        a, size = self.output.coef.astype(dtype), max(1, int(1e7 / self.centres.size))
        parts = (slice(i, i + size) for i in range(0, len(self.centres), size))
        return np.asarray(sum(a[:, part] @ (kernel(self.centres[part]) @ a.T) for part in parts))

    def norms(self, C: Array) -> Array:
        """Return upper bounds on the norms |C f|_H of combinations of scores, shape (n_combinations,)."""
        largest = np.abs(C) @ self.output.sizes.sum(axis=1)
        found = self._norms(C, largest, self._gram, np.float64)
        # float64 is enough unless the bound on its rounding dominates the norm
        if np.any(found > SUM_ROUNDING * self._norms(C, 0 * largest, self._gram, np.float64)):
            found = np.minimum(found, self._norms(C, largest, self._fine_gram, EXTENDED))
        # if squared weights underflow, the sum of absolute weights is a bound, as the kernel is at most 1
        return np.where(largest < np.sqrt(TINY) / gamma(2), largest, found + self.output.gamma(np.float64) * largest)

    def _norms(self, C: Array, largest: Array, gram: Any, dtype: Any) -> Array:
        # each kernel value is at most 1; computed from differences, its error is below this share of 1
        share = gamma(2 * len(self.centres) + 2 * len(gram) + self.centres.shape[1] + 10, np.finfo(dtype))
        squares = np.maximum(np.einsum("ri,ij,rj->r", C, gram, C), 0.0) + 2 * share * np.square(largest)
        return np.asarray(np.sqrt(squares), dtype=np.float64) * (1 + LAST_BITS)

    def _inner(self, X: Any) -> tuple[Array, Array | None]:
        """Return z, and bounds on its rounding errors (None without steps)."""
        Z, blur = (X, None) if self.map is None else self.map(X)
        return dense(Z).astype(np.float64, copy=False), blur

    def scores(self, X: Any) -> tuple[Array, Array]:
        Z, blur = self._inner(X)
        values = rbf_values(Z, self.centres, self.width) @ self.output.coef.T + self.output.intercept
        errors = np.broadcast_to(self._error(X.dtype), values.shape)
        if blur is not None:
            # f is Lipschitz in z with constant sqrt(2 gamma) |f|_H, which bounds the effect of errors of z on scores
            steepness = np.sqrt(2 * self.width) * self.norms(np.eye(values.shape[1]))
            errors = errors + np.outer(lengths(blur), steepness) * (1 + 1e-9)
        return values, errors

    def reach(self, norm: float, weights: Array, dtype: Any) -> Array:
        longest = stretch(self.map, weights, self.n_features, norm, dtype)
        table = self.decision.table(self.norms)
        return np.stack([table, np.full_like(table, longest)], axis=-1)

    def radii(self, leads: Array, reach: Array) -> Array:
        # solve |f|_H sqrt(2 - 2 exp(-gamma d^2)) = lead for d; if the share is 1 or more, there is no solution
        shares = 0.5 * np.square(quotients(leads, reach[..., 0])) * (1 - LAST_BITS)
        with np.errstate(divide="ignore"):
            distances = np.sqrt(-np.log1p(-np.minimum(shares, 1.0)) / self.width)
        return quotients(distances, reach[..., 1])

    def falls(self, below: Any, above: Any, C: Array, dtype: Any) -> Array:
        farthest = np.maximum(dense(below), dense(above))
        if self.map is not None:
            farthest = farthest @ (np.abs(self.map.coef) + 2 * self.map.gamma(dtype) * self.map.sizes).T
        distances = lengths(farthest) * (1 + gamma(self.n_features + farthest.shape[1] + 4))
        shares = np.sqrt(-2 * np.expm1(-self.width * np.square(distances))) * (1 + LAST_BITS)
        return np.outer(shares, self.norms(C))

    def _inner_sets(self, sets: RowSets, n_samples: int, weights: Array, dtype: Any) -> RowSets:
        """Return the sets in which z moves, enlarged by rounding errors."""
        if self.map is None:
            return sets if np.all(weights == 1) else image_of(sets, AffineMap.diagonal(weights))
        A, growth = moved_by(self.map, sets, n_samples, weights, dtype)
        return BoundSum([image_of(sets, AffineMap(A)), CommonBox(growth[0]) if sets.is_common else RowBoxes(growth)])

    def around(self, X: Any, sets: RowSets, weights: Array, C: Array) -> KernelAround:
        Z, _ = self._inner(X)
        (n, d), m = Z.shape, len(self.centres)
        inner = self._inner_sets(sets, n, weights, X.dtype)
        reach = longest(inner, np.eye(d), np.maximum(*extents(inner, (n, d))))
        sizes = np.abs(C) @ self.output.sizes.sum(axis=1)
        units = units_of(sizes)
        sizes, norms = sizes / units, self.norms(C) / units
        kernel, A = rbf_values(Z, self.centres, self.width), C @ self.output.coef / units[:, None]
        values = kernel @ A.T
        doubts = (2 * self.output.gamma(X.dtype) + gamma(m + d + 40)) * sizes
        gradients, blur = self._slopes(Z, kernel, A)
        steep = lengths(gradients.reshape(-1, d)).reshape(len(C), n)
        blur = blur + 2 * gamma(2 * d + 40) * steep
        # an error `blur` of the gradient changes its product with d by at most |d| blur
        pushes = np.array([[inner.supports_at(sign * G) for G in gradients] for sign in (-1.0, 1.0)]) + reach * blur
        slopes = np.maximum(steep - blur, 0.0).T
        squares = np.square(norms) - np.square(np.maximum(np.abs(values) - doubts, 0.0)) - slopes**2 / (2 * self.width)
        # an upper bound: the norm is an upper bound, value and slope are lower bounds. The difference cancels if F is
        # nearly a multiple of the kernel at z, so the rounding errors of its terms are added
        left = np.sqrt(np.maximum(squares, 0.0) + 16 * EPS * np.square(norms))
        return KernelAround(
            units=units,
            distances=Landmarks(self.centres, self.width, np.zeros((0, m))).around(Z, inner),
            weights=A,
            sizes=sizes,
            norms=norms,
            kernel=kernel,
            reach=reach,
            values=values,
            slopes=(steep + blur).T,
            pushes=pushes.transpose(0, 2, 1),
            left=left,
            doubts=doubts,
        )

    def _slopes(self, Z: Array, kernel: Array, A: Array) -> tuple[Array, Array]:
        """Return the gradients of kernel sums with weights A, and bounds on the l2 norms of their errors.

        The gradients have shape (n_combinations, n_samples, n_inputs). Rows and centres are taken relative to the mean
        of the centres, so that data far from 0 stay accurate.
        """
        middle = self.centres.mean(axis=0)
        rows, centres = Z - middle, self.centres - middle
        away, far = lengths(rows), lengths(centres)
        share = gamma(len(centres) + Z.shape[1] + 40)
        found, errors = np.empty((len(A), *Z.shape)), np.empty((len(A), len(Z)))
        for k, a in enumerate(A):
            pull = kernel * a
            found[k] = 2 * self.width * (pull @ centres - pull.sum(axis=1, keepdims=True) * rows)
            size = np.abs(pull)
            # a value e^(-x) has an error of x e^(-x) times `share`; times the distance, it is bounded as x^1.5 e^(-x) <
            # 1
            errors[k] = 2 * self.width * share * (size @ far + size.sum(axis=1) * away)
            errors[k] += 2 * np.sqrt(self.width) * share * np.sum(np.abs(a))
        return found, errors

    def gradients(self, X: Any, C: Array) -> Array:
        Z, _ = self._inner(X)
        pull = (C @ self.output.coef) * rbf_values(Z, self.centres, self.width)
        slopes = 2 * self.width * (pull @ self.centres - pull.sum(axis=1, keepdims=True) * Z)
        return slopes if self.map is None else slopes @ self.map.coef
