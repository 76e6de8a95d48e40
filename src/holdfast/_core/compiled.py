"""When to use compiled kernels; `kernels` itself is imported only where they repay loading it."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

WORTHWHILE = 8e6
"""Matrix entries from which passes are compiled: loading numba takes some 0.5 s (several the first time), so that smaller
fits would wait for longer than they take. One number, whatever has been loaded: a fit must not depend on earlier ones."""


STEPS_WORTHWHILE = 1e6
"""Entries visited by stochastic steps, plus 30 a step, from which they are compiled: half a second of plain Python."""


@cache
def is_available() -> bool:
    """Return whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


def repays(n_entries: int) -> bool:
    """Return whether passes over so many matrix entries should be compiled."""
    return n_entries >= WORTHWHILE and is_available()


def kernel(name: str) -> Any | None:
    """Return the compiled function of this name, or None without numba."""
    if not is_available():
        return None
    from holdfast._core import kernels

    return getattr(kernels, name)
