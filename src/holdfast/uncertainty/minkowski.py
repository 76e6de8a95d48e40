"""Minkowski sums of sets: for each row, all sums of a point of the first set, a point of the second, and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holdfast._core.arithmetic import norm, ratio
from holdfast._core.dual_norm import approaches
from holdfast._core.programs import SupportProgram
from holdfast._core.row_forms import Array, IntervalForm, RowHessians
from holdfast._core.row_sets import RowSets
from holdfast._core.tolerances import ROUNDING
from holdfast.uncertainty.polytopes import CommonBox
from holdfast.uncertainty.row_boxes import RowBoxes

SPLIT = 1e-6
"""Relative accuracy of the test whether a point is in a sum."""
SWEEPS = 50
"""Limit on the rounds of a search in which the parts in turn cover as much of a target as they can."""


class _Split(NamedTuple):
    """A split of a target, up to a small remainder, into one share for each part."""

    w: Array
    """The direction whose maximizers give the shares."""
    shares: list[Array]
    least: float
    """A lower bound on the multiple of the budgets that any split needs."""


def sum_of(sets: Sequence[RowSets]) -> RowSets:
    """Return the sum of sets of the same rows. All boxes are merged into one; common half-widths stay stored once."""
    parts = [summand for part in sets for summand in part.summands()]
    # the sum of boxes is a box, whose shares are exact; any other sum has to search for the best split of a target
    forms = [form for part in parts if (form := part.interval_form()) is not None]
    if len(forms) > 1:
        total = reduce(IntervalForm.plus, forms)
        is_common = total.own is None and total.centre is None
        boxes = CommonBox(total.common) if is_common else RowBoxes.of(total)
        parts = [*(part for part in parts if part.interval_form() is None), boxes]
    return BoundSum(parts) if len(parts) > 1 else parts[0]


class BoundSum(RowSets):
    r"""The sums :math:`A_i + B_i + \dots` of several sets of the same rows; their supports add up."""

    def __init__(self, parts: Sequence[RowSets]):
        parts = [summand for part in parts for summand in part.summands()]
        # cross terms of two sets are cheap if the first one is common
        self.parts = sorted(parts, key=lambda part: not part.is_common)
        self.is_common = all(part.is_common for part in parts)
        self.is_isotropic = all(part.is_isotropic for part in parts)
        self.is_symmetric = all(part.is_symmetric for part in parts)
        self.is_sublinear = all(part.is_sublinear for part in parts)
        self.is_full = any(part.is_full for part in parts)
        # where the support of one part is 0, its kink remains in the sum even if the other supports are not 0
        self.is_smooth = all(part.is_smooth and part.is_full for part in parts)

    def summands(self) -> list[RowSets]:
        return self.parts

    def support(self, w: Array) -> Array:
        return np.asarray(sum(part.support(w) for part in self.parts))

    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        return np.asarray(sum(part.maximizer(w, rows) for part in self.parts))

    def adjoint(self, w: Array, r: Array) -> Array:
        return np.asarray(sum(part.adjoint(w, r) for part in self.parts))

    def supports_at(self, W: Array) -> Array:
        return np.asarray(sum(part.supports_at(W) for part in self.parts))

    def maximizers_at(self, W: Array) -> Array:
        return np.asarray(sum(part.maximizers_at(W) for part in self.parts))

    def hessians_at(self, W: Array) -> RowHessians:
        return reduce(RowHessians.plus, [part.hessians_at(W) for part in self.parts])

    def stretch(self, A: Array) -> Array:
        return np.asarray(sum(part.stretch(A) for part in self.parts))

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        rows = [self if self.is_common else self.take(slice(i, i + 1)) for i in range(len(points))]
        return np.array([row._reaches(point, 1 + slack) for row, point in zip(rows, points, strict=True)])

    def _reaches(self, target: Array, size: float) -> bool:
        """Return whether `size` times the set of a single row contains the target; stops once yes or no is proved."""
        least = np.inf
        for split in self._splits(target, np.ones(1)):
            least = min(least, float(np.max(self._needed_by(split, target, np.ones(1)))))
            if least <= size * (1 + SPLIT) or split.least > size:
                break
        return least <= size * (1 + SPLIT)

    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        out = np.asarray(sum(part.curvature(w, first, second) for part in self.parts))
        for one, other in combinations(self.parts, 2):
            cross = one.cross_with(other, w, second)
            out += cross + cross.T
        return out

    def directional(self, w: Array, v: Array) -> Array:
        return np.asarray(sum(part.directional(w, v) for part in self.parts))

    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        return np.asarray(sum(part.curvature_product(w, first, v) for part in self.parts))

    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        return np.asarray(sum(part.cross(w, rows, r) for part in self.parts))

    def cross_with(self, other: RowSets, w: Array, r: Array) -> Array:
        return np.asarray(sum(part.cross_with(other, w, r) for part in self.parts))

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        best, least = np.full(np.shape(self.support(target)), np.inf), np.inf
        for split in self._splits(target, budgets):
            found = self._needed_by(split, target, budgets, sizes)
            level = float(np.max(ratio(found, np.sum(budgets) if self.is_common else budgets)))
            if level < least:
                best, least = found, level
            if least <= split.least * (1 + ROUNDING):
                break
        return best

    def _needed_by(self, split: _Split, target: Array, budgets: Array, sizes: Array | None = None) -> Array:
        """Return the share of each row that a split needs; the part best suited to the remainder takes it."""
        # a part without extent in the direction of the remainder cannot cover it, so each part is tried
        missed = target - np.sum(split.shares, axis=0)
        options = []
        for chosen in range(len(self.parts)):
            needs = [
                part.required_share(share + missed * (number == chosen), budgets, part.support(split.w), sizes)
                for number, (part, share) in enumerate(zip(self.parts, split.shares, strict=True))
            ]
            options.append(np.max(np.broadcast_arrays(*self._per_row(needs, budgets)), axis=0))
        return min(options, key=np.max)

    def _per_row(self, needs: Sequence[Array], budgets: Array) -> list[Array]:
        """Return the needs of the parts by row, spreading those of common parts; one number each if all are common."""
        if self.is_common:
            return list(needs)
        shares = ratio(budgets, np.sum(budgets))
        return [
            need * shares if part.is_common and np.isfinite(need) else need
            for part, need in zip(self.parts, needs, strict=True)
        ]

    def _splits(self, target: Array, budgets: Array) -> Iterator[_Split]:
        """Yield ever better splits of the target over the parts."""
        found = None
        for found in approaches(self, target, budgets):
            shares = [found.multiple * part.adjoint(found.w, budgets) for part in found.sets.parts]
            yield _Split(found.w, shares, found.least)
        if found is None:
            yield _Split(target / (norm(target) or 1.0), [np.zeros(len(target)) for _ in self.parts], 0.0)

    def residual(self, target: Array, budgets: Array, scale: Array, direction: Array) -> Array:
        t = self.support(direction)
        # split the scale in proportion to the supports, so that each part is used to the same share as the sum
        scales = [ratio(scale * part.support(direction), t) for part in self.parts]
        given = [part.adjoint(direction, budgets * ratio(t, scale)) for part in self.parts]
        rest = target - np.sum(given, axis=0)
        # a part with a kink at this direction may give far too much, so the parts that give most are corrected first
        order = np.argsort([-norm(point) for point in given])
        for _ in range(SWEEPS):
            before = norm(rest)
            for number in order:
                part = self.parts[number]
                wanted = rest + given[number]
                points = [
                    wanted - part.residual(wanted, budgets, scales[number], direction),
                    _nearest_multiple(part.adjoint(direction, budgets), wanted),
                    given[number],
                ]
                given[number] = min(points, key=lambda point: float(norm(wanted - point)))
                rest = wanted - given[number]
            if norm(rest) >= 0.99 * before:
                break
        return rest

    def absolute_reach(self, n_features: int) -> Array:
        return np.asarray(sum(part.absolute_reach(n_features) for part in self.parts))

    def interval_form(self) -> IntervalForm | None:
        forms = [part.interval_form() for part in self.parts]
        known = [form for form in forms if form is not None]
        return reduce(IntervalForm.plus, known) if len(known) == len(forms) else None

    def support_program(self, n_features: int) -> SupportProgram | None:
        programs = [part.support_program(n_features) for part in self.parts]
        stated = [program for program in programs if program is not None]
        if len(stated) < len(programs):
            return None
        n_sets = max(program.T.shape[0] for program in stated)
        ends = np.cumsum([program.T.shape[1] - n_features for program in stated])

        def moved(matrix: sparse.csr_array, end: int) -> sparse.csr_array:
            """Return the matrix with its extra variables moved to their columns among all parts' variables."""
            own = matrix.shape[1] - n_features
            columns = np.append(np.arange(n_features), n_features + end - own + np.arange(own))
            at = sparse.csr_array((np.ones(len(columns)), (np.arange(len(columns)), columns)), (len(columns), size))
            return sparse.csr_array(matrix @ at)

        size, cones, T = n_features + int(ends[-1]), [], sparse.csr_array((n_sets, n_features + int(ends[-1])))
        for program, end in zip(stated, ends, strict=True):
            each = slice(None) if program.T.shape[0] == n_sets else np.zeros(n_sets, dtype=int)
            T = T + moved(program.T, end)[each]
            cones += [(kind, sizes, moved(G, end)) for kind, sizes, G in program.cones]
        stops = np.cumsum([sum(G.shape[0] for _, _, G in program.cones) for program in stated])[:-1]

        def points(budgets: Array, multipliers: Array) -> list[Any]:
            parts = zip(stated, np.split(multipliers, stops), strict=True)
            pooled = np.atleast_1d(np.sum(budgets))
            return [one.points(pooled if one.T.shape[0] == 1 else budgets, own) for one, own in parts]

        return SupportProgram(T, cones, points)

    def sum_of_points(self, points: Any, budgets: Array, size: float = 1.0) -> Array:
        pairs = zip(self.parts, points, strict=True)
        return np.asarray(sum(part.sum_of_points(own, budgets, size) for part, own in pairs))

    def _of(self, change: Callable[[RowSets], RowSets]) -> BoundSum:
        """Return the sum of the changed parts."""
        return type(self)([change(part) for part in self.parts])

    def against_labels(self, signs: Array) -> BoundSum:
        return self._of(lambda part: part.against_labels(signs))

    def centred(self, X: Any) -> tuple[Any, RowSets]:
        parts = []
        for part in self.parts:
            X, around = part.centred(X)
            parts.append(around)
        return X, BoundSum(parts)

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        return np.all([part.exact_features(n_features) for part in self.parts], axis=0)

    def scaled(self, factor: float) -> BoundSum:
        return self._of(lambda part: part.scaled(factor))

    def resized(self, factor: float) -> BoundSum:
        return self._of(lambda part: part.resized(factor))

    def smoothed(self, delta: float) -> BoundSum:
        return SmoothedSum(self, [part.smoothed(delta / len(self.parts)) for part in self.parts])

    def snapped_to_kinks(self, w: Array, delta: float, factor: float) -> Array:
        drawn = np.array([part.snapped_to_kinks(w, delta / len(self.parts), factor) for part in self.parts])
        # a part without a kink near a weight does not move it, so the largest move comes from a part with a kink
        return np.take_along_axis(drawn, np.argmax(np.abs(drawn - w), axis=0)[None], axis=0)[0]

    def image(self, map: Any) -> RowSets | None:
        images = [part.image(map) for part in self.parts]
        found = [image for image in images if image is not None]
        return sum_of(found) if len(found) == len(images) else None

    def take(self, rows: Any) -> BoundSum:
        return self._of(lambda part: part.take(rows))

    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        # sums of independent points are hardly ever near the boundary; sums of maximizers in one direction are on it
        border = np.array([self.maximizer(v) for v in rng.normal(size=(n_draws // 2, n_features))])
        anywhere = sum(part.sample(rng, n_draws - len(border), n_features) for part in self.parts)
        return np.concatenate([border.reshape(len(border), *np.shape(anywhere)[1:]), anywhere])


def _nearest_multiple(point: Array, target: Array) -> Array:
    """Return the point nearest to the target on the segment from 0 to `point`."""
    return point * np.clip(ratio(point @ target, point @ point), 0.0, 1.0)


class SmoothedSum(BoundSum):
    """A sum of smoothed sets."""

    def __init__(self, base: BoundSum, parts: Sequence[RowSets]):
        super().__init__(parts)
        self.base, self.is_smooth = base, True

    def summands(self) -> list[RowSets]:
        return [self]

    def maximizer_on_faces(self, w: Array) -> Array:
        return np.asarray(sum(part.maximizer_on_faces(w) for part in self.parts))

    def _of(self, change: Callable[[RowSets], RowSets]) -> BoundSum:
        return SmoothedSum(self.base._of(change), [change(part) for part in self.parts])

    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        return self.base.contains(points, slack=slack)

    def required_share(self, target: Array, budgets: Array, scale: Array, sizes: Array | None = None) -> Array:
        return self.base.required_share(target, budgets, scale, sizes)

    def interval_form(self) -> None:
        return None
