"""Elementwise work on long vectors in pieces, so that intermediate results stay in cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np

STRETCH = 1 << 14


def stretches(n: int) -> Iterator[slice]:
    """Yield slices that cover n numbers, each so short that some ten vectors of its length stay in cache."""
    return (slice(start, min(start + STRETCH, n)) for start in range(0, n, STRETCH))


def by_stretches(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make an elementwise method, of vectors or 0-d arrays, process long vectors in pieces."""

    @wraps(method)
    def stretched(self: Any, *arrays: Any) -> Any:
        if all(np.size(array) <= 2 * STRETCH for array in arrays):
            return method(self, *arrays)
        sizes = {np.shape(array) for array in arrays} - {()}
        if len(sizes) != 1 or len(shape := sizes.pop()) != 1 or shape[0] <= 2 * STRETCH:
            return method(self, *arrays)
        parts = [
            method(self, *(array[start : start + STRETCH] if np.ndim(array) else array for array in arrays))
            for start in range(0, shape[0], STRETCH)
        ]
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        return np.concatenate(parts)

    return stretched
