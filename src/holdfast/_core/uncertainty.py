"""What an uncertainty is: a set, and the same set bound to the rows it speaks of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from holdfast._core.parameters import Parameters

Array = NDArray[np.float64]


class UncertaintySet(Parameters, ABC):
    """What may be wrong with a row, stated in the units of the features and not yet tied to data."""

    metadata: tuple[str, ...] = ()
    """Names of the per-row arguments of ``fit`` that this set understands."""

    @abstractmethod
    def at(self, n_samples: int, n_features: int, metadata: Mapping[str, Any]) -> BoundSet:
        """Return the set bound to rows, after checking that its numbers make sense there."""

    @classmethod
    @abstractmethod
    def examples(cls) -> Sequence[tuple[Self, Mapping[str, Any]]]:
        """Return (set, metadata) pairs for 5 rows of 3 features, for tests that run on every set."""


class BoundSet(ABC):
    r"""An uncertainty set :math:`S_i` for each row i, known through its support function.

    :math:`t_i(w) = \max_{\delta \in S_i} w^\top \delta` is how far row i's score can be pushed. Where the set is the same for
    all rows (`is_common`), `support` is a 0-d array and methods that take or give one number a row are content with one
    for all. `is_isotropic`: the support depends on the l2 norm of w alone. `is_symmetric`: t(-w) = t(w). `is_conic`: the
    support is the l2 norm of a linear function of w.
    """

    is_common = False
    is_isotropic = False
    is_conic = False
    is_symmetric = True
    is_sublinear = True

    @abstractmethod
    def support(self, w: Array) -> Array:
        """Return t_i(w), shape (n_samples,), or () where `is_common`."""

    @abstractmethod
    def maximizer(self, w: Array, rows: slice = slice(None)) -> Array:
        """Return a point of each row's set that attains its support, shape (len(rows), n_features).

        It is the gradient of the support where that exists, and 0 where the support is 0 (an allowed subgradient there).
        """

    @abstractmethod
    def adjoint(self, w: Array, r: Array) -> Array:
        """Return sum_i r_i * maximizer_i(w), shape (n_features,), without forming all maximizers."""

    @abstractmethod
    def contains(self, points: Array, *, slack: float = 1e-9) -> NDArray[np.bool_]:
        """Return for each row whether ``points[i]`` is in its set, up to a relative `slack`."""

    @abstractmethod
    def curvature(self, w: Array, first: Array, second: Array) -> Array:
        r"""Return :math:`\sum_i` first_i * Hessian of t_i + second_i * (its gradient)(its gradient)', (n, n)."""

    @abstractmethod
    def directional(self, w: Array, v: Array) -> Array:
        """Return maximizer_i(w)'v, the slope of t_i along v, shape (n_samples,), or () where `is_common`."""

    @abstractmethod
    def curvature_product(self, w: Array, first: Array, v: Array) -> Array:
        r"""Return :math:`\sum_i` first_i * (Hessian of t_i) v, shape (n_features,), without forming a matrix."""

    @abstractmethod
    def cross(self, w: Array, rows: Any, r: Array) -> Array:
        """Return sum_i r_i x_i maximizer_i(w)', shape (n_features, n_features)."""

    @abstractmethod
    def demand(self, target: Array, shares: Array, sizes: Array | None = None) -> Array:
        r"""Return how much of each set it takes to reach `target`: :math:`\rho_i` with target in :math:`\sum_i \rho_i S_i`.

        Any split of the target over the rows will do; `shares`, one number >= 0 a row, say how it is to be borne. Common
        sets pool the rows and return one number. inf where no split exists; what is missed is put down to rounding by
        the `sizes` of the sums that the target's entries came from.
        """

    @abstractmethod
    def shortfall(self, target: Array, budgets: Array, shares: Array, direction: Array) -> float:
        r"""Return the l2 distance from `target` to some point of :math:`\sum_i` budgets_i :math:`S_i` close to it.

        Unless a better one is known that point is :math:`\sum_i` shares_i * t_i(direction) * maximizer_i(direction); the caller
        sees to shares_i * t_i(direction) <= budgets_i.
        """

    def exact_features(self, n_features: int) -> NDArray[np.bool_]:
        """Return which features no row's set moves, shape (n_features,)."""
        return np.zeros(n_features, dtype=bool)

    @abstractmethod
    def scaled(self, factor: float) -> BoundSet:
        """Return the sets made larger by a factor."""

    def factors_of_support(self, n_features: int) -> list[Array]:
        """Return F with t(w) = |F'w|, one (n, r) matrix for each distinct set; only where `is_conic`."""
        raise NotImplementedError(f"{type(self).__name__} has no conic form.")

    @abstractmethod
    def take(self, rows: NDArray[np.intp] | slice) -> BoundSet:
        """Return the sets of some rows only."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, n_draws: int, n_features: int) -> Array:
        """Return random points of every row's set, shape (n_draws, n_samples or 1, n_features)."""
