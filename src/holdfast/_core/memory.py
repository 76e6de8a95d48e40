"""Remembering what was computed last: passes over rows often ask for the same weights again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")


def remembered(method: Callable[[Any, Any], Result]) -> Callable[[Any, Any], Result]:
    """Make a method of one array return its last result again where it is given the same array again."""
    slot = f"_last_{method.__name__}"

    @wraps(method)
    def asked(self: Any, w: Any) -> Result:
        known: tuple[Any, Result] | None = self.__dict__.get(slot)
        if known is not None and np.array_equal(known[0], w):
            return known[1]
        result = method(self, w)
        self.__dict__[slot] = (np.array(w), result)
        return result

    return asked
